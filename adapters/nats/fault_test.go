package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// faulty is a server behind a proxy that can break every request.
func faulty(t *testing.T) *localstack.NATS {
	t.Helper()
	s, err := localstack.StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, s) })
	return s
}

// faultyEnds is ends behind faulty.
func faultyEnds(t *testing.T, change ...func(*broker.Entity)) (*localstack.NATS, broker.Conn, broker.Entity, broker.Publisher, broker.Receiver) {
	t.Helper()
	s := faulty(t)
	c := dialTo(t, s.URL())
	e := entity(t, change...)
	ensure(t, c, e)
	return s, c, e, publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
}

func inject(t *testing.T, s *localstack.NATS, f localstack.Fault) *localstack.Injection {
	t.Helper()
	i := s.Inject(f)
	if err := i.Err(); err != nil {
		t.Fatal(err)
	}
	return i
}

func applied(t *testing.T, i *localstack.Injection) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := i.WaitApplied(ctx); err != nil {
		t.Fatal(err)
	}
}

// connected waits until c is back after a disconnect.
func connected(t *testing.T, c broker.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := connOf(t, c).await(ctx, nil); err != nil {
		t.Fatal(err)
	}
}

func disconnected(t *testing.T, c broker.Conn) {
	t.Helper()
	inner := connOf(t, c)
	until(t, "the disconnect", func() bool { return inner.link.Load() == nil })
}

// A pull that the server never saw is noticed and made again.
func TestPullLost(t *testing.T) {
	t.Parallel()
	s, _, _, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 400 * time.Millisecond })
	i := inject(t, s, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseRequest, Times: 1})
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	if i.Hits() != 1 {
		t.Error("no fault")
	}
}

// A pull is answered with an error that heals, and with one that doesn't.
func TestPullErrors(t *testing.T) {
	t.Parallel()
	s, _, _, p, r := faultyEnds(t)
	inject(t, s, localstack.Fault{Op: localstack.Receive, Kind: localstack.Error, Code: 503, Times: 2})
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	inject(t, s, localstack.Fault{Op: localstack.Receive, Kind: localstack.Error, Code: 400, Times: 1})
	_, err := r.Receive(t.Context(), 1)
	wantErr(t, err, broker.ErrRefused)
}

func TestConsumerDeletedUnderReceive(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"consumer", "stream"} {
		t.Run(what, func(t *testing.T) {
			c, e, _, r := ends(t, func(e *broker.Entity) { e.Lease = time.Second })
			out := make(chan error, 1)
			go func() {
				_, err := r.Receive(context.Background(), 1)
				out <- err
			}()
			until(t, "the pull to wait", func() bool { return waitingPulls(t, c, e) == 1 })
			stream, consumer, _ := splitSubscription(e.Subscription)
			js := connOf(t, c).js
			var err error
			if what == "stream" {
				err = js.DeleteStream(t.Context(), stream)
			} else {
				err = js.DeleteConsumer(t.Context(), stream, consumer)
			}
			if err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-out:
				wantErr(t, err, broker.ErrNotFound)
			case <-time.After(4 * time.Second):
				t.Fatal("Receive doesn't notice")
			}
			_, err = r.Receive(t.Context(), 1)
			wantErr(t, err, broker.ErrNotFound)
		})
	}
}

// A clean restart: Receive goes on by itself, what was held comes again after
// its lease, dedup IDs and settles are kept.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	s, c, _, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 800 * time.Millisecond })
	publish(t, p, message("acked"), message("held"))
	ds := receiveAll(t, r, 2)
	ack(t, ds[0])
	out := make(chan []broker.Delivery, 1)
	go func() {
		ds, err := r.Receive(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		out <- ds
	}()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case again := <-out:
		if len(again) != 1 || again[0].ID != "held" || again[0].Attempt.Number != 2 {
			t.Errorf("after the restart came %+v", again)
		}
		ack(t, again...)
	case <-time.After(10 * time.Second):
		t.Fatal("Receive doesn't come back")
	}
	connected(t, c)
	if rs := publish(t, p, message("acked")); rs[0].Verdict != broker.Duplicate {
		t.Errorf("a known ID: %v", rs[0].Verdict)
	}
}

// The client is closed by its owner: calls end with an error that says so.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	nc, err := natsgo.Connect(shared.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(nc)
	if err != nil {
		t.Fatal(err)
	}
	e := entity(t)
	ensure(t, c, e)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	out := make(chan error, 1)
	go func() {
		_, err := r.Receive(context.Background(), 1)
		out <- err
	}()
	until(t, "the pull to wait", func() bool { return waitingPulls(t, c, e) == 1 })
	nc.Close()
	select {
	case err := <-out:
		wantErr(t, err, broker.ErrUnavailable, natsgo.ErrConnectionClosed)
	case <-time.After(5 * time.Second):
		t.Fatal("Receive goes on")
	}
	_, err = p.Publish(t.Context(), message("x"))
	wantErr(t, err, broker.ErrUnavailable)
	closing(t, c)
	if _, err := New(nc); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("New with a closed client: %v", err)
	}
}

// A black hole: every call ends with its context, Close too, and leaves nothing
// (TestMain looks for goroutines).
func TestBlackHole(t *testing.T) {
	t.Parallel()
	s, c, _, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	publish(t, p, message("held"))
	d := receiveOne(t, r)
	s.Freeze()
	short := func(call func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		call(ctx)
		if took := time.Since(begin); took > 600*time.Millisecond {
			t.Errorf("took %v", took)
		}
	}
	short(func(ctx context.Context) {
		rs, err := p.Publish(ctx, messages(3, "m")...)
		if rs[2].Verdict != broker.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish: %v %v", rs[2].Verdict, err)
		}
	})
	short(func(ctx context.Context) {
		if _, err := r.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("receive: %v", err)
		}
	})
	short(func(ctx context.Context) {
		if o, err := d.Ack(ctx); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Errorf("ack: %v %v", o.State, err)
		}
	})
	short(func(ctx context.Context) {
		if err := c.Ensure(ctx, broker.Entity{Topic: "x"}); !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("ensure: %v", err)
		}
	})
	short(func(ctx context.Context) { _ = c.Close(ctx) })
	s.Thaw()
}
