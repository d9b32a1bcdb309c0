package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
)

// open opens a store in a new file, with a ledger.
func open(t *testing.T, o sqlite.Options) *sqlite.Store {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "a b?c#d%.db"), o)
}

func openFile(t *testing.T, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.DB().Exec("CREATE TABLE IF NOT EXISTS ledger (id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return s
}

func effect(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
	return err
}

func ledger(ctx context.Context, db *sql.DB) (map[string]int, error) {
	rows, err := db.QueryContext(ctx, "SELECT id, count(*) FROM ledger GROUP BY id")
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

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Setup[*sql.Tx] {
		s := open(t, sqlite.Options{})
		return storetest.Setup[*sql.Tx]{
			Driver: s,
			Effect: effect,
			Bad: func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (NULL)")
				return err
			},
			Ledger: func(ctx context.Context) (map[string]int, error) { return ledger(ctx, s.DB()) },
		}
	})
}
