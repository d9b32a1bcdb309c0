package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
)

// CallDialect is what differs between databases that keep external calls in a table
// onceline_call, with question marks for arguments.
type CallDialect struct {
	// Package begins the errors.
	Package string
	// Key and First are the columns of the marker and of when the call was first made.
	Key, First string
	// Text is a name or a note as an argument.
	Text func(string) any
	// Check refuses names that the database would cut; nil if it takes all.
	Check func(names ...string) error
	// Conflict ends the insert of a record that may be there; empty where Exists says so
	// of the error.
	Conflict string
	Exists   func(error) bool
	// Expire deletes at most so many ended calls: of a consumer, changed before a time,
	// and no more than a number.
	Expire string
	Chunk  int64
	// Transact is the store's.
	Transact func(ctx context.Context, f func(tx *sql.Tx) error) error
}

// Calls has the methods of [dedup.CallDriver], all but Fault.
type Calls struct {
	d                                      CallDialect
	load, insert, update, open, expireText string
}

// NewCalls returns the calls of a store.
func NewCalls(d CallDialect) *Calls {
	columns := "consumer, id, state, version, token, attempts, " + d.First + ", changed, due, request, result, note"
	in := strings.NewReplacer("{columns}", columns, "{key}", d.Key, "{first}", d.First)
	return &Calls{
		d:      d,
		load:   in.Replace("SELECT {columns} FROM onceline_call WHERE {key} = ?"),
		insert: in.Replace("INSERT INTO onceline_call ({key}, {columns}) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?)" + d.Conflict),
		update: in.Replace(`UPDATE onceline_call SET state = ?, version = version + 1, token = ?, attempts = ?, {first} = ?, changed = ?, due = ?,
			request = ?, result = ?, note = ? WHERE {key} = ? AND version = ?`),
		open: in.Replace(`SELECT {columns} FROM onceline_call WHERE consumer = ? AND {key} > ? AND state IN (1, 3) AND (state = 3 OR due <= ?)
			ORDER BY {key} LIMIT ?`),
		expireText: d.Expire,
	}
}

// scanCall reads a row of the columns.
func scanCall(scan func(...any) error) (c dedup.Call, err error) {
	var id, token []byte
	var first, changed, due int64
	err = scan(&c.Consumer, &id, &c.State, &c.Version, &token, &c.Attempts, &first, &changed, &due, &c.Request, &c.Result, &c.Note)
	copy(c.Token[:], token)
	c.ID, c.First, c.Changed, c.Due = string(id), time.UnixMicro(first), time.UnixMicro(changed), time.UnixMicro(due)
	return c, err
}

func (s *Calls) loadIn(ctx context.Context, tx *sql.Tx, m dedup.Marker) (dedup.Call, error) {
	c, err := scanCall(tx.QueryRowContext(ctx, s.load, m.Bytes[:]).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return dedup.Call{}, nil
	}
	return c, err
}

// AddCall implements [dedup.CallDriver].
func (s *Calls) AddCall(ctx context.Context, c dedup.Call) (stored dedup.Call, err error) {
	m, err := c.Marker()
	if err == nil && s.d.Check != nil {
		err = s.d.Check(c.Consumer)
	}
	if err != nil {
		return c, err
	}
	err = s.d.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.insert, m.Bytes[:], s.d.Text(c.Consumer), []byte(c.ID), c.State, c.Token[:], c.Attempts,
			c.First.UnixMicro(), c.Changed.UnixMicro(), c.Due.UnixMicro(), c.Request, c.Result, s.d.Text(c.Note))
		if err == nil || s.d.Exists != nil && s.d.Exists(err) {
			stored, err = s.loadIn(ctx, tx, m)
		}
		return err
	})
	return stored, s.wrap(err)
}

// LoadCall implements [dedup.CallDriver].
func (s *Calls) LoadCall(ctx context.Context, consumer, id string) (c dedup.Call, err error) {
	m, err := dedup.Key{Consumer: consumer, ID: id}.Marker()
	if err != nil {
		return c, err
	}
	err = s.d.Transact(ctx, func(tx *sql.Tx) (err error) { c, err = s.loadIn(ctx, tx, m); return err })
	return c, s.wrap(err)
}

// ChangeCall implements [dedup.CallDriver].
func (s *Calls) ChangeCall(ctx context.Context, c dedup.Call) (changed bool, err error) {
	m, err := c.Marker()
	if err != nil {
		return false, err
	}
	n, err := s.exec(ctx, s.update, c.State, c.Token[:], c.Attempts, c.First.UnixMicro(), c.Changed.UnixMicro(), c.Due.UnixMicro(),
		c.Request, c.Result, s.d.Text(c.Note), m.Bytes[:], c.Version)
	return n == 1, err
}

// OpenCalls implements [dedup.CallDriver].
func (s *Calls) OpenCalls(ctx context.Context, consumer string, due time.Time, after dedup.Marker, limit int) (calls []dedup.Call, err error) {
	err = s.d.Transact(ctx, func(tx *sql.Tx) error {
		calls = nil
		rows, err := tx.QueryContext(ctx, s.open, s.d.Text(consumer), after.Bytes[:], due.UnixMicro(), limit)
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
	return calls, s.wrap(err)
}

// ExpireCalls implements [dedup.CallDriver], in many short transactions.
func (s *Calls) ExpireCalls(ctx context.Context, consumer string, before time.Time) (total int64, err error) {
	for {
		n, err := s.exec(ctx, s.expireText, s.d.Text(consumer), before.UnixMicro(), s.d.Chunk)
		if total += n; err != nil || n < s.d.Chunk {
			return total, err
		}
	}
}

func (s *Calls) exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = s.d.Transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, query, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, s.wrap(err)
}

func (s *Calls) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: call: %w", s.d.Package, err)
}
