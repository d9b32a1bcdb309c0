// Package storetest is the table of behaviours that every store of package dedup
// has, as tests.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

// Setup is a store to be tested, empty, with a ledger in its database: a table that
// gets a row with a message's ID for each effect, and has nothing that would keep
// out a second one.
type Setup[T any] struct {
	Driver dedup.PositionDriver[T]
	// Effect writes a row.
	Effect func(ctx context.Context, tx T, id string) error
	// Bad runs a statement that the database refuses.
	Bad func(ctx context.Context, tx T) error
	// Ledger returns how many rows each ID has.
	Ledger func(ctx context.Context) (map[string]int, error)
	// Aborts: after Bad the transaction takes no other statement.
	Aborts bool
	// Concurrent: two transactions can write at a time.
	Concurrent bool
}

// Run runs all behaviours, each on a Setup of its own.
func Run[T any](t *testing.T, setup func(t *testing.T) Setup[T]) {
	for _, b := range []struct {
		name string
		test func(*testing.T, Setup[T])
	}{
		{"Once", once[T]},
		{"Failed", failed[T]},
		{"RefusedStatement", refusedStatement[T]},
		{"SwallowedError", swallowedError[T]},
		{"Cancel", cancelled[T]},
		{"Bucket", bucket[T]},
		{"Batch", batch[T]},
		{"BatchFailed", batchFailed[T]},
		{"BatchSwallowed", batchSwallowed[T]},
		{"BatchLanes", batchLanes[T]},
		{"BatchLarge", batchLarge[T]},
		{"ClaimTx", claimTx[T]},
		{"InFlight", inFlight[T]},
		{"Copies", copies[T]},
		{"CopiesInBatches", copiesInBatches[T]},
		{"Pairs", pairs[T]},
		{"CrashPoints", crashPoints[T]},
		{"BusyEffect", busyEffect[T]},
		{"Position", position[T]},
		{"PositionFenced", positionFenced[T]},
		{"PositionFailed", positionFailed[T]},
		{"PositionOwners", positionOwners[T]},
		{"PositionCrashPoints", positionCrashPoints[T]},
	} {
		t.Run(b.name, func(t *testing.T) { b.test(t, setup(t)) })
	}
}

// effect returns an effect that writes id.
func (s *Setup[T]) effect(id string) func(context.Context, T) error {
	return func(ctx context.Context, tx T) error { return s.Effect(ctx, tx, id) }
}

// ledger checks that the ledger has exactly want, by ID.
func (s *Setup[T]) ledger(t *testing.T, want map[string]int) {
	t.Helper()
	got, err := s.Ledger(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range want {
		if got[id] != n {
			t.Errorf("%d effects of %s, want %d", got[id], id, n)
		}
	}
	for id, n := range got {
		if _, ok := want[id]; !ok {
			t.Errorf("%d effects of %s, want none", n, id)
		}
	}
}

// each returns ledger's want for one effect of each ID.
func each(ids ...string) map[string]int {
	m := map[string]int{}
	for _, id := range ids {
		m[id] = 1
	}
	return m
}

// series returns n IDs.
func series(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return ids
}

func byID(id string) dedup.Key { return dedup.Key{ID: id} }

// is checks an outcome and that the error is one of what.
func is(t *testing.T, outcome dedup.Outcome, err error, want dedup.Outcome, what error) {
	t.Helper()
	if outcome != want || !errors.Is(err, what) {
		t.Errorf("%v: %v; want %v: %v", outcome, err, want, what)
	}
}

// outcomes checks those of a batch.
func outcomes(t *testing.T, results []dedup.Result, want ...dedup.Outcome) {
	t.Helper()
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d", len(results), len(want))
	}
	for i, r := range results {
		if r.Outcome != want[i] {
			t.Errorf("message %d: %v: %v; want %v", i, r.Outcome, r.Err, want[i])
		}
		if (r.Err == nil) != r.Outcome.OK() {
			t.Errorf("message %d: %v with error %v", i, r.Outcome, r.Err)
		}
	}
}

// quick are options that don't wait.
var quick = dedup.Options{Attempts: 4, Rand: func() float64 { return 0 }}

// patience bounds what a test waits for.
const patience = 30 * time.Second
