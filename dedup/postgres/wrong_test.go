package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// wrong is a database with an inbox as it is often written by hand.
type wrong struct {
	t      *testing.T
	p      *pool
	schema string
}

func (w *wrong) sql(format string) string { return fmt.Sprintf(format, fmt.Sprintf("%q", w.schema)) }

// tx runs f in a transaction of its own.
func (w *wrong) tx(f func(ctx context.Context, tx pgx.Tx) error) error {
	ctx := w.t.Context()
	tx, err := w.p.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		w.t.Error(err)
		return err
	}
	if err := f(ctx, tx); err != nil {
		_ = tx.Rollback(ctx)
		return err
	}
	return tx.Commit(ctx)
}

// marks inserts a marker and reports whether there was none.
func (w *wrong) marks(ctx context.Context, tx pgx.Tx, id string) (bool, error) {
	tag, err := tx.Exec(ctx, w.sql("INSERT INTO %s.inbox (id) VALUES ($1) ON CONFLICT DO NOTHING"), id)
	return tag.RowsAffected() == 1, err
}

func (w *wrong) effect(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, insert(w.schema), id)
	return err
}

// effects returns how many rows of id there are.
func (w *wrong) effects(id string) int {
	got, err := w.p.ledger(w.t.Context(), w.sql("%s.ledger"))
	if err != nil {
		w.t.Error(err)
	}
	return got[id]
}

var errCrash = errors.New("crash")

// TestWrongWays shows the anomalies of inboxes that are written in the ways one
// finds, on a real database: what this package's own tests look for is there to be
// seen.
func TestWrongWays(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 8)
	for _, c := range []struct {
		name, table string
		deliver     func(w *wrong)
		want        string
		anomaly     func(w *wrong) bool
	}{
		{"select, then insert", "CREATE TABLE %s.inbox (id text)", func(w *wrong) {
			// Eight copies at once: all look before one has written.
			var looked, done sync.WaitGroup
			looked.Add(8)
			for range 8 {
				done.Go(func() {
					_ = w.tx(func(ctx context.Context, tx pgx.Tx) error {
						var n int
						err := tx.QueryRow(ctx, w.sql("SELECT count(*) FROM %s.inbox WHERE id = $1"), "m").Scan(&n)
						looked.Done()
						looked.Wait()
						if err != nil || n > 0 {
							return err
						}
						if _, err := w.marks(ctx, tx, "m"); err != nil {
							return err
						}
						return w.effect(ctx, tx, "m")
					})
				})
			}
			done.Wait()
		}, "twice or more", func(w *wrong) bool { return w.effects("m") > 1 }},
		{"marker first, in a transaction of its own", "CREATE TABLE %s.inbox (id text PRIMARY KEY)", func(w *wrong) {
			for _, crash := range []error{errCrash, nil} { // it comes again after the crash
				fresh := false
				_ = w.tx(func(ctx context.Context, tx pgx.Tx) (err error) { fresh, err = w.marks(ctx, tx, "m"); return err })
				if fresh && crash == nil {
					_ = w.tx(func(ctx context.Context, tx pgx.Tx) error { return w.effect(ctx, tx, "m") })
				}
			}
		}, "lost", func(w *wrong) bool { return w.effects("m") == 0 }},
		{"effect first, marker in a transaction of its own", "CREATE TABLE %s.inbox (id text PRIMARY KEY)", func(w *wrong) {
			for _, crash := range []error{errCrash, nil} {
				_ = w.tx(func(ctx context.Context, tx pgx.Tx) error { return w.effect(ctx, tx, "m") })
				if crash == nil {
					_ = w.tx(func(ctx context.Context, tx pgx.Tx) error { _, err := w.marks(ctx, tx, "m"); return err })
				}
			}
		}, "twice", func(w *wrong) bool { return w.effects("m") == 2 }},
		{"partitions by the day of arrival", "CREATE TABLE %s.inbox (id text, day date NOT NULL, PRIMARY KEY (id, day))", func(w *wrong) {
			for _, day := range []string{"2026-03-10", "2026-03-11"} { // a second later, across midnight
				_ = w.tx(func(ctx context.Context, tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, w.sql("INSERT INTO %s.inbox VALUES ($1, $2::text::date) ON CONFLICT DO NOTHING"), "m", day)
					if err != nil || tag.RowsAffected() == 0 {
						return err
					}
					return w.effect(ctx, tx, "m")
				})
			}
		}, "twice", func(w *wrong) bool { return w.effects("m") == 2 }},
		{"a batch's marker outlives its effect", "CREATE TABLE %s.inbox (id text PRIMARY KEY)", func(w *wrong) {
			for _, bad := range []error{errCrash, nil} { // the effect fails, and not when it comes again
				_ = w.tx(func(ctx context.Context, tx pgx.Tx) error {
					fresh, err := w.marks(ctx, tx, "m") // in one statement for the batch
					if err != nil || !fresh {
						return err
					}
					saved, err := tx.Begin(ctx)
					if err != nil {
						return err
					}
					if err := w.effect(ctx, saved, "m"); err != nil || bad != nil {
						return saved.Rollback(ctx) // the effect, and not the marker
					}
					return saved.Commit(ctx)
				})
			}
		}, "lost", func(w *wrong) bool { return w.effects("m") == 0 }},
		{"position lower than the new one", "CREATE TABLE %s.inbox (last bigint)", func(w *wrong) {
			_ = w.tx(func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, w.sql("INSERT INTO %s.inbox VALUES (100)"))
				return err
			})
			apply := func(from, to int) {
				_ = w.tx(func(ctx context.Context, tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, w.sql("UPDATE %s.inbox SET last = $1 WHERE last < $1"), to)
					if err != nil || tag.RowsAffected() == 0 {
						return err
					}
					for o := from; o <= to; o++ {
						if err := w.effect(ctx, tx, fmt.Sprint(o)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			apply(101, 105) // the owner
			apply(101, 110) // one that was replaced, and doesn't know it
			apply(500, 500) // one whose log has a gap in its hands
			apply(111, 120) // the owner again
		}, "some twice, some lost", func(w *wrong) bool { return w.effects("103") == 2 && w.effects("115") == 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &wrong{t, p, newSchema(t, p)}
			p.exec(t, w.sql(c.table))
			c.deliver(w)
			if !c.anomaly(w) {
				t.Errorf("the anomaly (%s) doesn't show", c.want)
			}
		})
	}
}
