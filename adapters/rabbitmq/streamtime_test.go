package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/rabbitmq"
	emulator "github.com/onceline/onceline/localstack/rabbitmq/stream"
)

// An hour in which nothing but heartbeats passes: the connections live, and a
// message that was given back for that long comes to the minute.
func TestStreamAnHourOfSilence(t *testing.T) {
	t.Parallel()
	bubbletest.Run(t, func(t *testing.T) {
		s := emulator.New()
		ctx := context.Background()
		c := dialInMemory(t, s, nil)
		e := broker.Entity{Topic: "s", Subscription: "s/n"}
		if err := c.Ensure(ctx, e); err != nil {
			t.Fatal(err)
		}
		p, err := c.OpenPublisher(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		publishAll(t, p, streamMessages(0, 1)...)
		r, err := c.OpenReceiver(ctx, "s/n")
		if err != nil {
			t.Fatal(err)
		}
		ds, err := r.Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := ds[0].Nack(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		ds, err = r.Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < time.Hour || took > time.Hour+time.Minute || ds[0].Attempt.Number != 2 {
			t.Errorf("attempt %d after %s", ds[0].Attempt.Number, took)
		}
		ackAll(t, r, ds)
		publishAll(t, p, streamMessages(1, 1)...)
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A consumer that is frozen loses its turn after two heartbeats.
func TestStreamSilentReceiverLosesItsTurn(t *testing.T) {
	t.Parallel()
	bubbletest.Run(t, func(t *testing.T) {
		ctx := context.Background()
		s := emulator.New()
		mute := make(chan struct{})
		c, frozen := dialInMemory(t, s, nil), dialInMemory(t, s, mute)
		e := broker.Entity{Topic: "s", Subscription: "s/n"}
		if err := c.Ensure(ctx, e); err != nil {
			t.Fatal(err)
		}
		publishAll(t, streamPub(t, c, e), streamMessages(0, 1)...)
		held, err := streamRcv(t, frozen, e).Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		next := streamRcv(t, c, e)
		close(mute)
		begun := time.Now()
		ds, err := next.Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); ds[0].ID != held[0].ID || took < 10*time.Second || took > 40*time.Second {
			t.Errorf("%q came after %s, with heartbeats of 10 s", ds[0].ID, took)
		}
		ackAll(t, next, ds)
		for _, c := range []broker.Conn{c, frozen} {
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A process that stood still for two heartbeats has lost its connection, whatever it
// has read of that: the first that asks or writes ends it. One that writes isn't silent.
func TestStreamLinkAfterASilence(t *testing.T) {
	t.Parallel()
	silentFor := func(d time.Duration) *streamLink {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		l := &streamLink{nc: here, beat: 10 * time.Second, dead: make(chan struct{})}
		l.said.Store(time.Now().Add(-d).UnixNano())
		return l
	}
	if l := silentFor(19 * time.Second); l.lost() {
		t.Errorf("before two heartbeats have passed: %v", l.why())
	}
	if l := silentFor(21 * time.Second); !l.lost() || !errors.Is(l.why(), errMute) {
		t.Error("still taken for alive after two heartbeats of silence")
	}
	l := silentFor(21 * time.Second)
	if err := l.send(context.Background(), []byte("x")); !errors.Is(err, errMute) || !l.lost() {
		t.Errorf("send after two heartbeats of silence: %v", err)
	}
	l = silentFor(21 * time.Second)
	l.write.Lock()
	if l.lost() {
		t.Error("lost while somebody writes")
	}
	l.write.Unlock()
}

// A broker that takes nothing any more: each call ends with its context, the
// publishes Unknown or Refused, and Close with its own.
func TestStreamStuckBroker(t *testing.T) {
	t.Parallel()
	bubbletest.Run(t, func(t *testing.T) {
		s := emulator.New(emulator.Heartbeat(0))
		c := dialInMemory(t, s, nil)
		e := broker.Entity{Topic: "s", Subscription: "s/n"}
		if err := c.Ensure(context.Background(), e); err != nil {
			t.Fatal(err)
		}
		p, r := streamPub(t, c, e), streamRcv(t, c, e)
		publishAll(t, p, streamMessages(0, 2)...)
		ds, err := r.Receive(t.Context(), 2)
		if err != nil || len(ds) != 2 {
			t.Fatal(ds, err)
		}
		for _, op := range []fault.Op{fault.Publish, fault.Settle, fault.Admin} {
			s.Faults().Inject(fault.Fault{Op: op, Kind: fault.Delay, Delay: 1000 * time.Hour}, nil)
		}
		bounded := func(what string, f func(ctx context.Context)) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			begun := time.Now()
			f(ctx)
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("%s took %s", what, took)
			}
		}
		for _, want := range []broker.Verdict{broker.Unknown, broker.Refused} {
			bounded("publish", func(ctx context.Context) {
				if rs, _ := p.Publish(ctx, streamMessages(5, 1)...); rs[0].Verdict != want {
					t.Errorf("%s: %v, want %s", rs[0].Verdict, rs[0].Err, want)
				}
			})
		}
		bounded("ack", func(ctx context.Context) {
			if o, _ := ds[0].Ack(ctx); o.State != broker.Unknown {
				t.Errorf("ack: %s", o.State)
			}
		})
		bounded("receive", func(ctx context.Context) {
			if ds, err := r.Receive(ctx, 1); err == nil {
				t.Errorf("%v came", idsOf(ds))
			}
		})
		bounded("close the publisher", func(ctx context.Context) { _ = p.Close(ctx) })
		bounded("close the receiver", func(ctx context.Context) { _ = r.Close(ctx) })
		bounded("close", func(ctx context.Context) { _ = c.Close(ctx) })
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// dialInMemory opens a connection without a network. What it writes is lost once
// mute is closed.
func dialInMemory(t *testing.T, s *emulator.Server, mute chan struct{}) broker.Conn {
	t.Helper()
	c, err := Dial(context.Background(), "rabbitmq://127.0.0.1/?queue=stream", quiet(), Dialer(func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go s.ServeConn(there)
		return &muted{Conn: here, mute: mute}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// muted is a connection that loses what is written once mute is closed.
type muted struct {
	net.Conn
	mute chan struct{}
}

func (m *muted) Write(b []byte) (int, error) {
	select {
	case <-m.mute:
		return len(b), nil
	default:
		return m.Conn.Write(b)
	}
}

// Queues and streams are served on one port.
func TestStreamAndQueueOnOnePort(t *testing.T) {
	t.Parallel()
	streams := emulator.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := rabbitmq.New(rabbitmq.WithStreams(streams))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	port := l.Addr().(*net.TCPAddr).Port
	for _, url := range []string{
		fmt.Sprintf("rabbitmq://127.0.0.1:%d/", port),
		fmt.Sprintf("rabbitmq://127.0.0.1:%d/?queue=stream&stream-port=%d", port, port),
	} {
		c, err := Dial(t.Context(), url, quiet())
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		e := broker.Entity{Topic: "orders", Subscription: "orders/billing"}
		if err := c.Ensure(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		p, err := c.OpenPublisher(t.Context(), e.Topic)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), streamMessages(0, 1)...); err != nil {
			t.Error(err)
		}
		r, err := c.OpenReceiver(t.Context(), e.Subscription)
		if err != nil {
			t.Fatal(err)
		}
		if ds := receiveN(t, r, 1); ds[0].ID != "m0" {
			t.Errorf("%s: %q came", url, ds[0].ID)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := streams.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
