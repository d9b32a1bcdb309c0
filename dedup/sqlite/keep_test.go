package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	_ "modernc.org/sqlite"
)

func once(t *testing.T, in *dedup.Inbox[*sql.Tx], k dedup.Key, want dedup.Outcome) {
	t.Helper()
	outcome, err := in.Once(t.Context(), k, func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, k.ID) })
	if outcome != want {
		t.Errorf("%s: %v: %v; want %v", k.ID, outcome, err, want)
	}
}

// TestExpire: markers are kept for the window and no longer; a message with a time
// before it is refused, one without is a new one.
func TestExpire(t *testing.T) {
	var now atomic.Int64
	start := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	now.Store(start.Unix())
	s := open(t, sqlite.Options{Window: 24 * time.Hour, Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{MaxBatch: 500, SavepointEvery: 500})
	old := start.Add(-30 * time.Hour)
	once(t, in, dedup.Key{ID: "timed", At: start}, dedup.Applied)
	once(t, in, dedup.Key{ID: "old", At: old}, dedup.Applied) // nothing was deleted yet, so it can't be a copy
	once(t, in, dedup.Key{ID: "old", At: old}, dedup.Duplicate)
	ids := make([]string, 2100) // more than one transaction deletes
	for i := range ids {
		ids[i] = fmt.Sprint("m", i)
	}
	if _, err := dedup.OnceBatch(t.Context(), in, ids, func(id string) dedup.Key { return dedup.Key{ID: id} },
		func(context.Context, *sql.Tx, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	expire := func(want int64) {
		t.Helper()
		if n, err := s.Expire(t.Context()); n != want || err != nil {
			t.Errorf("%d expired, %v; want %d", n, err, want)
		}
	}
	expire(1)
	once(t, in, dedup.Key{ID: "old", At: old}, dedup.OutsideWindow)
	now.Store(start.Add(24 * time.Hour).Unix())
	expire(0)
	once(t, in, dedup.Key{ID: "timed", At: start}, dedup.Duplicate)
	once(t, in, dedup.Key{ID: "m7"}, dedup.Duplicate)
	now.Store(start.Add(24*time.Hour + time.Minute).Unix())
	once(t, in, dedup.Key{ID: "young"}, dedup.Applied)
	expire(int64(len(ids)) + 1)
	once(t, in, dedup.Key{ID: "timed", At: start}, dedup.OutsideWindow)
	once(t, in, dedup.Key{ID: "timed", At: start.Add(time.Minute)}, dedup.Applied)
	once(t, in, dedup.Key{ID: "m7"}, dedup.Applied)
	once(t, in, dedup.Key{ID: "m7"}, dedup.Duplicate) // it is kept anew
	once(t, in, dedup.Key{ID: "young"}, dedup.Duplicate)
}

// TestSeveralStores: eight stores on one file, as of as many processes, apply the
// same messages, and each has its effect once.
func TestSeveralStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared.db")
	ids := make([]string, 40)
	for i := range ids {
		ids[i] = fmt.Sprint("m", i)
	}
	stores := make([]*sqlite.Store, 8)
	for i := range stores {
		stores[i] = openFile(t, path, sqlite.Options{BusyTimeout: 20 * time.Second})
	}
	var applied atomic.Int64
	var wg sync.WaitGroup
	barrier := make(chan struct{})
	for i, s := range stores {
		in := dedup.New[*sql.Tx](s, "c", dedup.Options{MaxBatch: 5 + i})
		wg.Go(func() {
			<-barrier
			for at := range ids {
				if i%2 == 0 {
					id := ids[len(ids)-1-at]
					outcome, err := in.Once(t.Context(), dedup.Key{ID: id}, func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, id) })
					if !outcome.OK() {
						t.Errorf("%s: %v: %v", id, outcome, err)
					}
				} else if results, err := dedup.OnceBatch(t.Context(), in, ids[at:min(at+10, len(ids))], func(id string) dedup.Key { return dedup.Key{ID: id} }, effect); err != nil {
					t.Errorf("%v: %v", results, err)
				}
			}
			applied.Add(int64(in.Stats().Applied))
		})
	}
	close(barrier)
	wg.Wait()
	got, err := ledger(t.Context(), stores[0].DB())
	if err != nil || len(got) != len(ids) {
		t.Errorf("%d have effects, %v", len(got), err)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%d effects of %s", n, id)
		}
	}
	if applied.Load() != int64(len(ids)) {
		t.Errorf("%d were applied", applied.Load())
	}
}

// TestReopened: markers and positions are there when the file is opened again.
func TestReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	at := dedup.Partition{Topic: "orders", Name: "0"}
	for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
		s := openFile(t, path, sqlite.Options{})
		once(t, dedup.New[*sql.Tx](s, "c", dedup.Options{}), dedup.Key{ID: "a"}, want)
		p := dedup.NewPosition[*sql.Tx](s, "c", dedup.Options{})
		last, err := p.Load(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dedup.AppliedFrom(t.Context(), p, at, last, []int64{0, 1}, func(o int64) int64 { return o }, func(ctx context.Context, tx *sql.Tx, o int64) error {
			return effect(ctx, tx, fmt.Sprint("r", o))
		}); err != nil {
			t.Error(err)
		}
		got, err := ledger(t.Context(), s.DB())
		if err != nil || got["a"] != 1 || got["r0"] != 1 || got["r1"] != 1 {
			t.Errorf("%v, %v", got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVerify: a database that can lose what it has committed, or whose tables keep
// no copies out, is refused.
func TestVerify(t *testing.T) {
	for _, c := range []struct{ pragma, before, says string }{
		{"_pragma=synchronous(NORMAL)", "", "synchronous is 1"},
		{"_pragma=journal_mode(MEMORY)", "", "journal_mode is memory"},
		{"_pragma=journal_mode(OFF)", "", "journal_mode is off"},
		{"", "CREATE TABLE onceline_marker (key BLOB, seen INTEGER)", "primary key of onceline_marker is ()"},
		{"", "CREATE TABLE onceline_marker_timed (key BLOB, day TEXT, PRIMARY KEY (key, day))", "primary key of onceline_marker_timed is (key,day)"},
	} {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "a.db")+"?"+c.pragma)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if c.before != "" {
			if _, err := db.Exec(c.before); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := sqlite.New(t.Context(), db, sqlite.Options{}); !errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.says, err)
		}
	}
	for _, path := range []string{"", ":memory:", "file::memory:"} {
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{Window: time.Hour, Horizon: dedup.Horizon{Replay: 2 * time.Hour}}); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("a window that is too short: %v", err)
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "a.db"), sqlite.Options{}); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("no folder: %v", err)
	}
}

// TestOwnDatabase: a database that the caller opened, with deferred transactions and
// several connections.
func TestOwnDatabase(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "a.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE account (id INTEGER PRIMARY KEY); CREATE TABLE ledger (id TEXT NOT NULL, account INTEGER REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED)"); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(t.Context(), db, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 20 {
				id := fmt.Sprint("m", i)
				if outcome, err := in.Once(t.Context(), dedup.Key{ID: id}, func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, id) }); !outcome.OK() {
					t.Errorf("%s: %v: %v", id, outcome, err)
				}
			}
		})
	}
	wg.Wait()
	// What a deferred constraint refuses at the commit is the fault of one message.
	ids := []string{"x1", "x2", "x3", "x4"}
	results, _ := dedup.OnceBatch(t.Context(), in, ids, func(id string) dedup.Key { return dedup.Key{ID: id} }, func(ctx context.Context, tx *sql.Tx, id string) error {
		account := any(nil)
		if id == "x2" {
			account = 77
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id, account) VALUES (?, ?)", id, account)
		return err
	})
	for i, want := range []dedup.Outcome{dedup.Applied, dedup.Failed, dedup.Applied, dedup.Applied} {
		if results[i].Outcome != want {
			t.Errorf("%s: %v: %v; want %v", ids[i], results[i].Outcome, results[i].Err, want)
		}
	}
	got, err := ledger(t.Context(), db)
	if err != nil || len(got) != 23 || got["x2"] != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%d effects of %s", n, id)
		}
	}
}
