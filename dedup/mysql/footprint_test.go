package mysql_test

import (
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
)

// TestFootprint measures the bytes of a marker, index included, in a table of many,
// written as an inbox writes them. It takes a while, and runs where
// ONCELINE_FOOTPRINT says how many (1000000 is what the constants are of).
func TestFootprint(t *testing.T) {
	var n int
	if _, err := fmt.Sscan(os.Getenv("ONCELINE_FOOTPRINT"), &n); err != nil {
		t.Skip("set ONCELINE_FOOTPRINT to a number of markers")
	}
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{})
	const size = 500
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for table, c := range map[string]struct {
		at  func(i int) time.Time
		say dedup.Footprint
	}{
		"onceline_marker": {func(int) time.Time { return time.Time{} }, mysql.MarkerBytes},
		"onceline_marker_timed": {func(i int) time.Time {
			return today.Add(time.Duration(24 * float64(time.Hour) * float64(i) / float64(n)))
		}, mysql.TimedMarkerBytes},
	} {
		in := dedup.New[*sql.Tx](s, "c", dedup.Options{})
		for from := 0; from < n; from += size {
			keys := make([]dedup.Key, size)
			for i := range keys {
				keys[i] = dedup.Key{ID: fmt.Sprintf("order-%d:paid:v1", from+i), At: c.at(from + i)}
			}
			if err := s.Transact(t.Context(), func(tx *sql.Tx) error {
				_, err := in.ClaimTx(t.Context(), tx, keys...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		var name string
		if err := db.QueryRow("SELECT database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		var bytes int64
		if err := db.QueryRow("SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name = ?", name+"/"+table).Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		each := float64(bytes) / float64(n)
		t.Logf("%s: %.1f bytes each of %d", table, each, n)
		if each > float64(c.say)*1.1 {
			t.Errorf("the constant says %v", c.say)
		}
	}
}
