package memory

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// The agenda against a plain sorted list.
func TestDue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d due
	var model []*item
	for step := range 20_000 {
		switch op := rng.IntN(10); {
		case op < 5 || len(model) == 0:
			it := &item{place: nowhere, turn: uint64(step)}
			d.add(it, rng.Int64N(1000))
			model = append(model, it)
		case op < 7:
			d.move(model[rng.IntN(len(model))], rng.Int64N(1000))
		default:
			i := rng.IntN(len(model))
			d.remove(model[i])
			d.remove(model[i]) // what is not there stays so
			model = slices.Delete(model, i, i+1)
		}
		if len(d) != len(model) {
			t.Fatalf("step %d: %d items, want %d", step, len(d), len(model))
		}
		for _, it := range model[:min(5, len(model))] {
			if d[it.place] != it {
				t.Fatalf("step %d: an item is not in its place", step)
			}
		}
	}
	slices.SortFunc(model, func(a, b *item) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.turn) - int(b.turn)
	})
	for i, want := range model {
		if d[0] != want {
			t.Fatalf("item %d is out of order", i)
		}
		d.remove(d[0])
	}
}

func TestClock(t *testing.T) {
	c := NewClock()
	if d := time.Since(c.Now()); d < 0 || d > time.Minute {
		t.Fatalf("the clock starts %s ago", d)
	}
	start := c.Now()
	c.Advance(time.Hour)
	c.Advance(0)
	if got := c.Now().Sub(start); got != time.Hour {
		t.Fatalf("moved by %s", got)
	}
	defer func() {
		if recover() == nil {
			t.Fatal("the clock ran backwards")
		}
	}()
	c.Advance(-1)
}

// What a long Advance passes over happens at its own time and in order.
func TestAdvanceOverSeveralEvents(t *testing.T) {
	x := newBench(t, broker.Entity{Window: time.Hour, MaxDeliveries: 1, DeadLetter: "dead"})
	must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/s"}))
	x.publish("a", "b", "c")
	ds := x.available(x.rcv, 3)
	for i, lease := range []time.Duration{3, 1, 2} {
		if _, err := ds[i].Extend(t.Context(), lease*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	x.clock.Advance(24 * time.Hour)
	x.want("order", ids(x.availableFrom(x.receiver("dead/s"), "dead/s", 9)), "b c a ")
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	// The third ended the window of the first.
	dead := x.b.topics["dead"]
	for i, r := range dead.oldest[dead.head:] {
		x.want("moment", time.Unix(0, r.at).Sub(x.clock.Now().Add(-24*time.Hour)), time.Duration(i+2)*time.Minute)
	}
	x.want("remembered", len(dead.seen), 2)
}
