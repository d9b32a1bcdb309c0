package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// TestFootprint measures the bytes of a marker in a file of many. It takes a while,
// and runs where ONCELINE_FOOTPRINT says how many (1000000 is what the constants are
// of).
func TestFootprint(t *testing.T) {
	var n int
	if _, err := fmt.Sscan(os.Getenv("ONCELINE_FOOTPRINT"), &n); err != nil {
		t.Skip("set ONCELINE_FOOTPRINT to a number of markers")
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for name, at := range map[string]func(i int) time.Time{
		"without a time": func(int) time.Time { return time.Time{} },
		"with a time": func(i int) time.Time {
			return today.Add(time.Duration(24 * float64(time.Hour) * float64(i) / float64(n)))
		},
	} {
		s := open(t, sqlite.Options{})
		in := dedup.New[*sql.Tx](s, "c", dedup.Options{})
		const size = 500
		for from := 0; from < n; from += size {
			keys := make([]dedup.Key, size)
			for i := range keys {
				keys[i] = dedup.Key{ID: fmt.Sprintf("order-%d:paid:v1", from+i), At: at(from + i)}
			}
			if err := s.Transact(t.Context(), func(tx *sql.Tx) error {
				_, err := in.ClaimTx(t.Context(), tx, keys...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		var pages, page float64
		if err := s.DB().QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
			t.Fatal(err)
		}
		if err := s.DB().QueryRow("PRAGMA page_size").Scan(&page); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f bytes a marker at %d", name, pages*page/float64(n), n)
	}
}
