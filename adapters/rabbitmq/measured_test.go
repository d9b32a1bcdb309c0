package rabbitmq

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/localstack"
)

// measured is the RabbitMQ that is installed here, one node, behind a proxy with
// faults.
type measured struct{ *localstack.RabbitMQServer }

// startMeasured starts one for a test that kills it, or needs more than one node.
func startMeasured(t testing.TB, options ...localstack.RabbitMQServerOption) measured {
	t.Helper()
	installed(t)
	e, err := localstack.StartRabbitMQServer(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(e); err != nil {
			t.Error(err)
		}
	})
	t.Logf("RabbitMQ %s", e.Versions()["rabbitmq"])
	return measured{e}
}

// sharedMeasured is the one that all others share, one after the other: to start a node
// takes seconds.
func sharedMeasured(t testing.TB) measured {
	t.Helper()
	installed(t)
	e, err := sharedNode.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("RabbitMQ %s", e.Versions()["rabbitmq"])
	return measured{e}
}

var sharedNode sharedServer

type sharedServer struct {
	once   sync.Once
	server *localstack.RabbitMQServer
	err    error
}

func (s *sharedServer) start() (*localstack.RabbitMQServer, error) {
	s.once.Do(func() { s.server, s.err = localstack.StartRabbitMQServer(context.Background()) })
	return s.server, s.err
}

// end ends it, if any test has asked for it.
func (s *sharedServer) end() error {
	if s.server == nil {
		return nil
	}
	return end(s.server)
}

func installed(t testing.TB) {
	t.Helper()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs a real server: needs ONCELINE_LOCAL=1")
	}
}

func end(e *localstack.RabbitMQServer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return e.Close(ctx)
}

// TestMeasured answers what was known of the vendor's client and of queues by their
// sources, by runs without a test, or by hearsay.
func TestMeasured(t *testing.T) {
	m := sharedMeasured(t)
	for fact, ask := range map[string]func(*testing.T, measured){
		"RMQ-F-05": oneQueueRefuses, "RMQ-F-08": closedLooksNacked, "RMQ-F-09": ackIsWritten,
		"RMQ-F-11": oldAckTakesANewMessage, "RMQ-F-15": nackCounts, "RMQ-F-16": firstHasNoCount,
		"RMQ-F-28": delayByExpiry, "RMQ-F-29": confirmsBeginAgain, "RMQ-F-161": headersAreATable,
	} {
		t.Run(fact, func(t *testing.T) { ask(t, m) })
	}
}

// node is a node's address, counted from 0.
func (m measured) node(n int) string { return strings.Split(m.Address(), ",")[n] }

// dial is a connection of the SDK's own, to the last node.
func (m measured) dial(t *testing.T, config amqp.Config) *amqp.Connection {
	t.Helper()
	c, err := amqp.DialConfig("amqp://guest:guest@"+m.node(len(m.Pids())-1)+"/", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// recovering is a connection that comes back by itself.
func (m measured) recovering(t *testing.T) *amqp.Connection {
	t.Helper()
	return m.dial(t, amqp.Config{Recovery: &amqp.Recovery{
		ReconnectionConfig: &amqp.ReconnectionConfig{MaxRetryCount: 100, RetryInterval: 50 * time.Millisecond}}})
}

// channel is one in confirm mode, on a connection of its own.
func (m measured) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	ch, err := m.dial(t, amqp.Config{}).Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func (m measured) declare(t *testing.T, ch *amqp.Channel, name, kind string, args amqp.Table) string {
	t.Helper()
	name = strings.ReplaceAll(t.Name(), "/", ".") + "." + name
	all := amqp.Table{"x-queue-type": kind}
	for k, v := range args {
		all[k] = v
	}
	if _, err := ch.QueueDeclare(name, true, false, false, false, all); err != nil {
		t.Fatal(err)
	}
	return name
}

// put publishes and returns the confirm.
func put(t *testing.T, ch *amqp.Channel, exchange, key, body string) *amqp.DeferredConfirmation {
	t.Helper()
	d, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// acked waits for a confirm.
func acked(t *testing.T, d *amqp.DeferredConfirmation) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ok, err := d.WaitContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func mustAcked(t *testing.T, d *amqp.DeferredConfirmation) {
	t.Helper()
	if !acked(t, d) {
		t.Fatal("nacked")
	}
}

// fetch gets the next message, which has to come soon.
func fetch(t *testing.T, ch *amqp.Channel, queue string) amqp.Delivery {
	t.Helper()
	var d amqp.Delivery
	eventually(t, "a message in "+queue, func() bool {
		var ok bool
		var err error
		if d, ok, err = ch.Get(queue, false); err != nil {
			t.Fatal(err)
		}
		return ok
	})
	return d
}

// oneQueueRefuses: the publish is nacked, and stored in the other queue.
func oneQueueRefuses(t *testing.T, m measured) {
	ch := m.channel(t)
	full := m.declare(t, ch, "full", "classic", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	free := m.declare(t, ch, "free", "classic", nil)
	exchange := t.Name()
	if err := ch.ExchangeDeclare(exchange, "fanout", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{full, free} {
		if err := ch.QueueBind(q, "", exchange, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	mustAcked(t, put(t, ch, exchange, "", "1"))
	if acked(t, put(t, ch, exchange, "", "2")) {
		t.Error("acked, though one queue is full")
	}
	if a, b := ready(t, ch, full), ready(t, ch, free); a != 1 || b != 2 {
		t.Errorf("the full queue has %d, the free one %d", a, b)
	}
}

// closedLooksNacked: the confirm is lost with its connection, the SDK says nacked,
// and the message is there.
func closedLooksNacked(t *testing.T, m measured) {
	ch := m.channel(t)
	q := m.declare(t, ch, "q", "classic", nil)
	i := m.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: q, Times: 1, Cut: true})
	defer i.Remove()
	if acked(t, put(t, ch, "", q, "1")) || i.Applied() != 1 {
		t.Errorf("acked, or not lost: %d", i.Applied())
	}
	if d := fetch(t, m.channel(t), q); string(d.Body) != "1" || d.Redelivered {
		t.Errorf("%q, redelivered %v", d.Body, d.Redelivered)
	}
}

// ackIsWritten: Ack returns nil for an ack that the broker never gets.
func ackIsWritten(t *testing.T, m measured) {
	ch := m.channel(t)
	q := m.declare(t, ch, "q", "classic", nil)
	mustAcked(t, put(t, ch, "", q, "1"))
	d := fetch(t, ch, q)
	i := m.Inject(localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseRequest, Match: q, Times: 1, Cut: true})
	defer i.Remove()
	if err := d.Ack(false); err != nil {
		t.Fatalf("ack: %v", err)
	}
	if again := fetch(t, m.channel(t), q); string(again.Body) != "1" || !again.Redelivered {
		t.Errorf("%q, redelivered %v", again.Body, again.Redelivered)
	}
}

// oldAckTakesANewMessage: with the SDK's recovery on, the ack of a delivery from
// before a cut removes the message that has its tag afterwards.
func oldAckTakesANewMessage(t *testing.T, m measured) {
	admin := m.channel(t)
	q := m.declare(t, admin, "q", "classic", nil)
	mustAcked(t, put(t, admin, "", q, "first"))
	conn := m.recovering(t)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	old := fetch(t, ch, q)
	m.Disconnect()
	admin = m.channel(t)
	// The first one goes out of the way.
	if err := fetch(t, admin, q).Ack(false); err != nil {
		t.Fatal(err)
	}
	mustAcked(t, put(t, admin, "", q, "second"))
	var now amqp.Delivery
	eventually(t, "a channel that recovered", func() bool {
		var ok bool
		now, ok, err = ch.Get(q, false)
		return err == nil && ok
	})
	if old.DeliveryTag != now.DeliveryTag || string(now.Body) != "second" {
		t.Fatalf("tags %d and %d, %q", old.DeliveryTag, now.DeliveryTag, now.Body)
	}
	if err := old.Ack(false); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if n := ready(t, admin, q); n != 0 {
		t.Errorf("%d messages are there: the ack of the first had no effect", n)
	}
}

// nackCounts: before 4.3 a nack with requeue is a failed delivery; with a limit of
// 2 the message dies after three.
func nackCounts(t *testing.T, m measured) {
	ch := m.channel(t)
	dead := m.declare(t, ch, "dead", "classic", nil)
	q := m.declare(t, ch, "q", "quorum", amqp.Table{"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	mustAcked(t, put(t, ch, "", q, "1"))
	for range 3 {
		if err := fetch(t, ch, q).Nack(false, true); err != nil {
			t.Fatal(err)
		}
	}
	d := fetch(t, ch, dead)
	if reason := d.Headers["x-first-death-reason"]; string(d.Body) != "1" || reason != "delivery_limit" {
		t.Errorf("%q died of %v", d.Body, reason)
	}
}

// firstHasNoCount: of a quorum queue's deliveries to a consumer the first has no
// x-delivery-count; what basic.get fetches has one from 0 on. Classic queues have
// none.
func firstHasNoCount(t *testing.T, m measured) {
	for kind, want := range map[string][]any{"quorum": {nil, int64(1), int64(2)}, "classic": {nil, nil, nil}} {
		ch := m.channel(t)
		q := m.declare(t, ch, kind, kind, nil)
		mustAcked(t, put(t, ch, "", q, "1"))
		ds, err := ch.ConsumeWithContext(t.Context(), q, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []any
		for d := range ds {
			if got = append(got, d.Headers["x-delivery-count"]); len(got) == len(want) {
				break
			}
			if err := d.Reject(true); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	ch := m.channel(t)
	q := m.declare(t, ch, "fetched", "quorum", nil)
	mustAcked(t, put(t, ch, "", q, "1"))
	if n := fetch(t, ch, q).Headers["x-delivery-count"]; n != int64(0) {
		t.Errorf("fetched first: %v", n)
	}
}

// delayByExpiry: a queue whose messages expire into another one is a delay, with
// either kind of queue.
func delayByExpiry(t *testing.T, m measured) {
	const delay = 500 * time.Millisecond
	for _, kind := range []string{"classic", "quorum"} {
		ch := m.channel(t)
		q := m.declare(t, ch, kind, kind, nil)
		wait := m.declare(t, ch, kind+".wait", kind, amqp.Table{"x-message-ttl": delay.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": q})
		sent := time.Now()
		mustAcked(t, put(t, ch, "", wait, "1"))
		d := fetch(t, ch, q)
		if took := time.Since(sent); took < delay || took > delay+5*time.Second || string(d.Body) != "1" {
			t.Errorf("%s: %q after %s, asked for %s", kind, d.Body, took, delay)
		}
	}
}

// confirmsBeginAgain: after the SDK's recovery the sequence of confirms begins at 1,
// and what waited has become a nack.
func confirmsBeginAgain(t *testing.T, m measured) {
	conn := m.recovering(t)
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	q := m.declare(t, ch, "q", "classic", nil)
	mustAcked(t, put(t, ch, "", q, "1"))
	i := m.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: q, Times: 1, Cut: true})
	defer i.Remove()
	states := make(chan *amqp.StateChanged, 16)
	conn.NotifyStateChange(states)
	lost := put(t, ch, "", q, "2")
	if acked(t, lost) || lost.DeliveryTag != 2 {
		t.Errorf("tag %d, acked %v", lost.DeliveryTag, lost.Acked())
	}
	for s := range states {
		if s.From == amqp.StateReconnecting && s.To == amqp.StateOpen {
			break
		}
	}
	after := put(t, ch, "", q, "3")
	mustAcked(t, after)
	if after.DeliveryTag != 1 {
		t.Errorf("tag %d after the recovery", after.DeliveryTag)
	}
	if n := ready(t, m.channel(t), q); n != 3 {
		t.Errorf("%d of 3 are stored", n)
	}
}

// headersAreATable: each name has one value, whatever the order, a name has at most 255
// bytes, and a body may be empty.
func headersAreATable(t *testing.T, m measured) {
	ch := m.channel(t)
	q := m.declare(t, ch, "q", "quorum", nil)
	name := strings.Repeat("n", 255)
	want := amqp.Table{"a": "1", "A": "2", "": "3", name: "4"}
	if err := ch.PublishWithContext(t.Context(), "", q, false, false, amqp.Publishing{Headers: want}); err != nil {
		t.Fatal(err)
	}
	d := fetch(t, ch, q)
	delete(d.Headers, "x-delivery-count")
	if !maps.Equal(d.Headers, want) || len(d.Body) != 0 {
		t.Errorf("%v, a body of %d bytes", d.Headers, len(d.Body))
	}
	if err := ch.PublishWithContext(t.Context(), "", q, false, false, amqp.Publishing{Headers: amqp.Table{name + "n": "5"}}); err == nil {
		t.Error("a name of 256 bytes is sent")
	}
}
