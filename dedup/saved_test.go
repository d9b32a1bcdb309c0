package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onceline/onceline/dedup"
)

// savepoints counts those that are set, and what is undone to them.
type savepoints struct {
	*fakeStore
	set, restored int
}

func (s *savepoints) Savepoint(ctx context.Context, tx *fakeTx, again bool) error {
	if again == (s.set == 0) {
		return fmt.Errorf("savepoint %d is set again: %t", s.set, again)
	}
	s.set++
	return s.fakeStore.Savepoint(ctx, tx, again)
}

func (s *savepoints) Restore(ctx context.Context, tx *fakeTx) error {
	s.restored++
	return s.fakeStore.Restore(ctx, tx)
}

// TestSavepoints: a transaction whose effects all go well has one savepoint. Once one has
// failed there are more, until for a while none did.
func TestSavepoints(t *testing.T) {
	s := &savepoints{fakeStore: newFakeStore()}
	in := dedup.New[*fakeTx](s, "c", dedup.Options{})
	broken := errors.New("broken")
	next := 0
	batch := func(set, restored, runs int, bad ...int) {
		t.Helper()
		s.set, s.restored = 0, 0
		ids, fails, ran := make([]string, 100), map[string]bool{}, 0
		for i := range ids {
			ids[i] = fmt.Sprintf("m%05d", next)
			next++
		}
		for _, i := range bad {
			fails[ids[i]] = true
		}
		results, err := dedup.OnceBatch(t.Context(), in, ids, func(id string) dedup.Key { return dedup.Key{ID: id} }, func(ctx context.Context, tx *fakeTx, id string) error {
			ran++
			if fails[id] {
				return broken
			}
			return s.effect(ctx, tx, id)
		})
		if (err != nil) != (len(bad) > 0) {
			t.Error(err)
		}
		for i, r := range results {
			if want := map[bool]dedup.Outcome{true: dedup.Failed, false: dedup.Applied}[fails[ids[i]]]; r.Outcome != want {
				t.Errorf("%s is %v, want %v", ids[i], r.Outcome, want)
			}
		}
		if s.set != set || s.restored != restored || ran != runs {
			t.Errorf("%d savepoints, %d restored, %d runs; want %d, %d and %d", s.set, s.restored, ran, set, restored, runs)
		}
	}
	batch(1, 0, 100)
	batch(1+7, 1, 51+50+49, 50) // the rest has one before every 8
	for range 16 {
		batch(13, 0, 100)
	}
	batch(1, 0, 100)
	batch(2+12, 2, 1+4+3+95, 0, 4)
	batch(13, 1, 100+3, 99) // no more than 8 run again
	batch(13, 0, 100)
}
