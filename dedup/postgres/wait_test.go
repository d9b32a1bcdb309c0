package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup/postgres"
)

// counting tells of each transaction that begins.
type counting struct {
	*pool
	begun chan struct{}
}

func (c *counting) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	select {
	case c.begun <- struct{}{}:
	case <-ctx.Done():
	}
	return c.pool.BeginTx(ctx, o)
}

// TestMigrateWaits: a migration waits for another one, and for a transaction that uses a
// table, for as long as its context lasts and not as a transaction waits for a lock.
func TestMigrateWaits(t *testing.T) {
	p := connect(t, start(t), 4)
	_, schema := open(t, p, postgres.Options{})
	db := &counting{p, make(chan struct{})}
	s, err := postgres.New(db, postgres.Options{Schema: schema, LockTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for what, lock := range map[string]string{
		"another migration": "SELECT pg_advisory_xact_lock(hashtext('onceline'), hashtext('schema'))",
		"a transaction":     `LOCK TABLE "` + schema + `".onceline_marker IN ROW EXCLUSIVE MODE`,
	} {
		for _, ends := range []bool{true, false} {
			tx, err := p.BeginTx(t.Context(), pgx.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			if _, err := tx.Exec(t.Context(), lock); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Migrate(ctx) }()
			for range 4 { // so three have failed
				select {
				case <-db.begun:
				case err := <-done:
					t.Fatalf("beside %s: %v", what, err)
				}
			}
			if ends {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				cancel()
			}
			for ended := false; !ended; {
				select {
				case <-db.begun:
				case err = <-done:
					ended = true
				}
			}
			cancel()
			switch {
			case ends && err != nil:
				t.Errorf("behind %s: %v", what, err)
			case !ends && (!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waited")):
				t.Errorf("beside %s, which doesn't end: %v", what, err)
			}
			if !ends {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
