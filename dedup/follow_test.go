package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// following is a Follow of a fakeLog in a bubble.
type following struct {
	t     *testing.T
	log   *fakeLog
	store *fakeStore
	p     *dedup.Position[*fakeTx]
	o     dedup.Log

	mu     sync.Mutex
	errs   []error
	stop   context.CancelFunc
	ended  chan error
	effect func(ctx context.Context, d *broker.Delivery) error // before the ledger's
}

func newFollowing(t *testing.T, sizes map[string]int64) *following {
	f := &following{t: t, log: newFakeLog(sizes), store: newFakeStore(), ended: make(chan error, 1)}
	f.p = dedup.NewPosition[*fakeTx](f.store, "c", dedup.Options{})
	f.o = dedup.Log{Topic: "orders", Open: f.log.OpenReceiver, Batch: 7, ErrorHook: func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	}}
	return f
}

func (f *following) start() {
	ctx, stop := context.WithCancel(f.t.Context())
	f.stop = stop
	go func() {
		f.ended <- dedup.Follow(ctx, f.p, f.o, func(ctx context.Context, tx *fakeTx, d *broker.Delivery) error {
			if f.effect != nil {
				if err := f.effect(ctx, d); err != nil {
					return err
				}
			}
			return f.store.effect(ctx, tx, d.ID)
		})
	}()
}

// end ends it, and checks that it says nil.
func (f *following) end() {
	f.t.Helper()
	f.stop()
	if err := <-f.ended; err != nil {
		f.t.Error(err)
	}
}

// rest waits until it waits for nothing but messages.
func (f *following) rest() { time.Sleep(time.Hour); synctest.Wait() }

// once checks that each message of a partition up to an offset has its effect once, in
// order, but those that are left out.
func (f *following) once(part string, last int64, without ...int64) {
	f.t.Helper()
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	var got, want []string
	for _, id := range f.store.ledger {
		if strings.HasPrefix(id, part) {
			got = append(got, id)
		}
	}
	for _, o := range f.log.parts[part] {
		if o <= last && !slices.Contains(without, o) {
			want = append(want, fmt.Sprint(part, o))
		}
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("effects of %s: %v, want %v", part, got, want)
	}
}

func (f *following) at(part string, want int64) {
	f.t.Helper()
	if got, err := f.p.Load(f.t.Context(), dedup.Partition{Topic: "orders", Name: part}); got != want || err != nil {
		f.t.Errorf("position of %s: %d, %v; want %d", part, got, err, want)
	}
}

// move is another owner, who applies the messages between two offsets.
func (f *following) move(part string, prev, last int64) {
	f.t.Helper()
	if err := f.moved(part, prev, last); err != nil {
		f.t.Error(err)
	}
}

func (f *following) moved(part string, prev, last int64) error {
	ctx := context.Background()
	other := dedup.NewPosition[*fakeTx](f.store, "c", dedup.Options{})
	return f.store.Transact(ctx, func(tx *fakeTx) error {
		for _, o := range f.log.parts[part] {
			if o > prev && o <= last {
				_ = f.store.effect(ctx, tx, fmt.Sprint(part, o))
			}
		}
		return other.AdvanceTx(ctx, tx, dedup.Partition{Topic: "orders", Name: part}, prev, last)
	})
}

// said checks that the hook got an error with such a text, or that is target.
func (f *following) said(text string, target error) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.errs, func(err error) bool {
		return strings.Contains(err.Error(), text) && (target == nil || errors.Is(err, target))
	}) {
		f.t.Errorf("no error with %q that is %v among %v", text, target, f.errs)
	}
}

// TestFollow: all of several partitions once and in order, with gaps in the offsets, a
// second time from where the first ended, and acked.
func TestFollow(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 100, "b": 30, "c": 0})
		f.log.parts["a"] = slices.DeleteFunc(f.log.parts["a"], func(o int64) bool { return o%10 < 3 })
		f.start()
		f.rest()
		f.end()
		f.once("a", 99)
		f.once("b", 29)
		f.at("a", 99)
		if acked := f.log.open.acked; acked["a"] != 99 || acked["b"] != 29 {
			t.Errorf("acked %v", acked)
		}
		f.log.parts["b"] = append(f.log.parts["b"], 30, 31)
		f.start()
		f.rest()
		f.end()
		f.once("a", 99)
		f.once("b", 31)
		if second := f.log.opened[1]; second["a"] != 100 || second["b"] != 30 || second["c"] != 0 {
			t.Errorf("began at %v", second)
		}
		if len(f.errs) > 0 || len(f.log.opened) != 2 {
			t.Errorf("%v, opened %d times", f.errs, len(f.log.opened))
		}
	})
}

// TestFollowFenced: another owner moves the position before what was received is applied.
// What it has applied is left out and the rest applied, by the same receiver.
func TestFollowFenced(t *testing.T) {
	for _, last := range []int64{0, 3, 6, 7, 29, 59} { // within the first batch, at its end, behind it
		bubbletest.Run(t, func(t *testing.T) {
			f := newFollowing(t, map[string]int64{"a": 60})
			f.log.before = func() { f.move("a", dedup.Start, last) }
			f.start()
			f.rest()
			f.end()
			f.once("a", 59)
			f.at("a", 59)
			f.said("isn't at", dedup.ErrFenced)
			if len(f.log.opened) != 1 {
				t.Errorf("moved to %d: opened %d times", last, len(f.log.opened))
			}
			if st := f.p.Stats(); st.Fenced == 0 || st.Applied != uint64(59-last) {
				t.Errorf("moved to %d: %+v", last, st)
			}
		})
	}
}

// TestFollowOwners: two that both think that they own everything apply each message once
// between them, in order.
func TestFollowOwners(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 500, "b": 500})
		other := newFollowing(t, nil)
		other.store, other.p, other.log.parts = f.store, f.p, f.log.parts
		var n atomic.Int64
		f.effect = func(context.Context, *broker.Delivery) error {
			time.Sleep(time.Duration(n.Add(1)*7919%11) * time.Millisecond)
			return nil
		}
		other.effect = f.effect
		f.start()
		other.start()
		f.rest()
		f.end()
		other.end()
		f.once("a", 499)
		f.once("b", 499)
		f.errs = append(f.errs, other.errs...) // either may be the one that is fenced
		f.said("isn't at", dedup.ErrFenced)
	})
}

// TestFollowSeeks: where the position lies behind what was read, or far ahead of it, the
// receiver is opened there.
func TestFollowSeeks(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 40})
		f.start()
		f.rest()
		f.at("a", 39)
		set := func(to int64) {
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			for name := range f.store.positions {
				f.store.positions[name] = to
			}
			f.store.ledger = slices.DeleteFunc(f.store.ledger, func(id string) bool {
				var o int64
				_, err := fmt.Sscanf(id, "a%d", &o)
				return err == nil && o > to
			})
		}
		add := func(from, to int64) {
			f.log.mu.Lock()
			defer f.log.mu.Unlock()
			for o := from; o <= to; o++ {
				f.log.parts["a"] = append(f.log.parts["a"], o)
			}
			f.log.cond.Broadcast()
		}
		set(19) // a backup was put back, with the effects that there were
		add(40, 49)
		f.rest()
		f.once("a", 49)
		f.said("begins behind 39", nil)
		if len(f.log.opened) != 2 || f.log.opened[1]["a"] != 20 {
			t.Fatalf("opened at %v", f.log.opened)
		}
		f.log.before = func() { f.move("a", 49, 20_000) }
		add(50, 20_010)
		f.rest()
		f.once("a", 20_010)
		if len(f.log.opened) != 3 || f.log.opened[2]["a"] != 20_001 {
			t.Errorf("opened at %v", f.log.opened)
		}
		f.end()
	})
}

// TestFollowWithoutPosition: as long as the position can't be loaded nothing is applied of
// a partition, not even what the broker would give by itself.
func TestFollowWithoutPosition(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 20})
		f.move("a", dedup.Start, 4)
		away := &awayStore{fakeStore: f.store}
		away.loads.Store(23)
		f.p = dedup.NewPosition[*fakeTx](away, "c", dedup.Options{Attempts: 2})
		f.start()
		f.rest()
		f.end()
		f.once("a", 19)
		f.said("assigned: dedup: position of orders a", dedup.ErrLost)
		if n := len(f.log.opened); n < 10 || f.log.opened[n-1]["a"] != 5 {
			t.Errorf("opened at %v", f.log.opened)
		}
	})
}

// awayStore is a store that isn't there for some calls.
type awayStore struct {
	*fakeStore
	loads, transactions atomic.Int64 // that fail
}

func (s *awayStore) LoadPosition(ctx context.Context, consumer string, p dedup.Partition) (int64, error) {
	if s.loads.Add(-1) >= 0 {
		return 0, dedup.ErrLost
	}
	return s.fakeStore.LoadPosition(ctx, consumer, p)
}

func (s *awayStore) Transact(ctx context.Context, f func(tx *fakeTx) error) error {
	if s.transactions.Add(-1) >= 0 {
		return dedup.ErrLost
	}
	return s.fakeStore.Transact(ctx, f)
}

func (s *awayStore) Fault(err error) dedup.Fault {
	if errors.Is(err, dedup.ErrLost) {
		return dedup.Lost
	}
	return dedup.Permanent
}

// TestFollowStoreAway: a store that is away for long costs no message an attempt, and
// none is dead-lettered for it.
func TestFollowStoreAway(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 20})
		away := &awayStore{fakeStore: f.store}
		away.transactions.Store(50)
		f.p, f.o.MaxAttempts = dedup.NewPosition[*fakeTx](away, "c", dedup.Options{Attempts: 2}), 1
		f.start()
		f.rest()
		f.end()
		f.once("a", 19)
		if len(f.log.letters) > 0 || len(f.log.opened) != 1 {
			t.Errorf("dead-lettered %v, opened %d times", f.log.letters, len(f.log.opened))
		}
	})
}

// TestFollowAssignedAnew: what was received before a partition was assigned once more is
// not taken for what follows the new beginning, whenever the one happens beside the
// other.
func TestFollowAssignedAnew(t *testing.T) {
	for _, stored := range []int64{dedup.Start, 2, 13, 20} {
		bubbletest.Run(t, func(t *testing.T) {
			f := newFollowing(t, map[string]int64{"a": 40})
			var whole atomic.Bool
			f.effect = func(context.Context, *broker.Delivery) error {
				if !whole.Load() {
					return errors.New("broken") // so that the position stays behind what is read
				}
				return nil
			}
			f.log.before = func() {
				f.log.mu.Lock()
				defer f.log.mu.Unlock()
				f.log.before = func() { // with the second batch in hand, and the first one failing
					if stored != dedup.Start {
						f.move("a", dedup.Start, stored)
					}
					f.log.open.assign("a")
					whole.Store(true)
				}
			}
			f.start()
			f.rest()
			f.end()
			f.once("a", 39)
			f.at("a", 39)
			if len(f.log.opened) != 1 {
				t.Errorf("opened %d times: %v", len(f.log.opened), f.errs)
			}
		})
	}
}

// TestFollowFails: an effect that fails is tried again before what is behind it, and
// other partitions go on; poison, and one that fails too often, is dead-lettered, also
// when that doesn't work at first.
func TestFollowFails(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 20, "b": 20, "c": 20})
		f.o.MaxAttempts = 4
		f.log.noDLQ = 2
		tries := map[string]int{}
		var mu sync.Mutex
		f.effect = func(_ context.Context, d *broker.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			tries[d.ID]++
			switch {
			case d.ID == "a3" && tries["a3"] < 4:
				return errors.New("for a while")
			case d.ID == "a9":
				return errors.New("for ever")
			case d.ID == "b5":
				return broker.Poison(errors.New("malformed"))
			case d.ID == "b7" && tries["b7"] <= 9:
				return broker.Postpone(errors.New("not yet"), time.Second)
			case d.ID == "b8" && tries["b8"] == 1:
				panic("once")
			}
			return nil
		}
		f.start()
		f.rest()
		f.end()
		f.once("a", 19, 9)
		f.once("b", 19, 5)
		f.once("c", 19)
		f.at("a", 19)
		f.at("b", 19)
		slices.Sort(f.log.letters)
		if !slices.Equal(f.log.letters, []string{"a9", "b5"}) {
			t.Errorf("dead-lettered %v", f.log.letters)
		}
		f.said("dead-letter", broker.ErrUnavailable)
		if d := f.p.Stats().Decisions; d.DeadPoison != 1 || d.DeadChosen != 1 || d.Acked != 58 || d.Postponed != 9 || d.Retried == 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestFollowDeadLetterFenced: a message whose dead-lettering is done isn't dead-lettered
// again when the position is moved beside it.
func TestFollowDeadLetterFenced(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 5})
		away := &awayStore{fakeStore: f.store}
		f.p = dedup.NewPosition[*fakeTx](away, "c", dedup.Options{Attempts: 1})
		f.effect = func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "a2" {
				away.transactions.Store(3) // those that move over it
				return broker.Poison(errors.New("malformed"))
			}
			return nil
		}
		f.start()
		f.rest()
		f.end()
		f.once("a", 4, 2)
		f.at("a", 4)
		if !slices.Equal(f.log.letters, []string{"a2"}) {
			t.Errorf("dead-lettered %v", f.log.letters)
		}
	})
}

// TestFollowEnds: what is under way may go on for a while, and no longer; what the broker
// refuses for good is returned, what it refuses for now isn't.
func TestFollowEnds(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		for _, c := range []struct {
			takes time.Duration
			stand int64
		}{{10 * time.Second, 6}, {time.Hour, dedup.Start}} {
			f := newFollowing(t, map[string]int64{"a": 20})
			f.effect = func(ctx context.Context, d *broker.Delivery) error {
				if d.ID != "a0" {
					return nil
				}
				timer := time.NewTimer(c.takes)
				defer timer.Stop()
				select {
				case <-timer.C:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			f.start()
			synctest.Wait()
			began := time.Now()
			f.end()
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			f.at("a", c.stand)
		}
	})
	bubbletest.Run(t, func(t *testing.T) {
		f := newFollowing(t, map[string]int64{"a": 20})
		f.log.refuse = fmt.Errorf("%w: no positions", broker.ErrUnsupported)
		f.start()
		if err := <-f.ended; !errors.Is(err, broker.ErrUnsupported) {
			t.Error(err)
		}
		f.log.refuse = broker.ErrUnavailable
		f.start()
		f.rest()
		f.end()
		f.once("a", 19)
		f.said("follow orders", broker.ErrUnavailable)
		for _, wrong := range []dedup.Log{{Topic: "orders"}, {Open: f.log.OpenReceiver}} {
			if err := dedup.Follow(t.Context(), f.p, wrong, func(context.Context, *fakeTx, *broker.Delivery) error { return nil }); !errors.Is(err, broker.ErrInvalid) {
				t.Error(err)
			}
		}
	})
}
