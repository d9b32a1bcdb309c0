package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// DB is what a store needs of pgx: a *pgxpool.Pool, or a *pgx.Conn for a store that
// one goroutine uses.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store keeps markers and positions in PostgreSQL by pgx. It implements
// [dedup.Driver] and [dedup.PositionDriver], and is safe for concurrent use if its
// DB is.
type Store struct {
	core
	db DB
}

var _ dedup.PositionDriver[pgx.Tx] = (*Store)(nil)

// New returns a store in db, which stays the caller's. It doesn't ask the database:
// [Store.Migrate] and [Store.Verify] do. Options that can't be are
// [broker.ErrInvalid].
func New(db DB, o Options) (*Store, error) {
	if db == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup/postgres: no database")
	}
	s := &Store{db: db}
	if err := s.core.configure(o, false); err != nil {
		return nil, err
	}
	s.core.in = func(ctx context.Context, f func(querier) error) error {
		return s.Transact(ctx, func(tx pgx.Tx) error { return f(pgxQuerier{tx}) })
	}
	return s, nil
}

// rollbackTimeout bounds a roll-back, whose loss costs a connection and nothing else.
const rollbackTimeout = 5 * time.Second

// Transact implements [dedup.Driver].
func (s *Store) Transact(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.texts.begin})
	if err != nil {
		return fmt.Errorf("%w: begin: %w", dedup.ErrLost, err)
	}
	ended := false
	defer func() {
		if !ended { // f panicked, or ended the goroutine
			_ = s.rollback(ctx, tx)
		}
	}()
	if err = f(tx); err == nil {
		err = ctx.Err()
	}
	ended = true
	if err != nil {
		conn := tx.Conn()
		if s.rollback(ctx, tx) != nil {
			closed(ctx, conn)
			return fmt.Errorf("%w: %w", dedup.ErrLost, err)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.CommitTimeout)
	defer cancel()
	return committed(tx.Commit(ctx))
}

func (s *Store) rollback(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return tx.Rollback(ctx)
}

// closed waits a little until a lost connection is closed, so that the server ends
// its transaction, and with it its claims, before they are tried again.
func closed(ctx context.Context, c *pgx.Conn) {
	if !c.IsClosed() {
		return
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-c.PgConn().CleanupDone():
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Claim implements [dedup.Driver].
func (s *Store) Claim(ctx context.Context, tx pgx.Tx, markers []dedup.Marker, claims []dedup.Claim) error {
	return s.claim(ctx, pgxQuerier{tx}, markers, claims)
}

// Release implements [dedup.Driver].
func (s *Store) Release(ctx context.Context, tx pgx.Tx, markers []dedup.Marker) error {
	return s.release(ctx, pgxQuerier{tx}, markers)
}

// Savepoint implements [dedup.Driver].
func (s *Store) Savepoint(ctx context.Context, tx pgx.Tx, again bool) error {
	return savepoint(ctx, pgxQuerier{tx}, again)
}

// Restore implements [dedup.Driver].
func (s *Store) Restore(ctx context.Context, tx pgx.Tx) error {
	return restore(ctx, pgxQuerier{tx})
}

// Fault implements [dedup.Driver].
func (s *Store) Fault(err error) dedup.Fault { return fault(err) }

// LoadPosition implements [dedup.PositionDriver].
func (s *Store) LoadPosition(ctx context.Context, consumer string, p dedup.Partition) (int64, error) {
	last := dedup.Start
	err := s.db.QueryRow(ctx, s.texts.load, consumer, p.Topic, p.Epoch, p.Name).Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return dedup.Start, nil
	}
	return last, outsideTx(err)
}

// MovePosition implements [dedup.PositionDriver].
func (s *Store) MovePosition(ctx context.Context, tx pgx.Tx, consumer string, p dedup.Partition, prev, next int64) (bool, error) {
	return s.movePosition(ctx, pgxQuerier{tx}, consumer, p, prev, next)
}

// querier is what the two kinds of transaction have in common.
type querier interface {
	exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	row(ctx context.Context, into []any, query string, args ...any) error
	each(ctx context.Context, scan func(scan func(into ...any) error) error, query string, args ...any) error
	// keys calls f for each row, which is a marker's key.
	keys(ctx context.Context, f func(key [16]byte), query string, args ...any) error
	// What the driver takes as arguments for uuid, uuid[] and bigint[].
	keyOf(dedup.Marker) any
	keysOf([]dedup.Marker) any
	locksOf([]dedup.Marker) any
}

type pgxQuerier struct {
	tx interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}
}

func (q pgxQuerier) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := q.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (q pgxQuerier) row(ctx context.Context, into []any, query string, args ...any) error {
	return q.tx.QueryRow(ctx, query, args...).Scan(into...)
}

func (q pgxQuerier) each(ctx context.Context, scan func(func(...any) error) error, query string, args ...any) error {
	rows, err := q.tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (q pgxQuerier) keys(ctx context.Context, f func(key [16]byte), query string, args ...any) error {
	rows, err := q.tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var key [16]byte
	for rows.Next() {
		if err := rows.Scan(&key); err != nil {
			return err
		}
		f(key)
	}
	return rows.Err()
}

// keyOf returns a type that pgx knows also in the modes in which it doesn't ask the
// server for the types of parameters.
func (pgxQuerier) keyOf(m dedup.Marker) any { return pgtype.UUID{Bytes: m.Bytes, Valid: true} }

func (pgxQuerier) keysOf(markers []dedup.Marker) any {
	keys := make([]pgtype.UUID, len(markers))
	for i := range markers {
		keys[i] = pgtype.UUID{Bytes: markers[i].Bytes, Valid: true}
	}
	return keys
}

func (pgxQuerier) locksOf(markers []dedup.Marker) any {
	locks := make([]int64, len(markers))
	for i := range markers {
		locks[i] = markers[i].Lock()
	}
	return locks
}
