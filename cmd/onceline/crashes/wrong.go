package crashes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
)

// WrongCell is a cell of a store that is written wrong, and what has to show.
type WrongCell struct {
	Cell
	// Shows is the anomaly: Twice or Never.
	Shows Seen
}

// wrongWay is a way in which stores are written, and where it goes wrong.
type wrongWay struct {
	name, what, server string
	on                 func(ctx context.Context, address string, w *wires) (*database, error)
	guard              func(ctx context.Context, w *worker, d *database) (*guard, error)
	kind               kind
	point              Point
	disturbance        Disturbance
	shows              Seen
}

// wrongWays are the usual ones.
var wrongWays = []wrongWay{
	{"sqlite: select, then insert", "looks for the marker, and writes it with the effect", "", openSQLite, wrongSQL(selectFirst), inboxKind, AfterClaim, Freeze, Twice},
	{"sqlite: marker first", "commits the marker, and then the effect", "", openSQLite, wrongSQL(markerFirst), inboxKind, AfterClaim, Kill, Never},
	{"sqlite: marker last", "commits the effect, and then the marker", "", openSQLite, wrongSQL(markerLast), inboxKind, AfterEffect, Kill, Twice},
	{"sqlite: day of arrival", "marks by ID and the day on which the copy came", "", openSQLite, wrongSQL(markerDay), inboxKind, AfterCommit, Kill, Twice},
	{"sqlite: lower position", "moves the position if it is lower than the batch's last offset", "", openSQLite, wrongPosition, positionKind, BeforeClaim, Freeze, Twice},
	{"postgres: select, then insert", "looks for the marker, and writes it with the effect, in one transaction", Postgres, openPostgres, wrongSQL(selectInside), inboxKind, AfterClaim, Freeze, Twice},
	{"postgres: marker first", "commits the marker, and then the effect", Postgres, openPostgres, wrongSQL(markerFirst), inboxKind, AfterClaim, Kill, Never},
	{"postgres: marker last", "commits the effect, and then the marker", Postgres, openPostgres, wrongSQL(markerLast), inboxKind, AfterEffect, Kill, Twice},
	{"postgres: day of arrival", "marks by ID and the day on which the copy came", Postgres, openPostgres, wrongSQL(markerDay), inboxKind, AfterCommit, Kill, Twice},
	{"postgres: lower position", "moves the position if it is lower than the batch's last offset", Postgres, openPostgres, wrongPosition, positionKind, BeforeClaim, Freeze, Twice},
	{"redis: unfenced DEL", "SET NX for a while, and DEL by who takes itself for failed", Redis, nil, wrongLease(2, true), leaseKind, AfterClaim, Freeze, Twice},
	{"redis: a day's TTL", "SET NX for a day", Redis, nil, wrongLease(86400, false), leaseKind, AfterClaim, Kill, Never},
}

func wrongStores() []Store {
	var stores []Store
	for _, w := range wrongWays {
		stores = append(stores, Store{Name: w.name, What: w.what, Server: w.server, Wrong: true, kind: w.kind, on: w.on, guard: w.guard})
	}
	return stores
}

// WrongCells returns the cells in which the wrong stores show what is wrong.
func WrongCells(brokers []string) []WrongCell {
	var cells []WrongCell
	for _, w := range wrongWays {
		for _, b := range brokers {
			if w.kind == positionKind && b == NATS {
				continue // it has no log that a consumer owns
			}
			cells = append(cells, WrongCell{Cell{w.name, b, w.point, w.disturbance}, w.shows})
		}
	}
	return cells
}

// way is how a wrong store in SQL applies a message.
type way func(ctx context.Context, w *worker, d *database, id string) error

func wrongSQL(how way) func(context.Context, *worker, *database) (*guard, error) {
	return func(_ context.Context, w *worker, d *database) (*guard, error) {
		return &guard{handle: func(ctx context.Context, m *broker.Delivery) error {
			if err := how(ctx, w, d, m.ID); err != nil {
				return broker.Postpone(err, retryDelay)
			}
			return nil
		}}, nil
	}
}

// in runs f in a transaction.
func in(ctx context.Context, d *database, f func(tx *sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// marks writes a marker, and reports whether there was none.
func marks(ctx context.Context, tx *sql.Tx, table, columns, values string, args ...any) (bool, error) {
	result, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO NOTHING", table, columns, values), args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func there(ctx context.Context, q querier, table, id string) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE id = $1", id).Scan(&n)
	return n > 0, err
}

// both writes marker and effect, of which nothing prevents a second one.
func both(ctx context.Context, w *worker, d *database, tx *sql.Tx, id string) error {
	if _, err := marks(ctx, tx, "wrong_marker", "id", "$1", id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.insert, id)
	w.reach(AfterEffect, id)
	return err
}

func selectFirst(ctx context.Context, w *worker, d *database, id string) error {
	if seen, err := there(ctx, d.db, "wrong_marker", id); err != nil || seen {
		return err
	}
	w.reach(AfterClaim, id)
	return in(ctx, d, func(tx *sql.Tx) error { return both(ctx, w, d, tx, id) })
}

func selectInside(ctx context.Context, w *worker, d *database, id string) error {
	return in(ctx, d, func(tx *sql.Tx) error {
		if seen, err := there(ctx, tx, "wrong_marker", id); err != nil || seen {
			return err
		}
		w.reach(AfterClaim, id)
		return both(ctx, w, d, tx, id)
	})
}

func markerFirst(ctx context.Context, w *worker, d *database, id string) error {
	fresh := false
	err := in(ctx, d, func(tx *sql.Tx) (err error) {
		fresh, err = marks(ctx, tx, "wrong_marker_once", "id", "$1", id)
		return err
	})
	if err != nil || !fresh {
		return err
	}
	w.reach(AfterClaim, id)
	_, err = d.db.ExecContext(ctx, d.insert, id)
	return err
}

func markerLast(ctx context.Context, w *worker, d *database, id string) error {
	if seen, err := there(ctx, d.db, "wrong_marker_once", id); err != nil || seen {
		return err
	}
	if _, err := d.db.ExecContext(ctx, d.insert, id); err != nil {
		return err
	}
	w.reach(AfterEffect, id)
	return in(ctx, d, func(tx *sql.Tx) error {
		_, err := marks(ctx, tx, "wrong_marker_once", "id", "$1", id)
		return err
	})
}

func markerDay(ctx context.Context, w *worker, d *database, id string) error {
	return in(ctx, d, func(tx *sql.Tx) error {
		fresh, err := marks(ctx, tx, "wrong_marker_day", "id, day", "$1, $2", id, w.spec.Day)
		if err != nil || !fresh {
			return err
		}
		_, err = tx.ExecContext(ctx, d.insert, id)
		return err
	})
}

// lower is a position that is moved if it is lower than the new one.
type lower struct {
	w *worker
	d *database
}

func wrongPosition(_ context.Context, w *worker, d *database) (*guard, error) {
	return &guard{position: lower{w, d}}, nil
}

func (l lower) load(ctx context.Context) (last int64, err error) {
	_, err = l.d.db.ExecContext(ctx, "INSERT INTO wrong_position (name, last) VALUES ($1, -1) ON CONFLICT DO NOTHING", l.w.spec.Cell)
	if err == nil {
		err = l.d.db.QueryRowContext(ctx, "SELECT last FROM wrong_position WHERE name = $1", l.w.spec.Cell).Scan(&last)
	}
	return last, err
}

func (l lower) apply(ctx context.Context, _ int64, ds []broker.Delivery) (int64, error) {
	last := int64(ds[len(ds)-1].Position.Offset)
	return last, in(ctx, l.d, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE wrong_position SET last = $1 WHERE name = $2 AND last < $1", last, l.w.spec.Cell)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err != nil || n == 0 {
			return err
		}
		for i := range ds {
			if _, err := tx.ExecContext(ctx, l.d.insert, ds[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
}
