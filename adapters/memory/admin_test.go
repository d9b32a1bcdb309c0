package memory

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/bubbletest"
)

func TestEnsure(t *testing.T) {
	full := broker.Entity{Topic: "t", Subscription: "t/s", Window: time.Minute, Lease: time.Second, MaxDeliveries: 3,
		DeadLetter: "dead", Ordered: true, Partitions: 1, MaxBody: 100}
	with := func(change func(*broker.Entity)) broker.Entity {
		e := full
		change(&e)
		return e
	}
	for _, c := range []struct {
		name   string
		wish   broker.Entity
		err    error
		values []string // what a conflict names
	}{
		{"again", full, nil, nil},
		{"without wishes", broker.Entity{Topic: "t", Subscription: "t/s"}, nil, nil},
		{"topic alone", broker.Entity{Topic: "t", Window: time.Minute}, nil, nil},
		{"window", with(func(e *broker.Entity) { e.Window = time.Hour }), broker.ErrConflict, []string{"1m0s", "1h0m0s"}},
		{"body", with(func(e *broker.Entity) { e.MaxBody = 101 }), broker.ErrConflict, []string{"100", "101"}},
		{"lease", with(func(e *broker.Entity) { e.Lease = 2 * time.Second }), broker.ErrConflict, []string{"1s", "2s"}},
		{"deliveries", with(func(e *broker.Entity) { e.MaxDeliveries = 4 }), broker.ErrConflict, []string{"3", "4"}},
		{"dead letter", with(func(e *broker.Entity) { e.DeadLetter = "grave" }), broker.ErrConflict, []string{"dead", "grave"}},
		{"order", broker.Entity{Topic: "dead", Subscription: "dead/s", Ordered: true}, broker.ErrConflict, []string{"false", "true"}},
		{"partitions", with(func(e *broker.Entity) { e.Partitions = 2 }), broker.ErrUnsupported, nil},
		{"no topic", broker.Entity{}, broker.ErrInvalid, nil},
		{"slash", broker.Entity{Topic: "a/b"}, broker.ErrInvalid, nil},
		{"control", broker.Entity{Topic: "a\n"}, broker.ErrInvalid, nil},
		{"other topic's", broker.Entity{Topic: "t", Subscription: "dead/x"}, broker.ErrInvalid, nil},
		{"no prefix", broker.Entity{Topic: "t", Subscription: "s"}, broker.ErrInvalid, nil},
		{"nothing after the prefix", broker.Entity{Topic: "t", Subscription: "t/"}, broker.ErrInvalid, nil},
		{"two slashes", broker.Entity{Topic: "t", Subscription: "t/a/b"}, broker.ErrInvalid, nil},
		{"own grave", broker.Entity{Topic: "t", Subscription: "t/x", DeadLetter: "t"}, broker.ErrInvalid, nil},
		{"bad grave", broker.Entity{Topic: "t", Subscription: "t/x", DeadLetter: "a/b"}, broker.ErrInvalid, nil},
		{"wish without a subscription", broker.Entity{Topic: "t", Lease: time.Second}, broker.ErrInvalid, nil},
		{"negative", broker.Entity{Topic: "t", Window: -1}, broker.ErrInvalid, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := New()
			defer b.Close()
			conn := b.Conn()
			must(t, conn.Ensure(t.Context(), full))
			must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/s"}))
			err := conn.Ensure(t.Context(), c.wish)
			if !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			for _, v := range c.values {
				if !strings.Contains(err.Error(), v) {
					t.Fatalf("%q doesn't name %s", err, v)
				}
			}
			if c.err != nil && len(b.topics)+len(b.subs) != 4 {
				t.Fatal("a wish that failed made something")
			}
		})
	}
}

func TestFanOut(t *testing.T) {
	x := newBench(t, broker.Entity{})
	x.publish("before")
	must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/audit"}))
	audit := x.receiver("orders/audit")
	x.publish("after", "last")
	ack(t, x.available(x.rcv, 1))
	x.want("first", ids(x.available(x.rcv, 9)), "after last ")
	x.want("second, from its making on", ids(x.availableFrom(audit, "orders/audit", 9)), "after last ")

	// A topic that nobody reads yet keeps its messages for the first who does.
	must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "new"}))
	x.pub = x.publisher("new")
	x.publish("a", "b")
	must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "new", Subscription: "new/s"}))
	x.want("kept", ids(x.availableFrom(x.receiver("new/s"), "new/s", 9)), "a b ")
}

func TestOpenWhatIsNotThere(t *testing.T) {
	x := newBench(t, broker.Entity{})
	_, err := x.conn.OpenPublisher(t.Context(), "nothing")
	_, err2 := x.conn.OpenReceiver(t.Context(), "orders")
	if !errors.Is(err, broker.ErrNotFound) || !errors.Is(err2, broker.ErrNotFound) {
		t.Fatal(err, err2)
	}
	_, err = x.conn.OpenReceiver(t.Context(), "orders/billing", broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, true }))
	if !errors.Is(err, broker.ErrUnsupported) {
		t.Fatal(err)
	}
	if _, err := x.b.Stats("nothing"); !errors.Is(err, broker.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestDelete(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		e := broker.Entity{Topic: "orders", Subscription: "orders/billing", DeadLetter: "dead", Ordered: true}
		x := newBench(t, e)
		x.send(broker.Message{ID: "a", Key: "k"}, broker.Message{ID: "b", Key: "k"}, broker.Message{ID: "c"})
		held := x.one(x.rcv)
		other := x.receiver("orders/billing")
		x.one(other)
		ended := make(chan error)
		go func() {
			_, err := other.Receive(context.Background(), 1)
			ended <- err
		}()
		synctest.Wait()
		must(t, x.conn.Delete(t.Context(), e))
		must(t, x.conn.Delete(t.Context(), e))
		if err := <-ended; !errors.Is(err, broker.ErrNotFound) {
			t.Fatal(err)
		}
		if len(x.b.topics)+len(x.b.subs)+len(x.b.due) != 0 {
			t.Fatal("something is left")
		}
		if o, _ := held.Ack(t.Context()); o.State != broker.LeaseLost {
			t.Fatal(o)
		}
		if r, err := x.pub.Publish(t.Context(), message("d")); !errors.Is(err, broker.ErrNotFound) || r[0].Verdict != broker.Refused {
			t.Fatal(r, err)
		}
		// Made anew it is another one, and those who have it open go on with it.
		must(t, x.conn.Ensure(t.Context(), e))
		x.want("a new memory", x.publish("a")[0].Verdict, broker.Stored)
		x.want("the new one", ids(x.available(x.rcv, 9)), "a ")

		// A topic stays while somebody else reads it.
		must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/audit", DeadLetter: "dead"}))
		must(t, x.conn.Delete(t.Context(), e))
		if x.b.topics["orders"] == nil || x.b.topics["dead"] == nil || x.b.subs["orders/audit"] == nil {
			t.Fatal("too much is gone")
		}
		must(t, x.conn.Delete(t.Context(), broker.Entity{Topic: "orders"}))
		if x.b.topics["orders"] != nil || len(x.b.subs) != 0 {
			t.Fatal("too little is gone")
		}
	})
}

func TestOpenByURL(t *testing.T) {
	b := Named(t.Name())
	defer b.Close()
	for _, c := range []struct {
		url string
		err error
		hid string
	}{
		{"mem://opened?window=1m&lease=5s&max-deliveries=3&max-body=10", nil, ""},
		{"mem://opened", nil, ""},
		{"mem://opened/?lease=5s", nil, ""},
		{"mem://opened?lease=6s", broker.ErrConflict, ""},
		{"mem://opened?lease=secret", broker.ErrInvalid, "secret"},
		{"mem://opened?lease=-5s", broker.ErrInvalid, ""},
		{"mem://opened?max-body=0", broker.ErrInvalid, ""},
		{"mem://opened?lease=5s&lease=5s", broker.ErrInvalid, ""},
		{"mem://opened?leese=secret", broker.ErrInvalid, "secret"},
		{"mem://opened?%zz", broker.ErrInvalid, "zz"},
		{"mem://user:secret@opened", broker.ErrInvalid, "secret"},
		{"mem://opened/path", broker.ErrInvalid, ""},
		{"mem://opened#f", broker.ErrInvalid, ""},
		{"mem://", broker.ErrInvalid, ""},
	} {
		conn, err := broker.Open(t.Context(), c.url)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Fatalf("%s: %v, want %v", c.url, err, c.err)
		}
		if c.hid != "" && strings.Contains(err.Error(), c.hid) {
			t.Fatalf("%s: the error shows %q: %v", c.url, c.hid, err)
		}
		if err != nil {
			continue
		}
		var got *Broker
		if !conn.As(&got) || got != Named("opened") {
			t.Fatal("another broker")
		}
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "t", Subscription: "t/s", Window: time.Minute, Lease: 5 * time.Second, MaxDeliveries: 3, MaxBody: 10}))
		must(t, conn.Close(t.Context()))
	}
	opened := Named("opened")
	opened.Close()
	if Named("opened") == opened {
		t.Fatal("a closed broker kept its name")
	}
	Named("opened").Close()
}

func TestAs(t *testing.T) {
	x := newBench(t, broker.Entity{})
	for _, h := range []interface{ As(any) bool }{x.conn, x.pub, x.rcv} {
		var b *Broker
		var s string
		if !h.As(&b) || b != x.b || h.As(&s) {
			t.Fatalf("%T", h)
		}
	}
	x.publish("a")
	if d := x.one(x.rcv); d.As(new(*Broker)) {
		t.Fatal("a delivery has no handle of an SDK")
	}
	if d, ok := driver.Unwrap(x.conn); !ok || !d.(driver.Clock).Now().Equal(x.clock.Now()) {
		t.Fatal("the fence has another clock")
	}
}

// TestBoundary: each entry has an answer and says what it means. That no claim is
// missing is held in cmd/onceline/targets, for all adapters.
func TestBoundary(t *testing.T) {
	b := Boundary()
	if len(b.Entries) == 0 {
		t.Fatal("no entries")
	}
	for claim, e := range b.Entries {
		if e.Declared == "" || e.Note == "" {
			t.Errorf("%s: %+v", claim, e)
		}
	}
}
