package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/mysql"
)

// TestMigrateWaits: a migration waits for another one, and for a transaction that uses a
// table, for as long as its context lasts, and goes on behind them.
func TestMigrateWaits(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""), "innodb_lock_wait_timeout=1")
	s := open(t, db, mysql.Options{})
	for what, lock := range map[string]string{
		"another migration": "SELECT get_lock('onceline schema', 10)",
		"a transaction":     "SELECT * FROM onceline_floor FOR UPDATE",
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
		// Two attempts of a second each.
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := s.Migrate(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waited") {
			t.Errorf("beside %s: %v", what, err)
		}
		if _, err := tx.ExecContext(t.Context(), "DO release_lock('onceline schema')"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("behind %s: %v", what, err)
		}
	}
}
