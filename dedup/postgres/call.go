package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
)

var (
	_ dedup.CallDriver = (*Store)(nil)
	_ dedup.CallDriver = (*SQL)(nil)
)

const callColumns = "consumer, id, state, version, token, attempts, first, changed, due, request, result, note"

// callText puts the table's name into a query.
func (c *core) callText(query string) string {
	return strings.ReplaceAll(query, "{table}", c.texts.schema+".onceline_call")
}

// text is what a text column takes of s: all but NUL and what isn't UTF-8.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// scanCall reads a row of callColumns.
func scanCall(scan func(...any) error) (r dedup.Call, err error) {
	var id, token []byte
	var state int16
	var attempts, first, changed, due int64
	err = scan(&r.Consumer, &id, &state, &r.Version, &token, &attempts, &first, &changed, &due, &r.Request, &r.Result, &r.Note)
	copy(r.Token[:], token)
	r.ID, r.State, r.Attempts = string(id), dedup.CallState(state), int(attempts)
	r.First, r.Changed, r.Due = time.UnixMicro(first), time.UnixMicro(changed), time.UnixMicro(due)
	return r, err
}

func (c *core) loadCall(ctx context.Context, q querier, key string) (r dedup.Call, err error) {
	err = q.each(ctx, func(scan func(...any) error) (err error) { r, err = scanCall(scan); return err },
		c.callText("SELECT "+callColumns+" FROM {table} WHERE key = $1::text::uuid"), key)
	return r, err
}

// AddCall implements [dedup.CallDriver].
func (c *core) AddCall(ctx context.Context, r dedup.Call) (stored dedup.Call, err error) {
	m, err := r.Marker()
	if err != nil {
		return r, err
	}
	err = c.in(ctx, func(q querier) error {
		key := textOf(m.Bytes)
		_, err := q.exec(ctx, c.callText("INSERT INTO {table} (key, "+callColumns+`) VALUES ($1::text::uuid, $2, $3, $4, 1, $5, $6, $7, $8, $9, $10, $11, $12)
			ON CONFLICT DO NOTHING`), key, text(r.Consumer), []byte(r.ID), int16(r.State), r.Token[:], int64(r.Attempts),
			r.First.UnixMicro(), r.Changed.UnixMicro(), r.Due.UnixMicro(), r.Request, r.Result, text(r.Note))
		if err == nil { // READ COMMITTED sees also what was committed while this waited
			stored, err = c.loadCall(ctx, q, key)
		}
		return err
	})
	return stored, callError(err)
}

// LoadCall implements [dedup.CallDriver].
func (c *core) LoadCall(ctx context.Context, consumer, id string) (r dedup.Call, err error) {
	m, err := dedup.Key{Consumer: consumer, ID: id}.Marker()
	if err != nil {
		return r, err
	}
	err = c.in(ctx, func(q querier) (err error) { r, err = c.loadCall(ctx, q, textOf(m.Bytes)); return err })
	return r, callError(err)
}

// ChangeCall implements [dedup.CallDriver].
func (c *core) ChangeCall(ctx context.Context, r dedup.Call) (changed bool, err error) {
	m, err := r.Marker()
	if err != nil {
		return false, err
	}
	n, err := c.execCall(ctx, `UPDATE {table} SET state = $3, version = version + 1, token = $4, attempts = $5, first = $6, changed = $7, due = $8,
		request = $9, result = $10, note = $11 WHERE key = $1::text::uuid AND version = $2`,
		textOf(m.Bytes), r.Version, int16(r.State), r.Token[:], int64(r.Attempts), r.First.UnixMicro(), r.Changed.UnixMicro(), r.Due.UnixMicro(),
		r.Request, r.Result, text(r.Note))
	return n == 1, err
}

// OpenCalls implements [dedup.CallDriver].
func (c *core) OpenCalls(ctx context.Context, consumer string, due time.Time, after dedup.Marker, limit int) (calls []dedup.Call, err error) {
	err = c.in(ctx, func(q querier) error {
		calls = nil
		return q.each(ctx, func(scan func(...any) error) error {
			r, err := scanCall(scan)
			calls = append(calls, r)
			return err
		}, c.callText("SELECT "+callColumns+` FROM {table} WHERE consumer = $1 AND key > $2::text::uuid AND state IN (1, 3) AND (state = 3 OR due <= $3)
			ORDER BY key LIMIT $4`), text(consumer), textOf(after.Bytes), due.UnixMicro(), limit)
	})
	return calls, callError(err)
}

// ExpireCalls implements [dedup.CallDriver], in many short transactions.
func (c *core) ExpireCalls(ctx context.Context, consumer string, before time.Time) (total int64, err error) {
	for {
		n, err := c.execCall(ctx, `DELETE FROM {table} WHERE key = ANY (ARRAY(SELECT key FROM {table}
			WHERE consumer = $1 AND state IN (2, 4) AND changed < $2 LIMIT $3)) AND state IN (2, 4) AND changed < $2`, text(consumer), before.UnixMicro(), chunk)
		if total += n; err != nil || n < chunk {
			return total, err
		}
	}
}

func (c *core) execCall(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = c.in(ctx, func(q querier) (err error) { n, err = q.exec(ctx, c.callText(query), args...); return err })
	return n, callError(err)
}

func callError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedup/postgres: call: %w", err)
}
