package localstack_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onceline/onceline/localstack"
)

// natsClient is a raw SDK client with one stream, named after it, on subjects of
// its own.
type natsClient struct {
	*testing.T
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.Consumer
}

func startNATS(t *testing.T, options ...localstack.NATSOption) *localstack.NATS {
	t.Helper()
	e, err := localstack.StartNATS(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, e)
	return e
}

func closeAtEnd(t *testing.T, e localstack.Emulator) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func natsConnect(t *testing.T, url string) *natsClient {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &natsClient{T: t, nc: nc, js: js}
}

// natsStream connects and ensures stream S on s.> with consumer C.
func natsStream(t *testing.T, url string) *natsClient {
	t.Helper()
	c := natsConnect(t, url)
	var err error
	c.stream, err = c.js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	c.consumer, err = c.stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *natsClient) publish(subject, id string, wait time.Duration) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	return c.js.Publish(ctx, subject, []byte(id), jetstream.WithMsgID(id))
}

func (c *natsClient) mustPublish(subject, id string) *jetstream.PubAck {
	c.Helper()
	ack, err := c.publish(subject, id, 5*time.Second)
	if err != nil {
		c.Fatal(err)
	}
	return ack
}

func (c *natsClient) stored() uint64 {
	c.Helper()
	info, err := c.stream.Info(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return info.State.Msgs
}

func (c *natsClient) pending() int {
	c.Helper()
	info, err := c.consumer.Info(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return info.NumAckPending
}

func (c *natsClient) next() jetstream.Msg {
	c.Helper()
	m, err := c.consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// short is long enough for a healthy round trip, and short enough to wait for
// the answer that will not come.
const short = 150 * time.Millisecond

func inject(t *testing.T, e localstack.Emulator, f localstack.Fault) *localstack.Injection {
	t.Helper()
	i := e.Inject(f)
	if err := i.Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Remove)
	return i
}

func counts(t *testing.T, i *localstack.Injection, hits, applied, rejected int) {
	t.Helper()
	if i.Hits() != hits || i.Applied() != applied || i.Rejected() != rejected {
		t.Errorf("%v: hits %d applied %d rejected %d, want %d %d %d",
			i.Fault(), i.Hits(), i.Applied(), i.Rejected(), hits, applied, rejected)
	}
}

func TestNATSPublishFaults(t *testing.T) {
	e := startNATS(t)
	c := natsStream(t, e.URL())
	expect := func(step string, n uint64) {
		t.Helper()
		if got := c.stored(); got != n {
			t.Fatalf("%s: %d messages stored, want %d", step, got, n)
		}
	}

	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "s.a", Times: 1})
	c.mustPublish("s.b", "other") // Match spares it
	if _, err := c.publish("s.a", "1", short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("response lost: %v", err)
	}
	counts(t, lost, 1, 1, 0)
	expect("response lost", 2)
	if ack := c.mustPublish("s.a", "1"); !ack.Duplicate {
		t.Error("retry after a lost response is no duplicate")
	}

	gone := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseRequest, Match: "s.a", Times: 1})
	if _, err := c.publish("s.a", "2", short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("request lost: %v", err)
	}
	counts(t, gone, 1, 0, 0)
	expect("request lost", 2)

	refused := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Error, Code: 10077, Times: 1})
	_, err := c.publish("s.a", "2", time.Second)
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != 10077 || api.Code != 503 {
		t.Fatalf("error 10077: %v", err)
	}
	counts(t, refused, 1, 0, 0)
	expect("error", 2)

	late := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Delay, Delay: short, Match: "s.slow", Times: 1})
	start := time.Now()
	slow := make(chan error, 1)
	go func() { _, err := c.publish("s.slow", "slow", 5*time.Second); slow <- err }()
	if err := late.WaitHit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.mustPublish("s.a", "3"); time.Since(start) >= short {
		t.Log("the overtaking publish was slow itself")
	}
	if err := <-slow; err != nil || time.Since(start) < short {
		t.Fatalf("delayed publish: %v after %v", err, time.Since(start))
	}
	counts(t, late, 1, 1, 0)
	expect("delay", 4)

	cut := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Cut, Times: 1})
	again := c.nc.StatusChanged(nats.CONNECTED)
	if _, err := c.publish("s.a", "4", short); err == nil {
		t.Fatal("publish on a cut connection succeeded")
	}
	<-again
	counts(t, cut, 1, 0, 0)
	expect("cut", 4)

	// A rejected publish whose response is lost was not applied, and says so.
	nack := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "nowhere", Times: 1})
	if _, err := c.publish("nowhere", "5", short); err == nil {
		t.Fatal("publish without a stream succeeded")
	}
	counts(t, nack, 1, 0, 1)
}

func TestNATSBatchLosesOne(t *testing.T) {
	e := startNATS(t)
	c := natsStream(t, e.URL())
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "s.batch.7", Times: 1})
	var acks []jetstream.PubAckFuture
	for i := range 10 {
		f, err := c.js.PublishAsync("s.batch."+string(rune('0'+i)), nil)
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, f)
	}
	if err := lost.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, ack := range acks {
		if i == 7 {
			continue
		}
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			t.Fatalf("publish %d: %v", i, err)
		}
	}
	select {
	case <-acks[7].Ok():
		t.Fatal("the lost response has arrived")
	case err := <-acks[7].Err():
		t.Fatalf("the lost response became %v", err)
	default:
	}
	counts(t, lost, 1, 1, 0)
	if n := c.stored(); n != 10 {
		t.Fatalf("%d stored, want 10", n)
	}
}

func TestNATSReceiveAndSettleFaults(t *testing.T) {
	e := startNATS(t)
	c := natsStream(t, e.URL())
	for _, id := range []string{"1", "2", "3", "4"} {
		c.mustPublish("s.a", id)
	}

	// The delivery is lost: the server has handed it out all the same.
	lost := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseResponse, Match: "S.C.", Times: 1})
	if m, err := c.consumer.Next(jetstream.FetchMaxWait(short)); err == nil {
		t.Fatalf("the lost delivery arrived: %s", m.Data())
	}
	counts(t, lost, 1, 1, 0)
	if n := c.pending(); n != 1 {
		t.Fatalf("%d pending after a lost delivery, want 1", n)
	}

	ask := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.Error, Code: 409, Times: 1})
	if _, err := c.consumer.Next(jetstream.FetchMaxWait(short)); err == nil {
		t.Fatal("a refused pull got a message")
	}
	counts(t, ask, 1, 0, 0)

	m := c.next() // 2
	ack := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse, Match: ".S.C.", Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), short)
	err := m.DoubleAck(ctx)
	cancel()
	if err == nil {
		t.Fatal("the lost ack response has arrived")
	}
	counts(t, ack, 1, 1, 0)
	if n := c.pending(); n != 1 {
		t.Fatalf("%d pending after an ack whose response was lost, want 1", n)
	}

	m = c.next() // 3
	inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseRequest, Times: 1})
	ctx, cancel = context.WithTimeout(t.Context(), short)
	err = m.DoubleAck(ctx)
	cancel()
	if err == nil || c.pending() != 2 {
		t.Fatalf("a lost ack: %v, %d pending", err, c.pending())
	}
	inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.Error, Times: 1})
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	err = m.DoubleAck(ctx)
	cancel()
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Fatalf("a refused ack: %v", err)
	}

	admin := inject(t, e, localstack.Fault{Op: localstack.Admin, Kind: localstack.Error, Code: 10023, Match: "STREAM.CREATE.NEW"})
	_, err = c.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NEW", Subjects: []string{"new"}})
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != 10023 {
		t.Fatalf("a refused admin request: %v", err)
	}
	admin.Remove()
	if _, err := c.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NEW", Subjects: []string{"new"}}); err != nil {
		t.Fatal(err)
	}
	counts(t, admin, 1, 0, 0)
}

func TestNATSRestartAndKill(t *testing.T) {
	e := startNATS(t)
	url, direct := e.URL(), e.DirectURL()
	c := natsStream(t, url)
	c.mustPublish("s.a", "1")
	if err := c.next().DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	for step, again := range map[string]func(context.Context) error{"restart": e.Restart, "kill": e.Kill} {
		back := c.nc.StatusChanged(nats.CONNECTED)
		if err := again(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-back
		if e.URL() != url || e.DirectURL() != direct {
			t.Fatalf("%s: address moved to %s, %s", step, e.URL(), e.DirectURL())
		}
		if ack := c.mustPublish("s.a", "1"); !ack.Duplicate {
			t.Errorf("%s: the window forgot the ID", step)
		}
		d := natsConnect(t, e.DirectURL())
		if _, err := d.js.Stream(t.Context(), "S"); err != nil {
			t.Errorf("%s: direct: %v", step, err)
		}
	}
}

func TestNATSFreeze(t *testing.T) {
	e := startNATS(t)
	c := natsStream(t, e.URL())
	e.Freeze()
	if _, err := c.publish("s.a", "1", short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("publish through a frozen proxy: %v", err)
	}
	if c.nc.Status() != nats.CONNECTED {
		t.Fatalf("frozen connection is %v", c.nc.Status())
	}
	e.Thaw()
	// What was held back has moved on.
	if ack := c.mustPublish("s.a", "1"); !ack.Duplicate {
		t.Error("the publish held back is not there")
	}
	back := c.nc.StatusChanged(nats.CONNECTED)
	if n := e.Disconnect(); n != 1 {
		t.Fatalf("%d connections closed, want 1", n)
	}
	<-back
	c.mustPublish("s.a", "2")
}

// TestNATSSlow: through a proxy too, and the connection lives.
func TestNATSSlow(t *testing.T) {
	e := startNATS(t)
	c := natsStream(t, e.URL())
	e.Slow(localstack.Slowness{Delay: 60 * time.Millisecond})
	begin := time.Now()
	c.mustPublish("s.a", "1")
	if took := time.Since(begin); took < 120*time.Millisecond || c.nc.Status() != nats.CONNECTED {
		t.Errorf("a publish took %s with 60 ms each way; the connection is %v", took, c.nc.Status())
	}
	e.Slow(localstack.Slowness{})
	c.mustPublish("s.a", "2")
}

func TestNATSOptions(t *testing.T) {
	dir := t.TempDir()
	e := startNATS(t, localstack.NATSUser("me", "secret"), localstack.NATSMaxPayload(2000), localstack.NATSDataDir(dir), localstack.NATSSyncAlways())
	if _, err := nats.Connect(e.URL()); !errors.Is(err, nats.ErrAuthorization) {
		t.Fatalf("without a password: %v", err)
	}
	nc, err := nats.Connect(e.URL(), nats.UserInfo("me", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.MaxPayload() != 2000 {
		t.Errorf("max payload %d", nc.MaxPayload())
	}
	token := startNATS(t, localstack.NATSToken("secret"))
	tc, err := nats.Connect(token.URL(), nats.Token("secret"))
	if err != nil {
		t.Fatal(err)
	}
	tc.Close()
}

func TestNATSLargeFrames(t *testing.T) {
	e := startNATS(t)
	c := natsStream(t, e.URL())
	inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseRequest, Match: "never"})
	body := make([]byte, 900<<10)
	for i := range body {
		body[i] = "\r\nPUB a b 3"[i%11]
	}
	for range 3 {
		if _, err := c.js.Publish(t.Context(), "s.big", body); err != nil {
			t.Fatal(err)
		}
		m := c.next()
		if string(m.Data()) != string(body) {
			t.Fatal("body has changed on its way")
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
