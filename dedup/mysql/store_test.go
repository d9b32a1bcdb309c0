package mysql_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/mysql"
)

func TestStore(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	storetest.Run(t, func(t *testing.T) storetest.Setup[*sql.Tx] {
		db := newDatabase(t, server, first)
		return storetest.Setup[*sql.Tx]{
			Driver: open(t, db, mysql.Options{}),
			Effect: effect,
			Bad: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (NULL)")
				return err
			},
			Ledger:     func(ctx context.Context) (map[string]int, error) { return ledger(ctx, db) },
			Concurrent: true,
		}
	})
}

// TestCalls: the behaviours of every store of calls.
func TestCalls(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	storetest.RunCalls(t, func(t *testing.T) dedup.CallDriver {
		return open(t, newDatabase(t, server, first), mysql.Options{})
	})
}
