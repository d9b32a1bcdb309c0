package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

// Close ends a Receive that waits.
func TestCloseEndsReceive(t *testing.T) {
	t.Parallel()
	c, e, _, r := ends(t)
	out := make(chan error, 1)
	go func() {
		_, err := r.Receive(context.Background(), 1)
		out <- err
	}()
	until(t, "the pull to wait", func() bool { return waitingPulls(t, c, e) == 1 })
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-out:
		wantErr(t, err, broker.ErrClosed)
	case <-time.After(5 * time.Second):
		t.Fatal("Receive goes on")
	}
	until(t, "the pull to be dropped", func() bool { return waitingPulls(t, c, e) == 0 })
}

func waitingPulls(t testing.TB, c broker.Conn, e broker.Entity) int {
	t.Helper()
	stream, consumer, _ := splitSubscription(e.Subscription)
	k, err := connOf(t, c).js.Consumer(t.Context(), stream, consumer)
	if err != nil {
		t.Fatal(err)
	}
	return k.CachedInfo().NumWaiting
}

func TestAs(t *testing.T) {
	t.Parallel()
	c, _, p, r := ends(t)
	var nc *natsgo.Conn
	var js jetstream.JetStream
	if !c.As(&nc) || nc == nil || !c.As(&js) || js == nil || !p.As(&nc) || !r.As(&js) {
		t.Error("no client")
	}
	var s *string
	if c.As(&s) {
		t.Error("a string?")
	}
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	var m *natsgo.Msg
	if !d.As(&m) || string(m.Data) != "body of x" {
		t.Error("no message")
	}
	if d.As(&s) {
		t.Error("a string?")
	}
}

// A hundred opens and closes leave no goroutine (TestMain) and no subscription.
func TestOpenClose(t *testing.T) {
	base := shared.NumSubscriptions()
	e := entity(t)
	first := dialShared(t)
	ensure(t, first, e)
	for range 100 {
		c, err := Dial(t.Context(), shared.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, message("x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if ds, err := r.Receive(ctx, 1); err == nil {
			ack(t, ds...)
		}
		cancel()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), message("y")); !errors.Is(err, broker.ErrClosed) {
			t.Fatalf("publish after close: %v", err)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Those of stream and consumer stay.
	until(t, "subscriptions to go", func() bool { return shared.NumSubscriptions() <= base+16 })
}

// Through New the client is the caller's and stays open.
func TestNewLeavesClientOpen(t *testing.T) {
	t.Parallel()
	nc, err := natsgo.Connect(shared.ClientURL(), natsgo.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	subs := nc.NumSubscriptions()
	c, err := New(nc)
	if err != nil {
		t.Fatal(err)
	}
	e := entity(t)
	ensure(t, c, e)
	publish(t, publisherOf(t, c, e.Topic), message("x"))
	ack(t, *receiveOne(t, receiverOf(t, c, e.Subscription)))
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !nc.IsConnected() {
		t.Error("the client is closed")
	}
	// One may be the SDK's own, for its requests.
	if n := nc.NumSubscriptions(); n > subs+1 {
		t.Errorf("%d subscriptions left", n-subs)
	}
	if _, err := New(nc, ClientOptions(natsgo.Name("x"))); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("client options to New: %v", err)
	}
	if _, err := New(nil); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
}

// In a domain, the API and the acks have other subjects.
func TestDomain(t *testing.T) {
	t.Parallel()
	s, err := start(t.TempDir(), 0, func(o *server.Options) { o.JetStreamDomain = "hub" })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	c := dialTo(t, s.ClientURL(), Domain("hub"))
	e := entity(t)
	ensure(t, c, e)
	rs := publish(t, publisherOf(t, c, e.Topic), message("x"))
	if rs[0].Verdict != broker.Stored || rs[0].Position.Offset != 1 {
		t.Errorf("%+v", rs[0])
	}
	d := receiveOne(t, receiverOf(t, c, e.Subscription))
	if d.Attempt.Number != 1 || d.Position.Offset != 1 {
		t.Errorf("%+v", d)
	}
	ack(t, *d)
}
