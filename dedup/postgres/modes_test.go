package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// TestExecModes: all ways in which pgx can send statements, of which those behind a
// pooler need the ones that prepare nothing.
func TestExecModes(t *testing.T) {
	t.Parallel()
	db := start(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			p := connect(t, db, 2)
			p.config.DefaultQueryExecMode = mode
			s, schema := open(t, p, postgres.Options{})
			in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
			ids := series("m", 40)
			effect := func(id string) func(context.Context, pgx.Tx) error {
				return func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insert(schema), id)
					return err
				}
			}
			at := time.Now()
			for i, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
				if outcome, err := in.Once(t.Context(), byID(ids[0]), effect(ids[0])); outcome != want || err != nil {
					t.Errorf("plain %d: %v: %v", i, outcome, err)
				}
				if outcome, err := in.Once(t.Context(), dedup.Key{ID: ids[1], At: at}, effect(ids[1])); outcome != want || err != nil {
					t.Errorf("timed %d: %v: %v", i, outcome, err)
				}
			}
			results, err := postgres.OncePipelined(t.Context(), in, ids[2:], byID, func(b *pgx.Batch, id string) {
				b.Queue(insert(schema), id)
				if id == ids[20] {
					b.Queue(insert(schema), nil)
				}
			})
			for i, r := range results {
				if (r.Outcome == dedup.Applied) != (i != 18) {
					t.Errorf("message %d is %v: %v", i, r.Outcome, r.Err)
				}
			}
			if err == nil {
				t.Error("no error of the bad one")
			}
			broken := errors.New("broken")
			results, _ = dedup.OnceBatch(t.Context(), in, []string{"x", "y", ids[20]}, byID, func(ctx context.Context, tx pgx.Tx, id string) error {
				if id == "y" {
					return broken
				}
				return effect(id)(ctx, tx)
			})
			if results[0].Outcome != dedup.Applied || results[1].Outcome != dedup.Failed || results[2].Outcome != dedup.Applied {
				t.Errorf("batch: %v", results)
			}
			check(t, p, schema, append(ids, "x"), func(int) bool { return true })
			pos := dedup.NewPosition[pgx.Tx](s, "c", dedup.Options{})
			for i := range int64(2) {
				last, err := dedup.AppliedFrom(t.Context(), pos, dedup.Partition{Topic: "orders"}, i-1, []int64{i}, func(o int64) int64 { return o },
					func(context.Context, pgx.Tx, int64) error { return nil })
				if last != i || err != nil {
					t.Errorf("position %d, %v", last, err)
				}
			}
			if _, err := s.Maintain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPairs: ten thousand messages, each handled by all of two and of eight
// consumers at the same time (Particular/NServiceBus#4086).
func TestPairs(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 8)
	for _, consumers := range []int{2, 8} {
		s, schema := open(t, p, postgres.Options{})
		in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
		ids := series("m", 10_000)
		var wg sync.WaitGroup
		barrier := make(chan struct{})
		for range consumers {
			wg.Go(func() {
				<-barrier
				for from := 0; from < len(ids); from += 500 { // all are in the same five hundred
					todo := append([]string(nil), ids[from:from+500]...)
					for len(todo) > 0 {
						rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
						results, err := postgres.OncePipelined(t.Context(), in, todo, byID, func(b *pgx.Batch, id string) { b.Queue(insert(schema), id) })
						var open []string
						for i, r := range results {
							switch r.Outcome {
							case dedup.Applied, dedup.Duplicate:
							case dedup.InFlight:
								open = append(open, todo[i])
							default:
								t.Errorf("%s: %v: %v", todo[i], r.Outcome, err)
								return
							}
						}
						todo = open
					}
				}
			})
		}
		began := time.Now()
		close(barrier)
		wg.Wait()
		st := in.Stats()
		t.Logf("%d consumers: %v, %+v", consumers, time.Since(began).Round(time.Millisecond), st)
		if st.Applied != uint64(len(ids)) || st.Duplicate != uint64(len(ids)*(consumers-1)) {
			t.Errorf("%d consumers: %+v", consumers, st)
		}
		got, err := p.ledger(t.Context(), fmt.Sprintf("%q.ledger", schema))
		if err != nil || len(got) != len(ids) {
			t.Errorf("%d messages have effects, %v", len(got), err)
		}
		for id, n := range got {
			if n != 1 {
				t.Errorf("%d effects of %s", n, id)
			}
		}
	}
}
