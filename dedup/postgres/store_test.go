package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
)

// open makes a store in a schema of its own.
func open(t testing.TB, p *pool, o postgres.Options) (s *postgres.Store, schema string) {
	t.Helper()
	o.Schema = newSchema(t, p)
	s, err := postgres.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, o.Schema
}

func insert(schema string) string {
	return fmt.Sprintf("INSERT INTO %q.ledger (id) VALUES ($1)", schema)
}

func TestStore(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 10)
	storetest.Run(t, func(t *testing.T) storetest.Setup[pgx.Tx] {
		s, schema := open(t, p, postgres.Options{})
		query := insert(schema)
		return storetest.Setup[pgx.Tx]{
			Driver: s,
			Effect: func(ctx context.Context, tx pgx.Tx, id string) error {
				_, err := tx.Exec(ctx, query, id)
				return err
			},
			Bad: func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, query, nil)
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
