package crashes

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// quick are options that come to an end soon: what is given back comes again.
var quick = dedup.Options{Attempts: 3, Backoff: broker.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}}

// hooked is a store that stops before its commit, and in it.
type hooked[T any] struct {
	dedup.PositionDriver[T]
	w     *worker
	wires *wires // nil where no commit goes over a connection
}

func (h hooked[T]) Transact(ctx context.Context, f func(T) error) error {
	return h.PositionDriver.Transact(ctx, func(tx T) error {
		if err := f(tx); err != nil {
			return err
		}
		h.w.commits(h.wires)
		return nil
	})
}

// commits is called as the last thing before a commit.
func (w *worker) commits(lines *wires) {
	id := w.now()
	w.reach(BeforeCommit, id)
	t := w.take(InCommit, id)
	switch {
	case t == nil:
	case lines != nil:
		lines.arm(t)
	default:
		w.passed = w.begin(event{Event: passing, ID: id, Point: InCommit})
	}
}

func inbox(_ context.Context, w *worker, d *database) (*guard, error) {
	return inboxOver(w, d, d.store, func(ctx context.Context, tx *sql.Tx, id string) error {
		_, err := tx.ExecContext(ctx, d.insert, id)
		return err
	}), nil
}

func inboxPgx(_ context.Context, w *worker, d *database) (*guard, error) {
	return inboxOver(w, d, d.pgx, func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, d.insert, id)
		return err
	}), nil
}

func inboxOver[T any](w *worker, d *database, driver dedup.PositionDriver[T], insert func(ctx context.Context, tx T, id string) error) *guard {
	in := dedup.New[T](hooked[T]{driver, w, d.wires}, w.spec.Cell, quick)
	return &guard{handle: dedup.Handler(in, func(ctx context.Context, tx T, m *broker.Delivery) error {
		w.reach(AfterClaim, m.ID)
		if err := insert(ctx, tx, m.ID); err != nil {
			return err
		}
		w.reach(AfterEffect, m.ID)
		return nil
	}, dedup.RetryDelay(retryDelay))}
}

// stored is a stored position.
type stored struct {
	*dedup.Position[*sql.Tx]
	w  *worker
	d  *database
	at dedup.Partition
}

func positions(_ context.Context, w *worker, d *database) (*guard, error) {
	p := dedup.NewPosition[*sql.Tx](hooked[*sql.Tx]{d.store, w, d.wires}, "consumer", quick)
	return &guard{position: stored{p, w, d, dedup.Partition{Topic: w.spec.Cell}}}, nil
}

func (p stored) load(ctx context.Context) (int64, error) { return p.Load(ctx, p.at) }

func (p stored) apply(ctx context.Context, prev int64, ds []broker.Delivery) (int64, error) {
	return dedup.AppliedFrom(ctx, p.Position, p.at, prev, ds, func(d broker.Delivery) int64 { return int64(d.Position.Offset) },
		func(ctx context.Context, tx *sql.Tx, m broker.Delivery) error {
			first := m.ID == p.w.now() // of a batch
			if first {
				p.w.reach(AfterClaim, m.ID)
			}
			if _, err := tx.ExecContext(ctx, p.d.insert, m.ID); err != nil {
				return err
			}
			if first {
				p.w.reach(AfterEffect, m.ID)
			}
			return nil
		})
}

// hookedCalls stops before the record that a call is done, and in its commit.
type hookedCalls struct {
	dedup.CallDriver
	w     *worker
	wires *wires
}

func (h hookedCalls) ChangeCall(ctx context.Context, c dedup.Call) (bool, error) {
	if c.State == dedup.CallDone {
		h.w.commits(h.wires)
	}
	return h.CallDriver.ChangeCall(ctx, c)
}

func callOptions(keyed bool) dedup.CallOptions {
	o := dedup.CallOptions{Bound: callBound, Attempts: quick.Attempts, Backoff: quick.Backoff}
	if keyed {
		o.Idempotent = time.Hour
	}
	return o
}

func calls(keyed bool) func(context.Context, *worker, *database) (*guard, error) {
	return func(_ context.Context, w *worker, d *database) (*guard, error) {
		c, err := dedup.NewCalls(hookedCalls{d.calls, w, d.wires}, w.spec.Cell, callOptions(keyed))
		if err != nil {
			return nil, err
		}
		return &guard{handle: dedup.CallHandler(c, func(_ context.Context, key string, m *broker.Delivery) ([]byte, error) {
			if !keyed {
				key = ""
			}
			// One that was frozen doesn't look at its time before it goes on.
			return []byte("done"), w.outside(m.ID, key, 0)
		}, dedup.RetryDelay(retryDelay))}, nil
	}
}

// database is an SQL database with the stores of package dedup in it, and a ledger.
type database struct {
	db    *sql.DB
	store dedup.PositionDriver[*sql.Tx]
	calls dedup.CallDriver
	pgx   dedup.PositionDriver[pgx.Tx] // of PostgreSQL
	wires *wires
	// insert is an effect, count tells how often each ID's with a prefix took place.
	insert, count string
	// tables makes what isn't the stores' own.
	tables []string
	ends   []func() error
}

func (d *database) close() error {
	var errs []error
	for _, end := range d.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// prepare makes the tables. text is a type for IDs.
func (d *database) prepare(ctx context.Context) error {
	if m, ok := d.store.(interface{ Migrate(context.Context) error }); ok {
		if err := m.Migrate(ctx); err != nil {
			return err
		}
	}
	if v, ok := d.store.(interface{ Verify(context.Context) error }); ok {
		if err := v.Verify(ctx); err != nil {
			return err
		}
	}
	for _, text := range d.tables {
		if _, err := d.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// tablesOf are the ledger, and what stores that are written wrong keep.
func tablesOf(text string) []string {
	return []string{
		"CREATE TABLE ledger (id " + text + " NOT NULL)",
		"CREATE TABLE wrong_marker (id " + text + " NOT NULL)",
		"CREATE TABLE wrong_marker_once (id " + text + " PRIMARY KEY)",
		"CREATE TABLE wrong_marker_day (id " + text + " NOT NULL, day INT NOT NULL, PRIMARY KEY (id, day))",
		"CREATE TABLE wrong_position (name " + text + " PRIMARY KEY, last BIGINT NOT NULL)",
	}
}

// effects counts by ID.
func (d *database) effects(ctx context.Context, cell string) (map[string]int, error) {
	rows, err := d.db.QueryContext(ctx, d.count, cell+"-%")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		got[id] = n
	}
	return got, rows.Err()
}
