package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/dedup"
)

var _ dedup.CallDriver = (*Store)(nil)

const callColumns = "consumer, id, state, version, token, attempts, began, changed, due, request, result, note"

// scanCall reads a row of callColumns.
func scanCall(scan func(...any) error) (c dedup.Call, err error) {
	var id, token []byte
	var first, changed, due int64
	err = scan(&c.Consumer, &id, &c.State, &c.Version, &token, &c.Attempts, &first, &changed, &due, &c.Request, &c.Result, &c.Note)
	copy(c.Token[:], token)
	c.ID, c.First, c.Changed, c.Due = string(id), time.UnixMicro(first), time.UnixMicro(changed), time.UnixMicro(due)
	return c, err
}

func loadCall(ctx context.Context, tx *sql.Tx, m dedup.Marker) (dedup.Call, error) {
	c, err := scanCall(tx.QueryRowContext(ctx, "SELECT "+callColumns+" FROM onceline_call WHERE marker = ?", m.Bytes[:]).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return dedup.Call{}, nil
	}
	return c, err
}

// AddCall implements [dedup.CallDriver].
func (s *Store) AddCall(ctx context.Context, c dedup.Call) (stored dedup.Call, err error) {
	m, err := c.Marker()
	if err == nil {
		err = checkNames(c.Consumer)
	}
	if err != nil {
		return c, err
	}
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO onceline_call (marker, "+callColumns+") VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)",
			m.Bytes[:], []byte(c.Consumer), []byte(c.ID), c.State, c.Token[:], c.Attempts, c.First.UnixMicro(), c.Changed.UnixMicro(), c.Due.UnixMicro(), c.Request, c.Result, []byte(c.Note))
		if err == nil || number(err) == duplicateKey { // which undoes the statement alone
			stored, err = loadCall(ctx, tx, m)
		}
		return err
	})
	return stored, callError(err)
}

// LoadCall implements [dedup.CallDriver].
func (s *Store) LoadCall(ctx context.Context, consumer, id string) (c dedup.Call, err error) {
	m, err := dedup.Key{Consumer: consumer, ID: id}.Marker()
	if err != nil {
		return c, err
	}
	err = s.Transact(ctx, func(tx *sql.Tx) (err error) { c, err = loadCall(ctx, tx, m); return err })
	return c, callError(err)
}

// ChangeCall implements [dedup.CallDriver].
func (s *Store) ChangeCall(ctx context.Context, c dedup.Call) (changed bool, err error) {
	m, err := c.Marker()
	if err != nil {
		return false, err
	}
	n, err := s.execCall(ctx, `UPDATE onceline_call SET state = ?, version = version + 1, token = ?, attempts = ?, began = ?, changed = ?, due = ?,
		request = ?, result = ?, note = ? WHERE marker = ? AND version = ?`,
		c.State, c.Token[:], c.Attempts, c.First.UnixMicro(), c.Changed.UnixMicro(), c.Due.UnixMicro(), c.Request, c.Result, []byte(c.Note), m.Bytes[:], c.Version)
	return n == 1, err
}

// OpenCalls implements [dedup.CallDriver].
func (s *Store) OpenCalls(ctx context.Context, consumer string, due time.Time, after dedup.Marker, limit int) (calls []dedup.Call, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		calls = nil
		rows, err := tx.QueryContext(ctx, "SELECT "+callColumns+` FROM onceline_call WHERE consumer = ? AND marker > ? AND state IN (1, 3) AND (state = 3 OR due <= ?)
			ORDER BY marker LIMIT ?`, []byte(consumer), after.Bytes[:], due.UnixMicro(), limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			c, err := scanCall(rows.Scan)
			if err != nil {
				return err
			}
			calls = append(calls, c)
		}
		return rows.Err()
	})
	return calls, callError(err)
}

// ExpireCalls implements [dedup.CallDriver], in many short transactions.
func (s *Store) ExpireCalls(ctx context.Context, consumer string, before time.Time) (total int64, err error) {
	for {
		n, err := s.execCall(ctx, "DELETE FROM onceline_call WHERE consumer = ? AND state IN (2, 4) AND changed < ? LIMIT ?", []byte(consumer), before.UnixMicro(), chunk)
		if total += n; err != nil || n < chunk {
			return total, err
		}
	}
}

func (s *Store) execCall(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, query, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, callError(err)
}

func callError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedup/mysql: call: %w", err)
}
