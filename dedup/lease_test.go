package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

var errGone = fmt.Errorf("%w: gone", dedup.ErrLost)

// leased applies id and checks the outcome.
func leased(t *testing.T, l *dedup.Lease, id string, want dedup.Outcome, what error, effect func(ctx context.Context, fence int64) ([]byte, error)) []byte {
	t.Helper()
	outcome, result, err := l.Once(t.Context(), dedup.Key{ID: id}, effect)
	if outcome != want || !errors.Is(err, what) || (err == nil) != outcome.OK() {
		t.Errorf("%s: %v: %v; want %v: %v", id, outcome, err, want, what)
	}
	return result
}

func answers(s string) func(context.Context, int64) ([]byte, error) {
	return func(context.Context, int64) ([]byte, error) { return []byte(s), nil }
}

// TestLeaseOnce: an effect's result is kept for copies; one that fails gives its key
// back; fences rise.
func TestLeaseOnce(t *testing.T) {
	s := newFakeLeases()
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{MaxResult: 10})
	broken := errors.New("broken")
	var fences []int64
	for _, fail := range []error{broken, broken, nil} {
		want := dedup.Applied
		if fail != nil {
			want = dedup.Failed
		}
		leased(t, l, "a", want, fail, func(_ context.Context, fence int64) ([]byte, error) {
			fences = append(fences, fence)
			return []byte("answer"), fail
		})
	}
	if len(fences) != 3 || fences[0] >= fences[1] || fences[1] >= fences[2] {
		t.Errorf("fences %v", fences)
	}
	if got := leased(t, l, "a", dedup.Duplicate, nil, answers("not called")); string(got) != "answer" {
		t.Errorf("a copy gets %q", got)
	}
	leased(t, l, "panic", dedup.Failed, broken, func(context.Context, int64) ([]byte, error) { panic(broken) })
	leased(t, l, "panic", dedup.Applied, nil, answers(""))
	if got := leased(t, l, "long", dedup.Applied, nil, answers("longer than ten")); string(got) != "longer than ten" {
		t.Errorf("the caller gets %q", got)
	}
	if got := leased(t, l, "long", dedup.Duplicate, nil, answers("")); len(got) != 0 {
		t.Errorf("a copy gets %q", got)
	}
	leased(t, l, "", dedup.Failed, broker.ErrInvalid, answers(""))
	if st := l.Stats(); st.Applied != 3 || st.Duplicate != 2 || st.Failed != 4 {
		t.Errorf("stats %+v", st)
	}
}

// TestLeaseBatch: a batch's effects are recorded together, whatever becomes of one.
func TestLeaseBatch(t *testing.T) {
	s := newFakeLeases()
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{MaxBatch: 4})
	keys := []dedup.Key{{ID: "a"}, {ID: "b"}, {ID: "a"}, {ID: "c"}, {}, {ID: "d"}, {ID: "c"}, {ID: "bad"}, {ID: "bad"}}
	broken := errors.New("broken")
	var ran []int
	results := l.OnceBatch(t.Context(), keys, func(_ context.Context, i int, _ int64) ([]byte, error) {
		ran = append(ran, i)
		if keys[i].ID == "bad" {
			return nil, broken
		}
		return []byte(keys[i].ID), nil
	})
	ok, dup, no := dedup.Applied, dedup.Duplicate, dedup.Failed
	for i, want := range []dedup.Outcome{ok, ok, dup, ok, no, ok, dup, no, no} {
		if r := results[i]; r.Outcome != want || want.OK() && string(r.Result) != keys[i].ID {
			t.Errorf("%d: %+v; want %v", i, r, want)
		}
	}
	if want := []int{0, 1, 3, 5, 7, 8}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	if s.calls["reserve"] != 3 || s.calls["complete"] != 2 || s.calls["release"] != 2 {
		t.Errorf("calls %v", s.calls)
	}
	same := l.OnceBatch(t.Context(), []dedup.Key{{ID: "e"}, {ID: "e"}}, func(context.Context, int, int64) ([]byte, error) { return nil, broken })
	if same[0].Outcome != dedup.Failed || same[1].Outcome != dedup.InFlight {
		t.Errorf("copies of one that fails: %v", same)
	}
}

// TestLeaseExtended: an effect that takes long keeps its lease, and no copy gets in.
func TestLeaseExtended(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := newFakeLeases()
		l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 3 * time.Second})
		fails := 0
		s.broken = func(call string) (error, error) { // every other extension
			if fails++; call == "extend" && fails%2 == 0 {
				return errGone, nil
			}
			return nil, nil
		}
		leased(t, l, "a", dedup.Applied, nil, func(ctx context.Context, _ int64) ([]byte, error) {
			for range 50 {
				time.Sleep(400 * time.Millisecond)
				leased(t, l, "a", dedup.InFlight, dedup.ErrInFlight, answers(""))
			}
			return nil, ctx.Err()
		})
		before := s.calls["extend"]
		if before < 15 {
			t.Errorf("extended %d times in 20 s", before)
		}
		time.Sleep(time.Minute)
		if s.calls["extend"] != before {
			t.Error("extends after the end")
		}
	})
}

// TestLeaseTakeover: the key of a holder that crashed is had when its lease has
// ended, with a higher fence; the holder, if it is still there, is told and its
// context has ended before that (riverqueue/river#62).
func TestLeaseTakeover(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := newFakeLeases()
		l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 3 * time.Second, Attempts: 1})
		crashed := l.Reserve(t.Context(), dedup.Key{ID: "crashed"})
		if crashed[0].Claim != dedup.Fresh || crashed[0].TakenOver {
			t.Fatalf("%+v", crashed[0])
		}
		time.Sleep(2 * time.Second)
		held := l.Reserve(t.Context(), dedup.Key{ID: "crashed"})
		if held[0].Claim != dedup.Held || time.Until(held[0].Until) > time.Second {
			t.Errorf("%+v", held[0])
		}
		time.Sleep(time.Second)
		next := l.Reserve(t.Context(), dedup.Key{ID: "crashed"})
		if r := next[0]; r.Claim != dedup.Fresh || !r.TakenOver || r.Fence <= crashed[0].Fence {
			t.Errorf("%+v after %+v", r, crashed[0])
		}
		for name, err := range map[string]error{
			"extend": l.Extend(t.Context(), &crashed[0]), "complete": l.Complete(t.Context(), &crashed[0]), "release": l.Release(t.Context(), &crashed[0]),
		} {
			if !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("%s by the one that was replaced: %v", name, err)
			}
		}
		if err := l.Complete(t.Context(), &next[0]); err != nil {
			t.Error(err)
		}

		// The store is out of reach for the holder.
		s.broken = func(call string) (error, error) {
			if call == "extend" {
				return errGone, nil
			}
			return nil, nil
		}
		began := time.Now()
		leased(t, l, "cut", dedup.Unknown, broker.ErrLeaseLost, func(ctx context.Context, _ int64) ([]byte, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), broker.ErrLeaseLost) || time.Since(began) > 3*time.Second+10*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(began), context.Cause(ctx))
			}
			return nil, ctx.Err()
		})
		// One that doesn't look at its context and finishes: nobody was there before.
		leased(t, l, "late", dedup.Applied, nil, func(context.Context, int64) ([]byte, error) {
			time.Sleep(5 * time.Second)
			return nil, nil
		})
		// And one that somebody else has replaced meanwhile.
		leased(t, l, "stale", dedup.Unknown, broker.ErrLeaseLost, func(context.Context, int64) ([]byte, error) {
			time.Sleep(5 * time.Second)
			leased(t, l, "stale", dedup.Applied, nil, answers("the other's"))
			return []byte("stale"), nil
		})
		// One that fails, in the moment of the takeover: only the release tells.
		s.broken = func(call string) (error, error) {
			if call == "release" {
				return broker.ErrLeaseLost, nil
			}
			return nil, nil
		}
		refused := errors.New("the destination refuses the fence")
		for _, want := range []error{broker.ErrLeaseLost, refused} {
			leased(t, l, "refused", dedup.Unknown, want, func(context.Context, int64) ([]byte, error) { return nil, refused })
			time.Sleep(4 * time.Second) // its lease ends
		}
		if got := leased(t, l, "stale", dedup.Duplicate, nil, answers("")); string(got) != "the other's" {
			t.Errorf("recorded is %q", got)
		}
	})
}

// TestLeaseBatchOutlived: effects whose turn comes after their lease has ended don't
// begin.
func TestLeaseBatchOutlived(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := newFakeLeases()
		s.broken = func(call string) (error, error) {
			if call == "extend" {
				return nil, errGone
			}
			return nil, nil
		}
		l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 3 * time.Second})
		results := l.OnceBatch(t.Context(), []dedup.Key{{ID: "a"}, {ID: "b"}}, func(_ context.Context, i int, _ int64) ([]byte, error) {
			if i == 1 {
				t.Error("began without a lease")
			}
			time.Sleep(4 * time.Second)
			return nil, nil
		})
		if results[0].Outcome != dedup.Applied || results[1].Outcome != dedup.Unknown || !errors.Is(results[1].Err, broker.ErrLeaseLost) {
			t.Errorf("%+v", results)
		}
	})
}

// TestLeaseAnswersLost: each call is asked again when it has no answer, whether it
// took place or not.
func TestLeaseAnswersLost(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		for _, call := range []string{"reserve", "complete", "release"} {
			for _, c := range []struct {
				took  bool
				times int
			}{{true, 1}, {false, 1}, {true, 4}, {false, 4}, {true, 5}, {false, 5}} {
				name := fmt.Sprint(call, c)
				s := newFakeLeases()
				l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: time.Minute})
				s.broken = func(now string) (before, after error) {
					switch {
					case now != call || s.calls[call] > c.times:
						return nil, nil
					case c.took:
						return nil, errGone
					}
					return errGone, nil
				}
				var effect error
				want, what, again := dedup.Applied, error(nil), dedup.Duplicate
				switch {
				case call == "release":
					effect = errors.New("broken")
					want, what, again = dedup.Failed, effect, dedup.Applied
					if c.times == 5 && !c.took {
						again = dedup.InFlight // until the lease ends
					}
				case c.times < 5:
				case call == "reserve":
					if want, what, again = dedup.Unknown, dedup.ErrLost, dedup.Applied; c.took {
						again = dedup.InFlight
					}
				default:
					if want, what = dedup.Unknown, dedup.ErrCommitUnknown; !c.took {
						again = dedup.InFlight
					}
				}
				outcome, _, err := l.Once(t.Context(), dedup.Key{ID: "a"}, func(context.Context, int64) ([]byte, error) { return nil, effect })
				if outcome != want || !errors.Is(err, what) {
					t.Errorf("%s: %v: %v; want %v: %v", name, outcome, err, want, what)
				}
				s.broken = nil
				if outcome, _, err := l.Once(t.Context(), dedup.Key{ID: "a"}, answers("")); outcome != again {
					t.Errorf("%s: then %v: %v; want %v", name, outcome, err, again)
				}
			}
		}
	})
}

// TestLeaseCancelled: what took place is recorded when the context ends, and what
// didn't is given back.
func TestLeaseCancelled(t *testing.T) {
	s := newFakeLeases()
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	results := l.OnceBatch(ctx, []dedup.Key{{ID: "a"}, {ID: "b"}}, func(ctx context.Context, i int, _ int64) ([]byte, error) {
		cancel(stopping)
		if i == 1 {
			return nil, ctx.Err()
		}
		return nil, nil
	})
	if results[0].Outcome != dedup.Applied || results[1].Outcome != dedup.Unknown || !errors.Is(results[1].Err, stopping) {
		t.Errorf("%+v", results)
	}
	if outcome, _, err := l.Once(ctx, dedup.Key{ID: "c"}, answers("")); outcome != dedup.Unknown || !errors.Is(err, stopping) {
		t.Errorf("%v: %v", outcome, err)
	}
	leased(t, l, "a", dedup.Duplicate, nil, answers(""))
	leased(t, l, "b", dedup.Applied, nil, answers(""))
}

// TestLeaseHandler: what a handler answers to Consume.
func TestLeaseHandler(t *testing.T) {
	s := newFakeLeases()
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{})
	broken := errors.New("broken")
	handle := dedup.LeaseHandler(l, func(_ context.Context, fence int64, d *broker.Delivery) ([]byte, error) {
		if fence == 0 {
			t.Error("no fence")
		}
		if d.ID == "bad" {
			return nil, broken
		}
		return nil, nil
	})
	deliver := func(id string) error {
		return handle(t.Context(), &broker.Delivery{Message: broker.Message{ID: id}})
	}
	if err := errors.Join(deliver("a"), deliver("a")); err != nil {
		t.Error(err)
	}
	if err := deliver("bad"); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := deliver(""); !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
	l.Reserve(t.Context(), dedup.Key{ID: "held"})
	if err := deliver("held"); !errors.Is(err, dedup.ErrInFlight) {
		t.Error(err)
	}
}

// TestLeaseDoubt: an effect that was cut short, or panicked, may have taken place: the
// key is given back, and the next holder is told.
func TestLeaseDoubt(t *testing.T) {
	s := newFakeLeases()
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{})
	for id, effect := range map[string]func(cancel func()) error{
		"cut":    func(cancel func()) error { cancel(); return context.Canceled },
		"panics": func(func()) error { panic("after the payment") },
		"fails":  func(func()) error { return errors.New("declined") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		outcome, _, err := l.Once(ctx, dedup.Key{ID: id}, func(context.Context, int64) ([]byte, error) { return nil, effect(cancel) })
		cancel()
		if outcome.OK() || err == nil {
			t.Errorf("%s: %v", id, outcome)
		}
		if r := l.Reserve(t.Context(), dedup.Key{ID: id})[0]; r.Claim != dedup.Fresh || r.TakenOver != (id != "fails") {
			t.Errorf("%s: %+v", id, r)
		}
	}
}
