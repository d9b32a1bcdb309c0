package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// TestFootprint measures the bytes of a marker, table and index, in a table of many,
// written as an inbox writes them: in batches, the keys as they come, and how long it
// takes to drop a day of them. It takes a minute, and runs where ONCELINE_FOOTPRINT
// says how many (1000000 is what the constants are of).
func TestFootprint(t *testing.T) {
	var n int
	if _, err := fmt.Sscan(os.Getenv("ONCELINE_FOOTPRINT"), &n); err != nil {
		t.Skip("set ONCELINE_FOOTPRINT to a number of markers")
	}
	p := connect(t, start(t), 2)
	var c clock
	today := time.Now().UTC().Truncate(day)
	c.at.Store(today.Unix())
	s, schema := open(t, p, postgres.Options{Window: day, Now: c.now})
	const size = 500
	for table, at := range map[string]func(i int) time.Time{
		"onceline_marker": func(int) time.Time { return time.Time{} },
		"onceline_marker_timed_" + today.Format("20060102"): func(i int) time.Time { // as they come in the course of the day
			return today.Add(time.Duration(float64(day) * float64(i) / float64(n)))
		},
	} {
		for from := 0; from < n; from += size {
			keys := make([]dedup.Key, size)
			for i := range keys {
				keys[i] = dedup.Key{ID: fmt.Sprintf("order-%d:paid:v1", from+i), At: at(from + i)}
			}
			if err := s.Transact(t.Context(), func(tx pgx.Tx) error {
				_, err := dedup.New[pgx.Tx](s, "c", dedup.Options{}).ClaimTx(t.Context(), tx, keys...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		name := fmt.Sprintf("%q.%s", schema, table)
		var bytes, heap float64
		if err := p.QueryRow(t.Context(), "SELECT pg_total_relation_size($1::text::regclass)::float8, pg_relation_size($1::text::regclass)::float8", name).Scan(&bytes, &heap); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f bytes a marker, %.1f of them table, at %d", table, bytes/float64(n), heap/float64(n), n)
		if per := bytes / float64(n); n >= 100_000 && per > 95 {
			t.Errorf("%s: %.1f bytes a marker, over 95", table, per)
		}
	}
	c.move(3 * day)
	began := time.Now()
	m, err := s.Maintain(t.Context())
	if err != nil || len(m.Dropped) == 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	t.Logf("Maintain made %d and dropped %d partitions, and deleted %d markers, in %v", len(m.Made), len(m.Dropped), m.Deleted, time.Since(began))
}
