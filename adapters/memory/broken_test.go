package memory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// verdicts publishes messages one by one and returns what was said of each.
func (x *bench) verdicts(msgs ...broker.Message) string {
	x.t.Helper()
	s := ""
	for _, m := range msgs {
		r := x.send(m)[0]
		s += fmt.Sprintf("%s@%d ", r.Verdict, r.Position.Offset)
	}
	return s
}

// verdictsOf is what was said of the messages of one call.
func verdictsOf(rs []broker.Receipt) string {
	s := ""
	for _, r := range rs {
		s += r.Verdict.String() + " "
	}
	return s
}

// vendor returns a receiver without the fence.
func (x *bench) vendor() broker.Receiver {
	x.t.Helper()
	view, err := driver.Unfenced(x.conn)
	must(x.t, err)
	r, err := view.OpenReceiver(x.t.Context(), "orders/billing")
	must(x.t, err)
	return r
}

// lose makes call lose its answer.
func (x *bench) lose(op Op, call func(context.Context)) {
	x.t.Helper()
	i := x.b.Inject(Fault{Op: op, Kind: LoseResponse, Times: 1})
	ctx, cancel := context.WithCancel(x.t.Context())
	defer cancel()
	go func() {
		_ = i.WaitApplied(context.Background())
		cancel()
	}()
	call(ctx)
}

const leaseTime, windowTime = 10 * time.Second, time.Minute

// Each promise has an experiment whose answer is the promise, and an option that
// changes the answer. The experiment is run with and without it.
var promises = []struct {
	name    string
	option  Option
	ask     func(x *bench) string
	kept    string
	broken  string
	ordered bool
}{
	{"WithoutDedup", WithoutDedup(), func(x *bench) string { return x.verdicts(message("a"), message("a")) }, "Stored@1 Duplicate@1 ", "Stored@1 Stored@2 ", false},
	{"WithoutDedupAcrossKeys", WithoutDedupAcrossKeys(), func(x *bench) string {
		return x.verdicts(broker.Message{ID: "a", Key: "1"}, broker.Message{ID: "a", Key: "2"}, broker.Message{ID: "a", Key: "1"})
	}, "Stored@1 Duplicate@1 Duplicate@1 ", "Stored@1 Stored@2 Duplicate@1 ", false},
	{"WithoutDedupAcrossPublishers", WithoutDedupAcrossPublishers(), func(x *bench) string {
		s := x.verdicts(message("a"), message("a"))
		x.pub = x.publisher("orders")
		return s + x.verdicts(message("a"))
	}, "Stored@1 Duplicate@1 Duplicate@1 ", "Stored@1 Duplicate@1 Stored@2 ", false},
	{"WithoutDedupAfterAck", WithoutDedupAfterAck(), func(x *bench) string {
		s := x.verdicts(message("a"), message("a"))
		x.settled(x.one(x.rcv).Ack(x.t.Context()))
		return s + x.verdicts(message("a"))
	}, "Stored@1 Duplicate@1 Duplicate@1 ", "Stored@1 Duplicate@1 Stored@2 ", false},
	{"WithoutDedupAfterRestart", WithoutDedupAfterRestart(), func(x *bench) string {
		s := x.verdicts(message("a"), message("a"))
		x.b.Restart(true)
		return s + x.verdicts(message("a")) + ids(x.available(x.rcv, 1))
	}, "Stored@1 Duplicate@1 Duplicate@1 a ", "Stored@1 Duplicate@1 Stored@2 a ", false},
	{"WithoutDedupAfterPurge", WithoutDedupAfterPurge(), func(x *bench) string {
		x.publish("a")
		held := x.one(x.rcv)
		x.publish("b")
		must(x.t, x.b.Purge("orders"))
		o, _ := held.Ack(x.t.Context())
		return x.verdicts(message("a"), message("c")) + ids(x.available(x.rcv, 9)) + o.State.String()
	}, "Duplicate@1 Stored@3 c LeaseLost", "Stored@3 Stored@4 a c LeaseLost", false},
	{"WithoutDedupWithinBatch", WithoutDedupWithinBatch(), func(x *bench) string {
		return x.verdicts(message("a")) + verdictsOf(x.send(message("a"), message("b"), message("b")))
	}, "Stored@1 Duplicate Stored Duplicate ", "Stored@1 Duplicate Stored Stored ", false},
	{"WithDedupAcrossTopics", WithDedupAcrossTopics(), func(x *bench) string {
		must(x.t, x.conn.Ensure(x.t.Context(), broker.Entity{Topic: "others", Window: windowTime}))
		s := x.verdicts(message("a"))
		x.pub = x.publisher("others")
		s += x.verdicts(message("a"), message("b"))
		x.clock.Advance(windowTime)
		return s + x.verdicts(message("a"))
	}, "Stored@1 Stored@1 Stored@2 Stored@3 ", "Stored@1 Duplicate@1 Stored@1 Stored@2 ", false},
	{"WithDedupOnBody", WithDedupOnBody(), func(x *bench) string {
		return x.verdicts(broker.Message{ID: "a", Body: []byte("x")}, broker.Message{ID: "b", Body: []byte("x")}, broker.Message{ID: "c", Body: []byte("y")})
	}, "Stored@1 Stored@2 Stored@3 ", "Stored@1 Duplicate@1 Stored@2 ", false},
	{"WithOtherBodyStored", WithOtherBodyStored(), func(x *bench) string {
		return x.verdicts(broker.Message{ID: "a", Body: []byte("x")}, broker.Message{ID: "a", Body: []byte("y")}, broker.Message{ID: "a", Body: []byte("x")})
	}, "Stored@1 Duplicate@1 Duplicate@1 ", "Stored@1 Stored@2 Duplicate@1 ", false},
	{"WithOtherBodyRefused", WithOtherBodyRefused(), func(x *bench) string {
		x.send(broker.Message{ID: "a", Body: []byte("x")})
		r, _ := x.pub.Publish(x.t.Context(), broker.Message{ID: "a", Body: []byte("y")}, broker.Message{ID: "a", Body: []byte("x")})
		return fmt.Sprint(r[0].Verdict, r[1].Verdict)
	}, "Duplicate Duplicate", "Refused Duplicate", false},
	{"WithWindowHalved", WithWindowHalved(), askWindow(windowTime - 1), "Duplicate@1 ", "Stored@2 ", false},
	{"WithWindowDoubled", WithWindowDoubled(), askWindow(windowTime), "Stored@2 ", "Duplicate@1 ", false},
	{"WithWindowRefreshed", WithWindowRefreshed(), func(x *bench) string {
		x.publish("a")
		x.clock.Advance(windowTime / 2)
		x.publish("a")
		x.clock.Advance(windowTime / 2)
		s := x.verdicts(message("a"))
		x.clock.Advance(2 * windowTime)
		return s + fmt.Sprint(x.send(message("a"))[0].Verdict) // not for ever
	}, "Stored@2 Stored", "Duplicate@1 Stored", false},
	{"WithoutDedupVerdict", WithoutDedupVerdict(), func(x *bench) string {
		return x.verdicts(message("a"), message("a")) + ids(x.available(x.rcv, 9))
	}, "Stored@1 Duplicate@1 a ", "Accepted@0 Accepted@0 a ", false},
	{"WithoutDuplicatePosition", WithoutDuplicatePosition(), func(x *bench) string { return x.verdicts(message("a"), message("a")) }, "Stored@1 Duplicate@1 ", "Stored@1 Duplicate@0 ", false},
	{"WithDuplicatesCalledStored", WithDuplicatesCalledStored(), func(x *bench) string {
		return x.verdicts(message("a"), message("a")) + ids(x.available(x.rcv, 9))
	}, "Stored@1 Duplicate@1 a ", "Stored@1 Stored@1 a ", false},
	{"WithoutBatchPartial", WithoutBatchPartial(), askBatch, "Stored Refused Stored a b ", "Refused Refused Refused ", false},
	{"WithoutBatchReceipts", WithoutBatchReceipts(), askBatch, "Stored Refused Stored a b ", "Refused Refused Refused a b ", false},
	{"WithoutDurableAck", WithoutDurableAck(), func(x *bench) string {
		x.send(broker.Message{ID: "a", Key: "k"}, broker.Message{ID: "a2", Key: "k"})
		x.b.Restart(true)
		x.send(broker.Message{ID: "a3", Key: "k"}, broker.Message{ID: "b"}, broker.Message{ID: "c"})
		x.available(x.rcv, 2) // two are in flight
		x.b.Kill()
		x.clock.Advance(leaseTime)
		return ids(x.available(x.rcv, 9)) + x.verdicts(broker.Message{ID: "b"})
	}, "c a b Duplicate@4 ", "a Stored@3 ", true},
	{"WithoutDurableState", WithoutDurableState(), func(x *bench) string {
		x.publish("a", "b")
		x.b.Restart(true)
		return ids(x.available(x.rcv, 9)) + x.verdicts(message("b"))
	}, "a b Duplicate@2 ", "Stored@1 ", false},
	{"WithoutLostResponseStored", WithoutLostResponseStored(), func(x *bench) string {
		x.lose(Publish, func(ctx context.Context) { _, _ = x.pub.Publish(ctx, message("a")) })
		return x.verdicts(message("a")) + ids(x.available(x.rcv, 9))
	}, "Duplicate@1 a ", "Duplicate@1 ", false},
	{"WithoutBacklog", WithoutBacklog(), func(x *bench) string {
		must(x.t, x.conn.Ensure(x.t.Context(), broker.Entity{Topic: "early"}))
		rs, err := x.publisher("early").Publish(x.t.Context(), message("a"))
		must(x.t, err)
		must(x.t, x.conn.Ensure(x.t.Context(), broker.Entity{Topic: "early", Subscription: "early/s"}))
		return rs[0].Verdict.String() + " " + ids(x.availableFrom(x.receiver("early/s"), "early/s", 9))
	}, "Stored a ", "Stored ", false},
	{"WithoutLimits", WithoutLimits(), func(x *bench) string {
		r, err := x.pub.Publish(x.t.Context(), broker.Message{ID: "big", Body: make([]byte, 200)})
		return fmt.Sprint(x.pub.Limits().Body, " ", r[0].Verdict, " ", errors.Is(err, broker.ErrTooLarge))
	}, "100 Refused true", "0 Refused true", false},
	{"WithTopicsCreated", WithTopicsCreated(), func(x *bench) string {
		_, err := x.conn.OpenPublisher(x.t.Context(), "a typing error")
		return fmt.Sprint(errors.Is(err, broker.ErrNotFound), err == nil)
	}, "true false", "false true", false},

	{"WithoutLeaseExpiry", WithoutLeaseExpiry(), askExpiry(100 * leaseTime), "again", "not yet", false},
	{"WithLateLeaseExpiry", WithLateLeaseExpiry(), askExpiry(3*leaseTime - 1), "again", "not yet", false},
	{"WithLateLeaseExpiry, in the end", WithLateLeaseExpiry(), askExpiry(3 * leaseTime), "again", "again", false},
	{"WithoutExtend", WithoutExtend(), func(x *bench) string {
		x.publish("a")
		x.settled(x.one(x.rcv).Extend(x.t.Context(), 2*leaseTime))
		x.clock.Advance(leaseTime)
		return fmt.Sprint(x.stats())
	}, "{0 0 0 1 0}", "{1 0 0 0 0}", false},
	{"WithoutNackDelay", WithoutNackDelay(), askNackDelay(0), "delayed", "ready", false},
	{"WithNackDelayHalved", WithNackDelayHalved(), askNackDelay(time.Minute / 2), "delayed", "ready", false},
	{"WithoutAttemptCount", WithoutAttemptCount(), askAttempts, "{1 exact} {2 exact}", "{1 exact} {1 exact}", false},
	{"WithoutAttempts", WithoutAttempts(), askAttempts, "{1 exact} {2 exact}", "{0 none} {0 none}", false},
	{"WithoutKeyOrder", WithoutKeyOrder(), askOrder, "k1 k1 k2 k3 ", "k3 k3 k2 k1 ", true},
	{"WithoutKeyOrderOverRedelivery", WithoutKeyOrderOverRedelivery(), askOrder, "k1 k1 k2 k3 ", "k1 k2 k3 k1 ", true},
	{"WithoutDeadLetter", WithoutDeadLetter(), askDeadLetter, "{1 0 0 0 0} {0 0 0 0 0}", "{0 0 0 0 0} {0 0 0 0 0}", false},
	{"WithDeadLetterKept", WithDeadLetterKept(), askDeadLetter, "{1 0 0 0 0} {0 0 0 0 0}", "{0 0 0 0 0} {0 0 0 0 1}", false},
	{"WithoutCancelGiveBack", WithoutCancelGiveBack(), func(x *bench) string {
		ctx, cancel := context.WithTimeout(x.t.Context(), time.Millisecond)
		defer cancel()
		if ds, err := x.rcv.Receive(ctx, 1); err == nil {
			x.t.Fatal(ds)
		}
		x.publish("a", "b")
		s := ids(x.available(x.receiver("orders/billing"), 9))
		x.clock.Advance(leaseTime)
		return s + "/ " + ids(x.available(x.rcv, 9))
	}, "a b / a b ", "b / a b ", false},
	{"WithoutCloseGiveBack", WithoutCloseGiveBack(), func(x *bench) string {
		x.publish("a")
		x.one(x.rcv)
		must(x.t, x.rcv.Close(x.t.Context()))
		s := fmt.Sprint(x.stats())
		x.clock.Advance(leaseTime)
		return s + fmt.Sprint(x.stats())
	}, "{1 0 0 0 0}{1 0 0 0 0}", "{0 0 0 1 0}{1 0 0 0 0}", false},
	{"WithoutFencing, ack", WithoutFencing(), askStale(broker.Ack), "LeaseLost {0 0 0 1 0} Confirmed", "Confirmed {0 0 0 0 0} Confirmed", false},
	{"WithoutFencing, nack", WithoutFencing(), askStale(broker.Nack), "LeaseLost {0 0 0 1 0} Confirmed", "Confirmed {1 0 0 0 0} Confirmed", false},
	{"WithoutFencing, extend", WithoutFencing(), askStale(broker.Extend), "LeaseLost {0 0 0 1 0} Confirmed", "Confirmed {0 0 0 1 0} Confirmed", false},
	{"WithoutFinalSettle", WithoutFinalSettle(), func(x *bench) string {
		x.publish("a")
		x.settled(x.one(x.rcv).Ack(x.t.Context()))
		x.clock.Advance(leaseTime)
		return ids(x.available(x.rcv, 9))
	}, "", "a ", false},
	{"WithAckOnDelivery", WithAckOnDelivery(), func(x *bench) string {
		x.publish("a", "b")
		ds := x.available(x.rcv, 2)
		x.settled(ds[0].Nack(x.t.Context(), 0))
		x.clock.Advance(leaseTime)
		return ids(x.available(x.rcv, 9))
	}, "a b ", "", false},
	{"WithoutSettleAnswer", WithoutSettleAnswer(), askAnswer, "Confirmed {0 0 0 0 0}", "Sent {0 0 0 0 0}", false},
	{"WithSettleAnswersLost", WithSettleAnswersLost(), askAnswer, "Confirmed {0 0 0 0 0}", "Unknown {0 0 0 0 0}", false},
	{"WithoutSettleMemory", WithoutSettleMemory(), askLostSettle, "Unknown Confirmed", "Unknown Unknown", false},
	{"WithoutLostSettleUnknown", WithoutLostSettleUnknown(), askLostSettle, "Unknown Confirmed", "LeaseLost LeaseLost", false},
	{"WithoutLeaseTold", WithoutLeaseTold(), func(x *bench) string {
		x.publish("a")
		return fmt.Sprint(x.one(x.rcv).Lease.IsZero())
	}, "false", "true", false},
	{"WithHandlesAcrossCuts", WithHandlesAcrossCuts(), func(x *bench) string {
		x.publish("a")
		d := x.one(x.rcv)
		x.b.Inject(Fault{Op: Publish, Kind: Cut, Times: 1})
		_, _ = x.pub.Publish(x.t.Context(), message("b"))
		o, _ := d.Ack(x.t.Context())
		return o.State.String()
	}, "LeaseLost", "Confirmed", false},
	{"WithoutKeyOrderOverExpiry", WithoutKeyOrderOverExpiry(), func(x *bench) string {
		x.send(broker.Message{ID: "k1", Key: "k"}, broker.Message{ID: "k2", Key: "k"})
		x.one(x.rcv)
		x.clock.Advance(leaseTime)
		return ids(x.available(x.rcv, 9))
	}, "k1 ", "k2 k1 ", true},
	{"WithoutExpiryCounted", WithoutExpiryCounted(), func(x *bench) string {
		x.publish("a")
		for range 3 {
			x.one(x.rcv)
			x.clock.Advance(leaseTime)
		}
		return fmt.Sprint(x.stats())
	}, "{0 0 0 0 0}", "{1 0 0 0 0}", false},
	{"WithPrefetch", WithPrefetch(), func(x *bench) string {
		x.publish("a", "b", "c")
		x.one(x.rcv)
		s := fmt.Sprint(x.stats())
		must(x.t, x.rcv.Close(x.t.Context()))
		return s + fmt.Sprint(x.stats())
	}, "{2 0 0 1 0}{3 0 0 0 0}", "{0 0 0 3 0}{3 0 0 0 0}", false},
	{"WithoutDeadLetterReason", WithoutDeadLetterReason(), askLetter, "why/1", "/1", false},
	{"WithoutDeadLetterAttempts", WithoutDeadLetterAttempts(), askLetter, "why/1", "why/", false},
}

// askLetter returns reason and number of deliveries of a dead letter.
func askLetter(x *bench) string {
	must(x.t, x.conn.Ensure(x.t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/s"}))
	x.publish("a")
	x.settled(x.one(x.rcv).DeadLetter(x.t.Context(), "why"))
	ds := x.availableFrom(x.receiver("dead/s"), "dead/s", 1)
	if len(ds) != 1 {
		x.t.Fatal(ds)
	}
	return ds[0].Headers.Get(driver.HeaderReason) + "/" + ds[0].Headers.Get(driver.HeaderAttempts)
}

func askWindow(wait time.Duration) func(*bench) string {
	return func(x *bench) string {
		x.publish("a")
		x.clock.Advance(wait)
		return x.verdicts(message("a"))
	}
}

// askBatch goes around the fence, whose own check would keep the bad message
// from the broker.
func askBatch(x *bench) string {
	view, err := driver.Unfenced(x.conn)
	must(x.t, err)
	pub, err := view.OpenPublisher(x.t.Context(), "orders")
	must(x.t, err)
	r, _ := pub.Publish(x.t.Context(), message("a"), broker.Message{ID: "big", Body: make([]byte, 200)}, message("b"))
	return fmt.Sprint(r[0].Verdict, " ", r[1].Verdict, " ", r[2].Verdict, " ") + ids(x.available(x.rcv, 9))
}

func askExpiry(wait time.Duration) func(*bench) string {
	return func(x *bench) string {
		x.publish("a")
		d := x.one(x.rcv)
		x.want("the lease told", d.Lease.Sub(x.clock.Now()), leaseTime)
		x.clock.Advance(wait)
		if x.stats().Ready == 1 {
			return "again"
		}
		return "not yet"
	}
}

func askNackDelay(wait time.Duration) func(*bench) string {
	return func(x *bench) string {
		x.publish("a")
		x.settled(x.one(x.rcv).Nack(x.t.Context(), time.Minute))
		x.clock.Advance(wait)
		if x.stats().Ready == 1 {
			return "ready"
		}
		return "delayed"
	}
}

func askAttempts(x *bench) string {
	x.publish("a")
	d := x.one(x.rcv)
	first := d.Attempt
	x.settled(d.Nack(x.t.Context(), 0))
	return fmt.Sprint(first, " ", x.one(x.rcv).Attempt)
}

// askOrder gives the first message back and then takes all as they come.
func askOrder(x *bench) string {
	x.send(broker.Message{ID: "k1", Key: "k"}, broker.Message{ID: "k2", Key: "k"}, broker.Message{ID: "k3", Key: "k"})
	d := x.one(x.rcv)
	seen := d.ID + " "
	x.settled(d.Nack(x.t.Context(), 0))
	for range 3 {
		d = x.one(x.rcv)
		seen += d.ID + " "
		x.settled(d.Ack(x.t.Context()))
	}
	return seen
}

func askDeadLetter(x *bench) string {
	must(x.t, x.conn.Ensure(x.t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/s"}))
	x.publish("a")
	for range 3 {
		x.settled(x.one(x.rcv).Nack(x.t.Context(), 0))
	}
	dead, err := x.b.Stats("dead/s")
	must(x.t, err)
	return fmt.Sprint(dead, x.stats())
}

func askStale(action broker.Action) func(*bench) string {
	return func(x *bench) string {
		x.publish("a")
		stale := x.one(x.vendor())
		x.clock.Advance(leaseTime)
		holder := x.one(x.rcv)
		s := []broker.Settlement{{Delivery: stale, Action: action}}
		_ = stale.Handle.Settle(x.t.Context(), s)
		left := x.stats()
		o, _ := holder.Ack(x.t.Context())
		return fmt.Sprint(s[0].Outcome.State, " ", left, " ", o.State)
	}
}

func askAnswer(x *bench) string {
	x.publish("a")
	o, _ := x.one(x.rcv).Ack(x.t.Context())
	return fmt.Sprint(o.State, " ", x.stats())
}

func askLostSettle(x *bench) string {
	x.publish("a")
	d := x.one(x.rcv)
	var first broker.Outcome
	x.lose(Settle, func(ctx context.Context) { first, _ = d.Ack(ctx) })
	second, _ := d.Ack(x.t.Context())
	return fmt.Sprint(first.State, " ", second.State)
}

func TestEachPromiseCanBeBroken(t *testing.T) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			e := broker.Entity{Lease: leaseTime, Window: windowTime, MaxDeliveries: 3, DeadLetter: "dead", Ordered: p.ordered, MaxBody: 100}
			if got := p.ask(newBench(t, e)); got != p.kept {
				t.Errorf("kept: got %q, want %q", got, p.kept)
			}
			if got := p.ask(newBench(t, e, p.option)); got != p.broken {
				t.Errorf("broken: got %q, want %q", got, p.broken)
			}
		})
	}
}

// No promise is left out of the table above: each field of broken is set by
// exactly one of its options.
func TestEachSwitchIsTested(t *testing.T) {
	set := map[string]bool{}
	for _, p := range promises {
		b := New(p.option)
		v := reflect.ValueOf(b.broken)
		n := 0
		for i := range v.NumField() {
			if v.Field(i).Bool() {
				set[v.Type().Field(i).Name] = true
				n++
			}
		}
		b.Close()
		if n != 1 {
			t.Errorf("%s sets %d switches", p.name, n)
		}
	}
	for f := range reflect.TypeFor[broken]().Fields() {
		if !set[f.Name] {
			t.Errorf("no test for %s", f.Name)
		}
	}
}
