package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/sqlite"
)

// TestMigrateWaits: who opens a store beside somebody who writes waits for as long as the
// context lasts, and not as a transaction does (sqltx.TestWait).
func TestMigrateWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := openFile(t, path, sqlite.Options{})
	o := sqlite.Options{BusyTimeout: time.Millisecond}
	if err := s.Transact(t.Context(), func(*sql.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := sqlite.Open(ctx, path, o); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("opened beside a writer: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
