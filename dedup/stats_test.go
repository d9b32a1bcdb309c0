package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// TestStatsOfInbox: each message is in one count, and under way while it is.
func TestStatsOfInbox(t *testing.T) {
	store := newFakeStore()
	var took []int
	in := dedup.New[*fakeTx](store, "c", dedup.Options{Took: func(n int, d time.Duration) {
		if d <= 0 {
			t.Error(d)
		}
		took = append(took, n)
	}})
	store.floor = dedup.MinuteMarker(time.Now().Add(-time.Hour))
	during := int64(0)
	keys := []dedup.Key{{ID: "a"}, {ID: "a"}, {ID: "bad"}, {}, {ID: "old", At: time.Now().Add(-2 * time.Hour)}}
	_, _ = dedup.OnceBatch(t.Context(), in, keys, func(k dedup.Key) dedup.Key { return k }, func(_ context.Context, tx *fakeTx, k dedup.Key) error {
		during = in.Stats().Running
		if k.ID == "bad" {
			return errBroken
		}
		return nil
	})
	if _, err := in.Once(t.Context(), keys[0], func(context.Context, *fakeTx) error { return nil }); err != nil {
		t.Error(err)
	}
	want := dedup.Stats{Applied: 1, Duplicate: 2, Failed: 2, OutsideWindow: 1}
	if st := in.Stats(); st != want || during != 5 {
		t.Errorf("%+v, want %+v; %d at work", st, want, during)
	}
	if fmt.Sprint(took) != "[5 1]" {
		t.Errorf("took of %v", took)
	}
}

// TestStatsOfPosition: what is fenced, and what was applied before.
func TestStatsOfPosition(t *testing.T) {
	store := newFakeStore()
	p := dedup.NewPosition[*fakeTx](store, "c", dedup.Options{})
	at := dedup.Partition{Topic: "t", Name: "0"}
	apply := func(prev int64, offsets ...int64) error {
		_, err := dedup.AppliedFrom(t.Context(), p, at, prev, offsets, func(o int64) int64 { return o }, func(_ context.Context, tx *fakeTx, o int64) error {
			if o == 9 {
				return errBroken
			}
			return nil
		})
		return err
	}
	if err := apply(dedup.Start, 0, 1, 2); err != nil {
		t.Fatal(err)
	}
	if err := apply(2, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if err := apply(0, 4); !errors.Is(err, dedup.ErrFenced) {
		t.Error(err)
	}
	if err := apply(3, 8, 9, 10); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	err := store.Transact(t.Context(), func(tx *fakeTx) error { return p.AdvanceTx(t.Context(), tx, at, 3, 5) })
	if !errors.Is(err, dedup.ErrFenced) {
		t.Error(err)
	}
	want := dedup.Stats{Applied: 5, Duplicate: 2, Failed: 1, Fenced: 2}
	if st := p.Stats(); st != want || p.Consumer() != "c" {
		t.Errorf("%+v, want %+v", st, want)
	}
}

// TestStatsOfLease: a holder that froze beyond its lease finds that another has taken
// over, and both are counted.
func TestStatsOfLease(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := newFakeLeases()
		frozen := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: time.Hour})
		r := frozen.Reserve(t.Context(), dedup.Key{ID: "m"})[0]
		time.Sleep(2 * time.Hour)
		other := dedup.NewLease(s, "c", dedup.LeaseOptions{})
		leased(t, other, "m", dedup.Applied, nil, answers("done"))
		if err := frozen.Complete(t.Context(), &r); !errors.Is(err, broker.ErrLeaseLost) {
			t.Error(err)
		}
		if st := other.Stats(); st != (dedup.Stats{Applied: 1, Stuck: 1}) {
			t.Errorf("%+v", st)
		}
		if st := frozen.Stats(); st != (dedup.Stats{LeaseLost: 1, Suspect: 1}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestStatsOfCalls: an attempt that left no record is found stuck, and one whose
// outcome nobody knows waits for somebody.
func TestStatsOfCalls(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c := newCalling(t, dedup.CallOptions{Bound: time.Second})
		if _, err := c.s.AddCall(t.Context(), dedup.Call{Consumer: "c", ID: "crashed", State: dedup.CallStarted, First: time.Now(), Changed: time.Now(), Due: time.Now().Add(time.Second)}); err != nil {
			t.Fatal(err)
		}
		c.once("crashed", dedup.InFlight, dedup.ErrInFlight, "")
		time.Sleep(time.Minute)
		for range 3 {
			c.once("crashed", dedup.Unknown, dedup.ErrUnresolved, "")
		}
		c.p.then = func() error { return errBroken }
		c.once("open", dedup.Unknown, dedup.ErrUnresolved, "")
		want := dedup.Stats{Unknown: 4, InFlight: 1, Stuck: 1, Unresolved: 2}
		if st := c.Stats(); st != want {
			t.Errorf("%+v, want %+v", st, want)
		}
	})
}

// TestDecisions: what a handler tells Consume is counted by its reason, and so is what
// HandleBatch tells the broker.
func TestDecisions(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close(t)
		store := newFakeStore()
		store.floor = dedup.MinuteMarker(time.Now().Add(-time.Hour))
		options := []dedup.HandlerOption{dedup.KeyFrom(func(d *broker.Delivery) dedup.Key {
			switch d.ID {
			case "old":
				return dedup.Key{ID: d.ID, At: time.Now().Add(-2 * time.Hour)}
			case "no-key":
				return dedup.Key{}
			}
			return dedup.Key{ID: d.ID}
		})}
		effect := func(_ context.Context, tx *fakeTx, d *broker.Delivery) error {
			switch d.ID {
			case "poison":
				return fmt.Errorf("decode: %w", broker.Poison(errBroken))
			case "later":
				return broker.Postpone(errBroken, 7*time.Second)
			case "fails", "chosen":
				return errBroken
			}
			return nil
		}
		ids := []string{"ok", "ok", "poison", "later", "fails", "old", "no-key"}
		want := dedup.Decisions{Acked: 2, Postponed: 1, Retried: 1, DeadOutsideWindow: 1, DeadKey: 1, DeadPoison: 1}
		in := dedup.New[*fakeTx](store, "one", dedup.Options{})
		h := dedup.Handler(in, effect, options...)
		for _, id := range ids {
			err := h(t.Context(), &broker.Delivery{Message: broker.Message{ID: id}})
			_, postponed := broker.Postponed(err)
			if broker.IsPoison(err) != (id == "poison" || id == "old" || id == "no-key") || postponed != (id == "later") {
				t.Errorf("%s: %v", id, err)
			}
		}
		if got := in.Stats().Decisions; got != want {
			t.Errorf("Handler: %+v, want %+v", got, want)
		}

		ids = append(ids, "chosen")
		want.DeadChosen = 1
		for _, id := range ids {
			r.publish(t, broker.Message{ID: id + "/" + fmt.Sprint(len(id))})
		}
		ds := make([]broker.Delivery, 0, len(ids))
		for len(ds) < len(ids)-1 { // the broker has "ok" once
			more, err := r.rcv.Receive(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			ds = append(ds, more...)
		}
		for i := range ds {
			ds[i].ID, _, _ = strings.Cut(ds[i].ID, "/")
		}
		batch := dedup.New[*fakeTx](store, "two", dedup.Options{})
		want.Acked = 1
		_, settled, err := dedup.HandleBatch(t.Context(), batch, r.rcv, ds, effect, append(options, dedup.DeadLetterWhen(func(d *broker.Delivery, err error) (string, bool) {
			return "chosen", d.ID == "chosen"
		}))...)
		if err != nil {
			t.Error(err)
		}
		if got := batch.Stats().Decisions; got != want {
			t.Errorf("HandleBatch: %+v, want %+v", got, want)
		}
		for _, s := range settled {
			action, delay := broker.Nack, time.Second
			switch s.Delivery.ID {
			case "ok":
				action, delay = broker.Ack, 0
			case "poison", "old", "no-key", "chosen":
				action, delay = broker.DeadLetter, 0
			case "later":
				delay = 7 * time.Second
			}
			if s.Action != action || s.Delay != delay {
				t.Errorf("%s: %v %v, want %v %v", s.Delivery.ID, s.Action, s.Delay, action, delay)
			}
		}
	})
}

// TestRelayPublished: a Publish is told of with what was tried before.
func TestRelayPublished(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		for _, window := range []time.Duration{time.Hour, 0} {
			old, crashed, young := outboxRow("old", 1), outboxRow("crashed", 2), outboxRow("young", 3)
			old.Attempts, old.Age, old.Time = 2, 5*time.Minute, time.Now().Add(-20*time.Minute)
			crashed.Age = time.Minute
			young.Age = 3 * time.Millisecond
			store := &fakeOutbox{turn: func(n int, _ dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
				if n > 0 {
					return 0, nil
				}
				send([]dedup.OutboxRow{old, crashed, young})
				return 3, nil
			}}
			to := &fakePublisher{window, func(context.Context, broker.Message) broker.Receipt {
				time.Sleep(time.Second)
				return broker.Receipt{Verdict: broker.Stored}
			}}
			var told []dedup.RelayPublish
			r := dedup.NewRelay(store, "orders", to, dedup.RelayOptions{Published: func(p dedup.RelayPublish) { told = append(told, p) }})
			if _, err := r.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			want := dedup.RelayPublish{Messages: 3, Took: 3 * time.Second, Retried: 2, RetryAge: 5 * time.Minute}
			if window == 0 {
				want.RetryAge = 20 * time.Minute
			}
			if len(told) != 1 || told[0] != want || r.Window() != window || r.Topic() != "orders" {
				t.Errorf("window %v: %+v, want %+v", window, told, want)
			}
		}
	})
}

// TestAdd: no count is left out of a sum.
func TestAdd(t *testing.T) {
	var ones func(v reflect.Value, want uint64, set bool)
	ones = func(v reflect.Value, want uint64, set bool) {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.Kind() == reflect.Struct:
				ones(f, want, set)
			case set && f.CanInt():
				f.SetInt(int64(want))
			case set:
				f.SetUint(want)
			case f.CanInt() && f.Int() != int64(want), f.CanUint() && f.Uint() != want:
				t.Errorf("%s is %v, want %d", v.Type().Field(i).Name, f, want)
			}
		}
	}
	var s dedup.Stats
	ones(reflect.ValueOf(&s).Elem(), 1, true)
	ones(reflect.ValueOf(s.Add(s)), 2, false)
	var r dedup.RelayStats
	ones(reflect.ValueOf(&r).Elem(), 1, true)
	ones(reflect.ValueOf(r.Add(r)), 2, false)
}

// TestIDCheckIsCheap: a message that is looked at costs no allocation.
func TestIDCheckIsCheap(t *testing.T) {
	check := dedup.NewIDCheck(10)
	m := broker.Message{ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b", Key: "k", Body: []byte("hello"), Time: time.Now()}
	if n := testing.AllocsPerRun(100, func() { check.Look(&m) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
