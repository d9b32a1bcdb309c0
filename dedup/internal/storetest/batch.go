package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// batch: of ten messages one was applied before and one comes twice; the other
// eight, and the first of those, are applied (JasperFx/wolverine#93).
func batch[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	ids := series("m", 10)
	outcome, err := in.Once(ctx, byID(ids[4]), s.effect(ids[4]))
	is(t, outcome, err, dedup.Applied, nil)
	ids[9] = ids[7]
	want := slices.Repeat([]dedup.Outcome{dedup.Applied}, 10)
	want[4], want[9] = dedup.Duplicate, dedup.Duplicate
	var order []string
	results, err := dedup.OnceBatch(ctx, in, ids, byID, func(ctx context.Context, tx T, id string) error {
		order = append(order, id)
		return s.Effect(ctx, tx, id)
	})
	if err != nil {
		t.Error(err)
	}
	outcomes(t, results, want...)
	if !slices.IsSorted(order) || len(order) != 8 {
		t.Errorf("effects ran in the order %v", order)
	}
	s.ledger(t, each(ids...))
	results, err = dedup.OnceBatch(ctx, in, ids, byID, s.Effect)
	if err != nil {
		t.Error(err)
	}
	outcomes(t, results, slices.Repeat([]dedup.Outcome{dedup.Duplicate}, 10)...)
	if results, err := dedup.OnceBatch(ctx, in, nil, byID, s.Effect); len(results) != 0 || err != nil {
		t.Errorf("empty batch: %v, %v", results, err)
	}
	s.ledger(t, each(ids...))
}

// batchFailed: effects that fail, in all ways, leave nothing and take nothing with
// them; their markers are gone, so that they are applied when they come again.
func batchFailed[T any](t *testing.T, s Setup[T]) {
	ctx := t.Context()
	for _, every := range []int{0, 1, 4, 16} {
		o := quick
		o.SavepointEvery = every
		in := dedup.New[T](s.Driver, fmt.Sprint("every-", every), o)
		ids := series(fmt.Sprint("m", every), 40)
		ids[39] = ids[7] // a copy of one that fails
		broken := errors.New("broken")
		fails := map[string]func(ctx context.Context, tx T) error{
			ids[0]:  func(context.Context, T) error { return broken },
			ids[6]:  s.Bad,
			ids[7]:  func(ctx context.Context, tx T) error { return errors.Join(s.Effect(ctx, tx, ids[7]), broken) },
			ids[17]: func(context.Context, T) error { panic(broken) },
			ids[38]: func(ctx context.Context, tx T) error { return fmt.Errorf("wrapped: %w", s.Bad(ctx, tx)) },
		}
		runs := map[string]int{}
		results, err := dedup.OnceBatch(ctx, in, ids, byID, func(ctx context.Context, tx T, id string) error {
			runs[id]++
			if fail := fails[id]; fail != nil {
				return fail(ctx, tx)
			}
			return s.Effect(ctx, tx, id)
		})
		if !errors.Is(err, broken) {
			t.Errorf("error %v, want that of the first message", err)
		}
		want := slices.Repeat([]dedup.Outcome{dedup.Applied}, 40)
		ledger := each(ids...)
		for i, id := range ids {
			if fails[id] != nil {
				want[i] = dedup.Failed
				delete(ledger, id)
			}
			if every == 1 && i < 39 && runs[id] != 1 {
				t.Errorf("%s ran %d times", id, runs[id])
			}
		}
		want[39] = dedup.InFlight
		outcomes(t, results, want...)
		var p *broker.PanicError
		if !errors.As(results[17].Err, &p) || !errors.Is(results[17].Err, broken) {
			t.Errorf("panic is %v", results[17].Err)
		}
		got, err := s.Ledger(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if got[id] != ledger[id] {
				t.Errorf("every %d: %d effects of %s, want %d", every, got[id], id, ledger[id])
			}
		}
		results, err = dedup.OnceBatch(ctx, in, ids, byID, s.Effect)
		if err != nil {
			t.Error(err)
		}
		for i, id := range ids[:39] {
			if applied := results[i].Outcome == dedup.Applied; applied != (fails[id] != nil) {
				t.Errorf("again, %s is %v", id, results[i].Outcome)
			}
		}
		// All of a batch fail: there is nothing to commit.
		results, _ = dedup.OnceBatch(ctx, in, []string{"x", "y"}, byID, func(context.Context, T, string) error { return broken })
		outcomes(t, results, dedup.Failed, dedup.Failed)
	}
}

// batchSwallowed: an effect that hides its statement's error fails alone.
func batchSwallowed[T any](t *testing.T, s Setup[T]) {
	if !s.Aborts {
		t.Log("a refused statement leaves the transaction usable here: nothing to hide")
	}
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	ids := series("m", 12)
	for _, hides := range []int{3, 11} {
		results, _ := dedup.OnceBatch(ctx, in, ids, byID, func(ctx context.Context, tx T, id string) error {
			err := s.Effect(ctx, tx, id)
			if id == ids[hides] {
				_ = s.Bad(ctx, tx)
			}
			return err
		})
		for i, r := range results {
			if ok := !s.Aborts || i != hides; ok != r.Outcome.OK() {
				t.Errorf("message %d is %v: %v", i, r.Outcome, r.Err)
			}
		}
		if s.Aborts && results[hides].Outcome != dedup.Failed && hides == 3 {
			t.Errorf("message %d is %v", hides, results[hides].Outcome)
		}
		if hides == 3 && s.Aborts { // so that the second round has something to do
			ids = series("n", 12)
		}
	}
	want := each(append(series("m", 12), ids...)...)
	if s.Aborts {
		delete(want, "m-003")
		delete(want, "n-011")
	}
	s.ledger(t, want)
}

// batchLanes: what comes behind a message of its lane that wasn't applied waits.
func batchLanes[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", dedup.Options{MaxBatch: 5, SavepointEvery: 3})
	ids := series("m", 12)
	lanes := []string{"a", "b", "a", "", "b", "a", "b", "", "a", "b", "", "a"}
	b := dedup.Batch{Lanes: lanes}
	for _, id := range ids {
		b.Keys = append(b.Keys, byID(id))
	}
	broken := errors.New("broken")
	bad := map[int]bool{2: true, 3: true}
	effects := dedup.EachSaved(in, lanes, func(ctx context.Context, tx T, i int) error {
		if bad[i] {
			return broken
		}
		return s.Effect(ctx, tx, ids[i])
	})
	results, err := in.Apply(ctx, b, effects)
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	ok, no, wait := dedup.Applied, dedup.Failed, dedup.InFlight
	outcomes(t, results, ok, ok, no, no, ok, wait, ok, ok, wait, ok, ok, wait)
	if !errors.Is(results[5].Err, dedup.ErrHeldBack) || !errors.Is(results[11].Err, dedup.ErrHeldBack) {
		t.Errorf("held back by %v and %v", results[5].Err, results[11].Err)
	}
	clear(bad)
	results, err = in.Apply(ctx, b, effects)
	if err != nil {
		t.Error(err)
	}
	dup := dedup.Duplicate
	outcomes(t, results, dup, dup, ok, ok, dup, ok, dup, dup, ok, dup, dup, ok)
	s.ledger(t, each(ids...))
}

// batchLarge: more messages than a transaction takes.
func batchLarge[T any](t *testing.T, s Setup[T]) {
	o := quick
	o.MaxBatch = 30
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", o)
	ids := series("m", 100)
	slices.Reverse(ids)
	results, err := dedup.OnceBatch(ctx, in, ids, byID, s.Effect)
	if err != nil {
		t.Error(err)
	}
	outcomes(t, results, slices.Repeat([]dedup.Outcome{dedup.Applied}, 100)...)
	s.ledger(t, each(ids...))
	// An invalid key harms no other message.
	results, err = dedup.OnceBatch(ctx, in, []string{"", "x"}, byID, s.Effect)
	outcomes(t, results, dedup.Failed, dedup.Applied)
	if !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
}

// claimTx: who owns the transaction claims in it, and takes back.
func claimTx[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	outcome, err := in.Once(ctx, byID("b"), s.effect("b"))
	is(t, outcome, err, dedup.Applied, nil)
	err = s.Driver.Transact(ctx, func(tx T) error {
		claims, err := in.ClaimTx(ctx, tx, byID("c"), byID("b"), byID("a"), byID("c"))
		if want := []dedup.Claim{dedup.Fresh, dedup.Seen, dedup.Fresh, dedup.Seen}; err != nil || !slices.Equal(claims, want) {
			t.Errorf("%v, %v; want %v", claims, err, want)
		}
		if claims, err = in.ClaimTx(ctx, tx, byID("a")); err != nil || claims[0] != dedup.Seen {
			t.Errorf("again: %v, %v", claims, err)
		}
		if _, err := in.ClaimTx(ctx, tx, byID("")); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("empty ID: %v", err)
		}
		return errors.Join(s.Effect(ctx, tx, "a"), in.ReleaseTx(ctx, tx, byID("c")))
	})
	if err != nil {
		t.Fatal(err)
	}
	results, _ := dedup.OnceBatch(ctx, in, []string{"a", "b", "c"}, byID, s.Effect)
	outcomes(t, results, dedup.Duplicate, dedup.Duplicate, dedup.Applied)
	s.ledger(t, each("a", "b", "c"))
}
