package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/localstack"
)

// start starts a server for the test alone.
func start(t testing.TB) *localstack.Database {
	t.Helper()
	return servertest.Postgres(t)
}

// pool is a few connections, for tests: what a *pgxpool.Pool is to users.
type pool struct {
	config *pgx.ConnConfig
	free   chan *pgx.Conn // nil for one that is to be opened
}

// connect opens a pool on a database of its own.
func connect(t testing.TB, db *localstack.Database, size int) *pool {
	t.Helper()
	config, err := pgx.ParseConfig(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{config, make(chan *pgx.Conn, size)}
	for range size {
		p.free <- nil
	}
	t.Cleanup(func() {
		for range size {
			if c := <-p.free; c != nil {
				_ = c.Close(context.Background())
			}
		}
	})
	return p
}

func (p *pool) take(ctx context.Context) (*pgx.Conn, error) {
	select {
	case c := <-p.free:
		if c != nil && !c.IsClosed() {
			return c, nil
		}
		c, err := pgx.ConnectConfig(ctx, p.config)
		if err != nil {
			p.free <- nil
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pool) give(c *pgx.Conn) {
	if c.IsClosed() || c.PgConn().TxStatus() != 'I' {
		_ = c.Close(context.Background())
		c = nil
	}
	p.free <- c
}

// pooledTx gives its connection back when it ends.
type pooledTx struct {
	pgx.Tx
	p *pool
	c *pgx.Conn
}

func (p *pool) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.BeginTx(ctx, o)
	if err != nil {
		p.give(c)
		return nil, err
	}
	return &pooledTx{tx, p, c}, nil
}

func (t *pooledTx) end() {
	if t.c != nil {
		t.p.give(t.c)
		t.c = nil
	}
}

func (t *pooledTx) Commit(ctx context.Context) error {
	defer t.end()
	return t.Tx.Commit(ctx)
}

func (t *pooledTx) Rollback(ctx context.Context) error {
	defer t.end()
	return t.Tx.Rollback(ctx)
}

type pooledRow struct {
	row pgx.Row
	end func()
}

func (r pooledRow) Scan(into ...any) error {
	defer r.end()
	return r.row.Scan(into...)
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

func (p *pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c, err := p.take(ctx)
	if err != nil {
		return failedRow{err}
	}
	return pooledRow{c.QueryRow(ctx, sql, args...), func() { p.give(c) }}
}

// exec runs statements, each with a transaction of its own.
func (p *pool) exec(t testing.TB, queries ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := p.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.give(c)
	for _, q := range queries {
		if _, err := c.Exec(ctx, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// takeAlive takes a connection that nobody has cut.
func (p *pool) takeAlive(ctx context.Context) (*pgx.Conn, error) {
	for {
		c, err := p.take(ctx)
		if err != nil {
			return nil, err
		}
		if c.Ping(ctx) == nil {
			return c, nil
		}
		_ = c.Close(ctx)
		p.give(c)
	}
}

// ledger counts the rows of each ID.
func (p *pool) ledger(ctx context.Context, table string) (map[string]int, error) {
	c, err := p.takeAlive(ctx)
	if err != nil {
		return nil, err
	}
	defer p.give(c)
	rows, err := c.Query(ctx, "SELECT id, count(*) FROM "+table+" GROUP BY id")
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

var schemas atomic.Int64

// newSchema names a schema that no other test uses, and makes a ledger in it.
func newSchema(t testing.TB, p *pool) string {
	name := fmt.Sprintf("Test %d", schemas.Add(1))
	p.exec(t, fmt.Sprintf("CREATE SCHEMA %q", name), fmt.Sprintf("CREATE TABLE %q.ledger (id text NOT NULL)", name))
	return name
}
