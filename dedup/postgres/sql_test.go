package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
)

// A pool is what most users have.
var _ postgres.DB = (*pgxpool.Pool)(nil)

// openSQL opens the database of p by database/sql.
func openSQL(t *testing.T, p *pool) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*p.config)
	db.SetMaxOpenConns(10)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestSQL: the behaviours of every store, by database/sql.
func TestSQL(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	db := openSQL(t, p)
	storetest.Run(t, func(t *testing.T) storetest.Setup[*sql.Tx] {
		schema := newSchema(t, p)
		s, err := postgres.NewSQL(db, postgres.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		query := insert(schema)
		return storetest.Setup[*sql.Tx]{
			Driver: s,
			Effect: func(ctx context.Context, tx *sql.Tx, id string) error {
				_, err := tx.ExecContext(ctx, query, id)
				return err
			},
			Bad: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, query, nil)
				return err
			},
			Ledger: func(ctx context.Context) (map[string]int, error) {
				return p.ledger(ctx, fmt.Sprintf("%q.ledger", schema))
			},
			Aborts:     true,
			Concurrent: true,
		}
	})
}

// TestSQLCommitCut is TestCommitCut by database/sql.
func TestSQLCommitCut(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := connect(t, server, 2)
	schema := newSchema(t, p)
	s, err := postgres.NewSQL(openSQL(t, p), postgres.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	slowCommits(t, p, schema)
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{Attempts: 10})
	done := make(chan struct{})
	go func() {
		defer close(done)
		inCommit(t, p)
		server.Disconnect()
	}()
	outcome, err := in.Once(t.Context(), byID("a"), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insert(schema), "a")
		return err
	})
	<-done
	if outcome != dedup.Applied || err != nil || in.Stats().Ambiguous != 1 {
		t.Errorf("%v: %v, %+v", outcome, err, in.Stats())
	}
	check(t, p, schema, []string{"a"}, func(int) bool { return true })
}
