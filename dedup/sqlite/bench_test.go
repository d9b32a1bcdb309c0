package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// BenchmarkInbox compares batches with one message per transaction, in turns on one
// file, and reports how many times as fast they are.
func BenchmarkInbox(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "a.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.DB().Exec("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL DEFAULT 0)"); err != nil {
		b.Fatal(err)
	}
	if _, err := s.DB().Exec("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) INSERT INTO account (id) SELECT i FROM n"); err != nil {
		b.Fatal(err)
	}
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{})
	pos := dedup.NewPosition[*sql.Tx](s, "c", dedup.Options{})
	at, last, next := dedup.Partition{Topic: "orders", Name: "0"}, dedup.Start, 0
	update := func(ctx context.Context, tx *sql.Tx, id int) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1 WHERE id = ?", id*7919%10000)
		return err
	}
	key := func(id int) dedup.Key { return dedup.Key{ID: fmt.Sprintf("order-%d:paid:v1", id)} }
	ids := func(n int) []int {
		ids := make([]int, n)
		for i := range ids {
			next++
			ids[i] = next
		}
		return ids
	}
	const n = 100
	ways := []struct {
		unit string
		run  func() error
	}{
		{"single", func() error {
			for _, id := range ids(n) {
				if _, err := in.Once(b.Context(), key(id), func(ctx context.Context, tx *sql.Tx) error { return update(ctx, tx, id) }); err != nil {
					return err
				}
			}
			return nil
		}},
		{"batch-100-x", func() error { _, err := dedup.OnceBatch(b.Context(), in, ids(n), key, update); return err }},
		{"position-100-x", func() error {
			offsets := make([]int64, n)
			for i := range offsets {
				offsets[i] = last + 1 + int64(i)
			}
			var err error
			last, err = dedup.AppliedFrom(b.Context(), pos, at, last, offsets, func(o int64) int64 { return o }, func(ctx context.Context, tx *sql.Tx, o int64) error { return update(ctx, tx, int(o)) })
			return err
		}},
	}
	const rounds = 11
	ratios := make([][]float64, len(ways))
	for range rounds {
		var first float64
		for i, w := range ways {
			began := time.Now()
			if err := w.run(); err != nil {
				b.Fatal(err)
			}
			took := time.Since(began).Seconds()
			if i == 0 {
				first = took
			}
			ratios[i] = append(ratios[i], first/took)
		}
	}
	for i, w := range ways[1:] {
		slices.Sort(ratios[i+1])
		b.ReportMetric(ratios[i+1][rounds/2], w.unit)
	}
	b.ReportMetric(0, "ns/op")
}

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
