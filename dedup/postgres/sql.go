package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/sqltx"
)

// SQL keeps markers and positions in PostgreSQL by database/sql. It implements
// [dedup.Driver] and [dedup.PositionDriver], and is safe for concurrent use. The
// errors of github.com/jackc/pgx/v5/stdlib are understood.
type SQL struct {
	core
	db     *sql.DB
	engine sqltx.Engine
}

var _ dedup.PositionDriver[*sql.Tx] = (*SQL)(nil)

// NewSQL returns a store in db, which stays the caller's, as [New] does for pgx. Each
// transaction takes a round trip more than with pgx, for its timeouts, unless all
// three of them are negative.
func NewSQL(db *sql.DB, o Options) (*SQL, error) {
	if db == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup/postgres: no database")
	}
	s := &SQL{db: db}
	if err := s.core.configure(o, true); err != nil {
		return nil, err
	}
	s.engine = sqltx.Engine{
		DB: db, Options: &sql.TxOptions{Isolation: sql.LevelReadCommitted}, CommitTimeout: s.o.CommitTimeout,
		Refused: func(err error) bool { return !errors.Is(committed(err), dedup.ErrCommitUnknown) },
		Dead:    func(error) bool { return true },
	}
	if s.texts.settings != "" {
		s.engine.Begun = func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, s.texts.settings)
			return err
		}
	}
	s.core.in = func(ctx context.Context, f func(querier) error) error {
		return s.Transact(ctx, func(tx *sql.Tx) error { return f(sqlQuerier{tx}) })
	}
	return s, nil
}

// Transact implements [dedup.Driver].
func (s *SQL) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	return s.engine.Transact(ctx, f)
}

// Claim implements [dedup.Driver].
func (s *SQL) Claim(ctx context.Context, tx *sql.Tx, markers []dedup.Marker, claims []dedup.Claim) error {
	return s.claim(ctx, sqlQuerier{tx}, markers, claims)
}

// Release implements [dedup.Driver].
func (s *SQL) Release(ctx context.Context, tx *sql.Tx, markers []dedup.Marker) error {
	return s.release(ctx, sqlQuerier{tx}, markers)
}

// Savepoint implements [dedup.Driver].
func (s *SQL) Savepoint(ctx context.Context, tx *sql.Tx, again bool) error {
	return savepoint(ctx, sqlQuerier{tx}, again)
}

// Restore implements [dedup.Driver].
func (s *SQL) Restore(ctx context.Context, tx *sql.Tx) error { return restore(ctx, sqlQuerier{tx}) }

// Fault implements [dedup.Driver].
func (s *SQL) Fault(err error) dedup.Fault { return fault(err) }

// LoadPosition implements [dedup.PositionDriver].
func (s *SQL) LoadPosition(ctx context.Context, consumer string, p dedup.Partition) (int64, error) {
	last := dedup.Start
	err := s.db.QueryRowContext(ctx, s.texts.load, consumer, p.Topic, p.Epoch, p.Name).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return dedup.Start, nil
	}
	return last, outsideTx(err)
}

// MovePosition implements [dedup.PositionDriver].
func (s *SQL) MovePosition(ctx context.Context, tx *sql.Tx, consumer string, p dedup.Partition, prev, next int64) (bool, error) {
	return s.movePosition(ctx, sqlQuerier{tx}, consumer, p, prev, next)
}

type sqlQuerier struct{ tx *sql.Tx }

func (q sqlQuerier) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := q.tx.ExecContext(ctx, query, args...)
	if err != nil || len(args) == 0 || strings.HasPrefix(query, "SELECT") {
		return 0, err
	}
	return result.RowsAffected()
}

func (q sqlQuerier) row(ctx context.Context, into []any, query string, args ...any) error {
	return q.tx.QueryRowContext(ctx, query, args...).Scan(into...)
}

func (q sqlQuerier) each(ctx context.Context, scan func(func(...any) error) error, query string, args ...any) error {
	rows, err := q.tx.QueryContext(ctx, query, args...)
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

func (q sqlQuerier) keys(ctx context.Context, f func(key [16]byte), query string, args ...any) error {
	var text string
	return q.each(ctx, func(scan func(...any) error) error {
		err := scan(&text)
		if err == nil {
			f(bytesOf(text))
		}
		return err
	}, query, args...)
}

func (sqlQuerier) keyOf(m dedup.Marker) any { return textOf(m.Bytes) }

func (sqlQuerier) keysOf(markers []dedup.Marker) any {
	b := make([]byte, 0, 2+33*len(markers))
	b = append(b, '{')
	for i := range markers {
		if i > 0 {
			b = append(b, ',')
		}
		b = hex.AppendEncode(b, markers[i].Bytes[:])
	}
	return string(append(b, '}'))
}

func (sqlQuerier) locksOf(markers []dedup.Marker) any {
	b := make([]byte, 0, 2+21*len(markers))
	b = append(b, '{')
	for i := range markers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, markers[i].Lock(), 10)
	}
	return string(append(b, '}'))
}
