package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a broker with one topic and one subscription, on a clock that the
// test moves.
type bench struct {
	t     testing.TB
	clock *Clock
	b     *Broker
	conn  broker.Conn
	pub   broker.Publisher
	rcv   broker.Receiver
}

func newBench(t testing.TB, e broker.Entity, opts ...Option) *bench {
	t.Helper()
	clock := NewClock()
	b := New(append([]Option{WithClock(clock)}, opts...)...)
	t.Cleanup(b.Close)
	conn := b.Conn()
	e.Topic, e.Subscription = "orders", "orders/billing"
	if err := conn.Ensure(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	x := &bench{t: t, clock: clock, b: b, conn: conn}
	x.pub, x.rcv = x.publisher("orders"), x.receiver("orders/billing")
	return x
}

func (x *bench) publisher(topic string) broker.Publisher {
	x.t.Helper()
	p, err := x.conn.OpenPublisher(x.t.Context(), topic)
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

func (x *bench) receiver(subscription string) broker.Receiver {
	x.t.Helper()
	r, err := x.conn.OpenReceiver(x.t.Context(), subscription)
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

func message(id string) broker.Message { return broker.Message{ID: id, Body: []byte("body of " + id)} }

func (x *bench) publish(ids ...string) []broker.Receipt {
	x.t.Helper()
	msgs := make([]broker.Message, len(ids))
	for i, id := range ids {
		msgs[i] = message(id)
	}
	return x.send(msgs...)
}

func (x *bench) send(msgs ...broker.Message) []broker.Receipt {
	x.t.Helper()
	receipts, err := x.pub.Publish(x.t.Context(), msgs...)
	if err != nil {
		x.t.Fatal(err)
	}
	return receipts
}

// available receives what is ready now, nothing if that is nothing.
func (x *bench) available(r broker.Receiver, max int) []broker.Delivery {
	x.t.Helper()
	return x.availableFrom(r, "orders/billing", max)
}

func (x *bench) availableFrom(r broker.Receiver, subscription string, max int) []broker.Delivery {
	x.t.Helper()
	s, err := x.b.Stats(subscription)
	if err != nil {
		x.t.Fatal(err)
	}
	if s.Ready == 0 {
		return nil
	}
	ds, err := r.Receive(x.t.Context(), max)
	if err != nil {
		x.t.Fatal(err)
	}
	return ds
}

// one receives the one message that must be ready.
func (x *bench) one(r broker.Receiver) *broker.Delivery {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 10*time.Second)
	defer cancel()
	ds, err := r.Receive(ctx, 1)
	if err != nil || len(ds) != 1 {
		x.t.Fatalf("received %d, %v", len(ds), err)
	}
	return &ds[0]
}

func ids(ds []broker.Delivery) string {
	s := ""
	for i := range ds {
		s += ds[i].ID + " "
	}
	return s
}

func (x *bench) settled(o broker.Outcome, err error) {
	x.t.Helper()
	if err != nil || o.State != broker.Confirmed {
		x.t.Fatalf("outcome %s, %v", o.State, err)
	}
}

func (x *bench) stats() Stats {
	x.t.Helper()
	s, err := x.b.Stats("orders/billing")
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

func (x *bench) want(what string, got, want any) {
	x.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
