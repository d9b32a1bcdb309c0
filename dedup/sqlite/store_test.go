package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
)

// open opens a store in a new file, with a ledger.
func open(t *testing.T, o sqlite.Options) *sqlite.Store {
	t.Helper()
	return openFile(t, filepath.Join(t.TempDir(), "a b?c#d%.db"), o)
}

// made is a file with a store's tables and a ledger, for a test to begin with: to make
// them each time takes longer than most tests.
var made = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "onceline")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "a.db")
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	_, err = s.DB().Exec("CREATE TABLE ledger (id TEXT NOT NULL)")
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func openFile(t *testing.T, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		b, err := made()
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
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
