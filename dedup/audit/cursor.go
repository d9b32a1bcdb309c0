package audit

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// cursor reads the keys of a table in order of their bytes, one at a time, so that tables
// of different databases can be held against each other in no more memory than a row
// takes.
type cursor struct {
	*opened
	ctx    context.Context
	cancel context.CancelFunc
	rows   *sql.Rows

	key         []byte // nil at the end
	n           int64
	first, last *int64
	keys        int64
}

// read begins to read the table by key, with the times of a column, "" for none.
func (o *opened) read(ctx context.Context, time, where string) (*cursor, error) {
	stamp := "NULL"
	if time != "" {
		stamp = o.micros(time)
	}
	c := &cursor{opened: o}
	c.ctx, c.cancel = context.WithTimeoutCause(ctx, o.d.timeout(), fmt.Errorf("it took more than %v", o.d.timeout()))
	rows, err := o.tx.QueryContext(c.ctx, fmt.Sprintf("SELECT %s, count(*), min(%[2]s), max(%[2]s) FROM %[3]s WHERE %[4]s AND %[5]s GROUP BY 1 ORDER BY 1", o.key(), stamp, o.table(), o.keyed(), where))
	if err != nil {
		defer c.cancel()
		return nil, o.wrap(c.ctx, err)
	}
	c.rows = rows
	return c, c.next()
}

// next moves to the next key.
func (c *cursor) next() error {
	if !c.rows.Next() {
		c.key = nil
		return c.wrap(c.ctx, errors.Join(c.rows.Err(), c.rows.Close()))
	}
	before := c.key
	c.key = nil
	if err := c.rows.Scan(&c.key, &c.n, &c.first, &c.last); err != nil {
		return c.wrap(c.ctx, err)
	}
	if c.key == nil {
		c.key = []byte{}
	}
	if before != nil && bytes.Compare(before, c.key) >= 0 {
		return fmt.Errorf("%s: the keys of %s don't come in order: %q after %q", c.d.Name, c.Name, c.key, before)
	}
	c.keys++
	return nil
}

// has moves to key, and reports whether it is there. Keys must be asked for in order.
func (c *cursor) has(key []byte) (bool, error) {
	for c.key != nil && bytes.Compare(c.key, key) < 0 {
		if err := c.next(); err != nil {
			return false, err
		}
	}
	return c.key != nil && bytes.Equal(c.key, key), nil
}

// close ends the reading; nil is closed.
func (c *cursor) close() error {
	if c == nil {
		return nil
	}
	defer c.cancel()
	return c.rows.Close()
}
