package memory

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestNackDelay(t *testing.T) {
	x := newBench(t, broker.Entity{})
	x.publish("a", "b")
	x.settled(x.one(x.rcv).Nack(t.Context(), time.Minute))
	x.settled(x.one(x.rcv).Nack(t.Context(), 0))
	x.want("at once", ids(x.available(x.rcv, 9)), "b ")
	x.clock.Advance(time.Minute - 1)
	x.want("delayed", x.stats().Delayed, 1)
	x.want("before", ids(x.available(x.rcv, 1)), "b ") // its lease has ended
	x.clock.Advance(1)
	d := x.one(x.rcv)
	x.want("after", d.ID, "a")
	x.want("attempt", d.Attempt.Number, 2)
	x.settled(d.Nack(t.Context(), math.MaxInt64))
	x.clock.Advance(1000 * time.Hour)
	x.want("for ever", x.stats().Delayed, 1)
}

func TestExtend(t *testing.T) {
	x := newBench(t, broker.Entity{Lease: 10 * time.Second})
	x.publish("a")
	d := x.one(x.rcv)
	for _, step := range []struct{ delay, lease time.Duration }{{0, 10 * time.Second}, {time.Minute, time.Minute}, {time.Second, time.Second}} {
		o, err := d.Extend(t.Context(), step.delay)
		x.settled(o, err)
		x.want("lease", o.Lease.Sub(x.clock.Now()), step.lease)
		x.clock.Advance(step.lease - 1)
		x.want("held", x.stats().InFlight, 1)
	}
	x.clock.Advance(1)
	x.want("given back", x.stats().Ready, 1)
	if o, err := d.Extend(t.Context(), 0); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Fatal(o, err)
	}
}

// The broker itself refuses who has no lease any more: the fence is off.
func TestStaleSettleIsRefusedByTheBroker(t *testing.T) {
	for _, action := range []broker.Action{broker.Ack, broker.Nack, broker.Extend, broker.DeadLetter} {
		t.Run(action.String(), func(t *testing.T) {
			x := newBench(t, broker.Entity{DeadLetter: "dead"})
			view, err := driver.Unfenced(x.conn)
			must(t, err)
			stale, err := view.OpenReceiver(t.Context(), "orders/billing")
			must(t, err)
			x.publish("a")
			settle := func(d *broker.Delivery) broker.State {
				s := []broker.Settlement{{Delivery: d, Action: action}}
				if err := d.Handle.Settle(t.Context(), s); err == nil {
					t.Fatal("a stale settle without an error")
				}
				return s[0].Outcome.State
			}
			first := x.one(stale)
			x.clock.Advance(30 * time.Second)
			x.want("with nobody", settle(first), broker.LeaseLost)
			second := x.one(x.rcv)
			x.want("with somebody else", settle(first), broker.LeaseLost)
			x.want("undisturbed", x.stats(), Stats{InFlight: 1})
			x.settled(second.Ack(t.Context()))
			x.want("with nobody any more", settle(first), broker.LeaseLost)
		})
	}
}

func TestSettleAgain(t *testing.T) {
	x := newBench(t, broker.Entity{DeadLetter: "dead"})
	for _, action := range []broker.Action{broker.Ack, broker.Nack, broker.DeadLetter} {
		x.publish(action.String())
		d := x.one(x.rcv)
		s := []broker.Settlement{{Delivery: d, Action: action}}
		lost := x.b.Inject(Fault{Op: Settle, Kind: LoseResponse, Times: 1})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = lost.WaitApplied(context.Background())
			cancel()
		}()
		err := x.rcv.Settle(ctx, s)
		x.want("lost", s[0].Outcome.State, broker.State(broker.Unknown))
		if !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if action == broker.Nack { // by now it is somebody else's
			x.settled(x.one(x.rcv).Ack(t.Context()))
		}
		must(t, x.rcv.Settle(t.Context(), s))
		x.want("asked", s[0].Outcome.State, broker.Confirmed)
	}
	x.want("all done", x.stats(), Stats{})
}

// Close ends the epoch: nothing is asked through a handle of before, for what it
// spoke of may be somebody else's.
func TestSettleAgainAfterClose(t *testing.T) {
	x := newBench(t, broker.Entity{})
	x.publish("a", "b")
	ds := x.available(x.rcv, 2)
	x.lose(Settle, func(ctx context.Context) { _, _ = ds[0].Ack(ctx) })
	x.settled(ds[1].Ack(t.Context()))
	must(t, x.rcv.Close(t.Context()))
	if o, err := ds[0].Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrLeaseLost) {
		t.Fatal(o, err)
	}
	x.settled(ds[1].Ack(t.Context()))
}

func TestSettleWithAnEndedContextSendsNothing(t *testing.T) {
	x := newBench(t, broker.Entity{})
	x.publish("a")
	d := x.one(x.rcv)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o, err := d.Ack(ctx); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnavailable) {
		t.Fatal(o, err)
	}
	x.want("held", x.stats().InFlight, 1)
	x.settled(d.Nack(t.Context(), 0)) // another action is still possible
}

func TestDeadLetter(t *testing.T) {
	dead := func(x *bench) []broker.Delivery {
		must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/read"}))
		return x.availableFrom(x.receiver("dead/read"), "dead/read", 10)
	}
	attempt := map[string]func(*bench) string{
		"nack": func(x *bench) string {
			x.settled(x.one(x.rcv).Nack(t.Context(), 0))
			x.settled(x.one(x.rcv).Nack(t.Context(), time.Hour)) // the last one waits for no delay
			return ReasonMaxDeliveries
		},
		"expiry": func(x *bench) string {
			x.one(x.rcv)
			x.clock.Advance(30 * time.Second)
			x.one(x.rcv)
			x.clock.Advance(24 * time.Hour)
			return ReasonMaxDeliveries
		},
		"close": func(x *bench) string {
			x.settled(x.one(x.rcv).Nack(t.Context(), 0))
			x.one(x.rcv)
			must(t, x.rcv.Close(t.Context()))
			return ReasonMaxDeliveries
		},
		"settle": func(x *bench) string {
			x.settled(x.one(x.rcv).Nack(t.Context(), 0))
			x.settled(x.one(x.rcv).DeadLetter(t.Context(), "no such customer"))
			return "no such customer"
		},
	}
	for name, die := range attempt {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, broker.Entity{MaxDeliveries: 2, DeadLetter: "dead"})
			x.send(broker.Message{ID: "a", Key: "k", Copy: "c", Body: []byte("body"), Headers: broker.Headers{{Key: "h", Value: "v"}}})
			reason := die(x)
			x.want("moved", x.stats(), Stats{})
			ds := dead(x)
			x.want("dead letters", len(ds), 1)
			d := &ds[0]
			x.want("message", []string{d.ID, d.Key, d.Copy, string(d.Body), d.Headers.Get("h")}, []string{"a", "k", "c", "body", "v"})
			x.want("headers", []string{d.Headers.Get(driver.HeaderReason), d.Headers.Get(driver.HeaderSource), d.Headers.Get(driver.HeaderAttempts)},
				[]string{reason, "orders/billing", "2"})
			x.want("attempt", d.Attempt.Number, 1)
		})
	}
	t.Run("twice adds no copy", func(t *testing.T) {
		x := newBench(t, broker.Entity{Window: time.Second, DeadLetter: "dead"})
		must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/audit", DeadLetter: "dead"}))
		x.publish("a")
		x.settled(x.one(x.rcv).DeadLetter(t.Context(), "first"))
		x.clock.Advance(time.Second)
		x.publish("a")
		x.settled(x.one(x.rcv).DeadLetter(t.Context(), "second"))
		// Another subscription's dead letter is another message.
		x.settled(x.one(x.receiver("orders/audit")).DeadLetter(t.Context(), "third"))
		ds := dead(x)
		x.want("dead letters", len(ds), 2)
		x.want("reasons", ds[0].Headers.Get(driver.HeaderReason)+ds[1].Headers.Get(driver.HeaderReason), "firstthird")
	})
	t.Run("of a dead letter", func(t *testing.T) {
		x := newBench(t, broker.Entity{DeadLetter: "dead"})
		must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/read", DeadLetter: "deader"}))
		must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "deader", Subscription: "deader/read"}))
		x.publish("a")
		x.settled(x.one(x.rcv).DeadLetter(t.Context(), "first"))
		x.settled(x.one(x.receiver("dead/read")).DeadLetter(t.Context(), "second"))
		d := x.one(x.receiver("deader/read"))
		x.want("reasons", d.Headers.Values(driver.HeaderReason), []string{"second"})
		x.want("sources", d.Headers.Values(driver.HeaderSource), []string{"dead/read"})
	})
}

func TestDeadLetterWithoutAPlace(t *testing.T) {
	x := newBench(t, broker.Entity{MaxDeliveries: 1})
	x.publish("a", "b")
	d := x.one(x.rcv)
	if o, err := d.DeadLetter(t.Context(), "why"); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnsupported) {
		t.Fatal(o, err)
	}
	x.want("still held", x.stats(), Stats{Ready: 1, InFlight: 1})
	x.settled(d.Nack(t.Context(), 0))
	x.want("parked", x.stats(), Stats{Ready: 1, Parked: 1})

	// A dead-letter topic that was deleted loses nothing either.
	x = newBench(t, broker.Entity{MaxDeliveries: 1, DeadLetter: "dead"})
	must(t, x.conn.Delete(t.Context(), broker.Entity{Topic: "dead"}))
	x.publish("a")
	d = x.one(x.rcv)
	if _, err := d.DeadLetter(t.Context(), "why"); !errors.Is(err, broker.ErrNotFound) {
		t.Fatal(err)
	}
	x.settled(d.Nack(t.Context(), 0))
	x.want("parked", x.stats(), Stats{Parked: 1})
}

func TestOrderedKeys(t *testing.T) {
	keyed := func(id, key string) broker.Message { return broker.Message{ID: id, Key: key} }
	x := newBench(t, broker.Entity{Ordered: true, MaxDeliveries: 3})
	x.send(keyed("a1", "a"), keyed("a2", "a"), keyed("b1", "b"), keyed("free", ""), keyed("a3", "a"), keyed("b2", "b"))
	ds := x.available(x.rcv, 10)
	x.want("heads", ids(ds), "a1 b1 free ")
	x.want("held back", x.stats(), Stats{Waiting: 3, InFlight: 3})

	x.settled(ds[0].Nack(t.Context(), time.Second))
	x.settled(ds[1].Ack(t.Context()))
	x.want("b2 comes, a waits out the delay", ids(x.available(x.rcv, 10)), "b2 ")
	x.clock.Advance(time.Second)
	x.want("a again", ids(x.available(x.rcv, 10)), "a1 ")
	x.clock.Advance(30 * time.Second)
	ds = x.available(x.rcv, 10)
	x.want("after expiry, and a2 still behind a1", ids(ds), "free b2 a1 ")
	x.settled(ds[2].Nack(t.Context(), 0))
	x.want("parked, and the key goes on", ids(x.available(x.rcv, 10)), "a2 ")
	x.want("stats", x.stats(), Stats{Waiting: 1, InFlight: 3, Parked: 1})
	x.clock.Advance(30 * time.Second)
	ack(t, x.available(x.rcv, 10))
	ds = x.available(x.rcv, 10)
	x.want("the last of a", ids(ds), "a3 ")
	ack(t, ds)
	x.want("stats", x.stats(), Stats{Parked: 1})
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	x.want("lanes left", len(x.b.subs["orders/billing"].lanes), 0)
}
