package localstack_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitClient is a raw client with a channel in confirm mode.
type rabbitClient struct {
	*testing.T
	conn *amqp.Connection
	ch   *amqp.Channel
}

func rabbitConnect(t *testing.T, url string) *rabbitClient {
	t.Helper()
	conn, err := amqp.DialConfig("amqp://guest:guest@"+strings.TrimPrefix(url, "rabbitmq://")+"/", amqp.Config{Heartbeat: 10 * time.Second, Locale: "en_US"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rabbitClient{T: t, conn: conn}
	c.open()
	return c
}

// open opens a new channel.
func (c *rabbitClient) open() {
	c.Helper()
	ch, err := c.conn.Channel()
	if err != nil {
		c.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		c.Fatal(err)
	}
	c.ch = ch
}

func (c *rabbitClient) declare(queue string, kind string) {
	c.Helper()
	if _, err := c.ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		c.Fatal(err)
	}
}

// publish returns how the broker has confirmed the message; false and an error
// when it hasn't within the time.
func (c *rabbitClient) publish(queue, body string, wait time.Duration) (bool, error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	mark, err := c.ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	if err != nil {
		return false, err
	}
	return mark.WaitContext(ctx)
}

func (c *rabbitClient) stored(queue, body string) {
	c.Helper()
	if ok, err := c.publish(queue, body, 20*time.Second); err != nil || !ok {
		c.Fatalf("publish %q: %v %v", body, ok, err)
	}
}

// drain gets all messages of a queue and acks them.
func (c *rabbitClient) drain(queue string) string {
	c.Helper()
	var bodies []string
	for {
		d, ok, err := c.ch.Get(queue, false)
		if err != nil {
			c.Fatal(err)
		}
		if !ok {
			return strings.Join(bodies, " ")
		}
		bodies = append(bodies, string(d.Body))
		if err := d.Ack(false); err != nil {
			c.Fatal(err)
		}
	}
}

func TestRabbitMQServer(t *testing.T) {
	var told steps
	e := startReal(t, func(ctx context.Context) (*localstack.RabbitMQServer, error) {
		return localstack.StartRabbitMQServer(ctx, localstack.Progress(told.add))
	})
	told.saw(t, "starting", "ready")
	pids := e.Pids()
	t.Logf("memory %s", resident(pids[0]))
	if !e.Real() || e.Versions()["rabbitmq"] == "" || e.DirectURL() == e.URL() {
		t.Errorf("real %v, versions %v, direct %s", e.Real(), e.Versions(), e.DirectURL())
	}
	rabbitFaults(t, e)
	rabbitStreamFaults(t, e)
	for _, kind := range []string{"classic", "quorum"} {
		c := rabbitConnect(t, e.URL())
		c.declare("kept-"+kind, kind)
		c.stored("kept-"+kind, "1")
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"restart", e.Restart}, {"kill", e.Kill}} {
		began := time.Now()
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		t.Logf("%s took %v", step.name, time.Since(began).Round(time.Millisecond))
		gone(t, pids[0])
		pids = e.Pids()
	}
	c := rabbitConnect(t, e.DirectURL())
	for _, kind := range []string{"classic", "quorum"} {
		if got := c.drain("kept-" + kind); got != "1" {
			t.Errorf("%s queue holds %q after the kill", kind, got)
		}
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pids[0])
	if err := e.Restart(t.Context()); !errors.Is(err, localstack.ErrClosed) {
		t.Errorf("restart after close: %v", err)
	}
}

func TestRabbitMQServerIsNamed(t *testing.T) {
	t.Setenv("ONCELINE_RABBITMQ_SERVER", t.TempDir()+"/rabbitmq-server")
	_, err := localstack.StartRabbitMQServer(t.Context())
	if !errors.Is(err, localstack.ErrNotInstalled) {
		t.Errorf("without a server: %v", err)
	}
	t.Log(err)
}

// rabbitFaults asks a RabbitMQ behind the proxy, real or not, for all faults.
func rabbitFaults(t *testing.T, e localstack.Emulator) {
	c := rabbitConnect(t, e.URL())
	c.declare("q", "classic")
	c.declare("other", "classic")
	publish := localstack.Fault{Op: localstack.Publish, Match: "q", Times: 1}
	with := func(f localstack.Fault, change func(*localstack.Fault)) localstack.Fault { change(&f); return f }

	// The confirm of one message is lost; those around it are confirmed.
	lost := inject(t, e, with(publish, func(f *localstack.Fault) { f.Kind = localstack.LoseResponse }))
	c.stored("other", "0")
	marks := make([]*amqp.DeferredConfirmation, 5)
	for i := range marks {
		var err error
		if marks[i], err = c.ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: []byte{'a' + byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range marks[1:] {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if ok, err := m.WaitContext(ctx); err != nil || !ok {
			t.Errorf("message %d: %v %v", i+1, ok, err)
		}
		cancel()
	}
	if err := lost.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
	if marks[0].Acked() {
		t.Error("a confirm that was lost has come")
	}
	if got := c.drain("q"); got != "a b c d e" {
		t.Errorf("stored %q", got)
	}

	// A request that is lost is not stored, and the numbers of later ones fit.
	dropped := inject(t, e, with(publish, func(f *localstack.Fault) { f.Kind = localstack.LoseRequest }))
	if ok, err := c.publish("q", "lost", 300*time.Millisecond); err == nil {
		t.Errorf("a lost request was confirmed: %v", ok)
	}
	c.stored("q", "after")
	counts(t, dropped, 1, 0, 0)

	// A nack of a publish.
	refused := inject(t, e, with(publish, func(f *localstack.Fault) { f.Kind = localstack.Error }))
	if ok, err := c.publish("q", "nacked", 10*time.Second); err != nil || ok {
		t.Errorf("an injected nack: %v %v", ok, err)
	}
	c.stored("q", "then")
	counts(t, refused, 1, 0, 0)
	late := inject(t, e, with(publish, func(f *localstack.Fault) { f.Kind, f.Delay = localstack.Delay, short }))
	began := time.Now()
	c.stored("q", "late")
	if took := time.Since(began); took < short {
		t.Errorf("a delayed publish took %v", took)
	}
	counts(t, late, 1, 1, 0)
	if got := c.drain("q"); got != "after then late" {
		t.Errorf("stored %q", got)
	}

	// A refusal with a code closes the channel, and the same number can be opened.
	closed := c.ch.NotifyClose(make(chan *amqp.Error, 1))
	inject(t, e, with(publish, func(f *localstack.Fault) { f.Kind, f.Code = localstack.Error, 406 }))
	if ok, err := c.publish("q", "refused", 10*time.Second); ok {
		t.Errorf("an injected refusal: %v %v", ok, err)
	}
	if reason := <-closed; reason == nil || reason.Code != 406 {
		t.Errorf("channel closed by %v", reason)
	}
	c.open()
	c.stored("q", "x")
	rabbitSettleFaults(t, e, c)
	rabbitCuts(t, e)
}

// rabbitSettleFaults goes on with message "x" in queue q.
func rabbitSettleFaults(t *testing.T, e localstack.Emulator, c *rabbitClient) {
	unanswered := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse})
	ack := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseRequest, Match: "q", Times: 1})
	d, ok, err := c.ch.Get("q", false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	if err := ack.WaitHit(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, unanswered, 0, 0, 0) // an ack has no answer
	unanswered.Remove()
	if err := c.ch.Close(); err != nil {
		t.Fatal(err)
	}
	c.open() // the message is back
	deliver := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseResponse, Match: "q", Times: 1})
	ds, err := c.ch.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := deliver.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, deliver, 1, 1, 0)
	c.stored("q", "y")
	select {
	case d := <-ds:
		if string(d.Body) != "y" || d.DeliveryTag != 2 {
			t.Errorf("delivery %d of %q, want the second one", d.DeliveryTag, d.Body)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no delivery behind the lost one")
	}
	if err := c.ch.Close(); err != nil {
		t.Fatal(err)
	}
	c.open()
	declared := inject(t, e, localstack.Fault{Op: localstack.Admin, API: "queue.declare", Kind: localstack.LoseResponse, Match: "new", Times: 1, Cut: true})
	if _, err := c.ch.QueueDeclare("new", true, false, false, false, nil); err == nil {
		t.Error("an answer that was lost has come")
	}
	counts(t, declared, 1, 1, 0)
	c = rabbitConnect(t, e.URL())
	if _, err := c.ch.QueueDeclarePassive("new", true, false, false, false, nil); err != nil {
		t.Errorf("what was declared isn't there: %v", err)
	}
	if got := c.drain("q"); got != "x y" && got != "y x" {
		t.Errorf("stored %q", got)
	}
}

func rabbitCuts(t *testing.T, e localstack.Emulator) {
	for _, f := range []localstack.Fault{
		{Op: localstack.Publish, Kind: localstack.Cut, Match: "q", Times: 1},
		{Op: localstack.Publish, Kind: localstack.LoseRequest, Match: "q", Times: 1, Cut: true},
		{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "q", Times: 1, Cut: true},
		{Op: localstack.Publish, Kind: localstack.Delay, Delay: short, Match: "q", Times: 1, Cut: true},
		{Op: localstack.Publish, Kind: localstack.Error, Code: 541, Match: "q", Times: 1},
	} {
		c := rabbitConnect(t, e.URL())
		closed := c.conn.NotifyClose(make(chan *amqp.Error, 1))
		i := inject(t, e, f)
		ok, _ := c.publish("q", strings.Repeat("z", 200_000), 10*time.Second) // two frames of body
		if ok && f.Kind != localstack.Delay {                                 // whose answer may come before the end
			t.Errorf("%+v: confirmed", f)
		}
		select {
		case reason := <-closed:
			if f.Code != 0 && (reason == nil || reason.Code != f.Code) {
				t.Errorf("%+v: closed by %v", f, reason)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%+v: the connection is still there", f)
		}
		want := ""
		if f.Kind == localstack.LoseResponse || f.Kind == localstack.Delay {
			want = strings.Repeat("z", 200_000)
			counts(t, i, 1, 1, 0)
		} else {
			counts(t, i, 1, 0, 0)
		}
		after := rabbitConnect(t, e.URL())
		if got := eventually(t, func() (string, bool) { s := after.drain("q"); return s, s == want }); got != want {
			t.Errorf("%+v: stored %d bytes, want %d", f, len(got), len(want))
		}
	}
}

// eventually asks until it is content or 5 s are over, and returns what it last
// got. Before it is content for good a moment passes: a message may come late.
func eventually(t *testing.T, ask func() (string, bool)) string {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		got, ok := ask()
		if ok || time.Now().After(deadline) {
			return got
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			return got
		}
	}
}

// The proxy of the real server shows the same on the model.
func TestRabbitMQProxyOnTheModel(t *testing.T) {
	m, err := localstack.StartRabbitMQ(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, m)
	e := localstack.ProxyOfRabbitMQ(t, m.Address())
	closeAtEnd(t, e)
	rabbitFaults(t, e)
}

// What this test asks of the proxy the model's own faults answer too.
func TestRabbitMQModelFaults(t *testing.T) {
	m, err := localstack.StartRabbitMQ(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, m)
	rabbitFaults(t, m)
}
