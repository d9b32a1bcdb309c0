package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/audit"
	"github.com/onceline/onceline/dedup/sqlite"
)

// TestStores: a store's own tables, written by the store.
func TestStores(t *testing.T) {
	ctx := t.Context()
	start := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	clock := start
	s, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "store.db"), sqlite.Options{Window: 48 * time.Hour, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.DB().ExecContext(ctx, "CREATE TABLE paid (order_id TEXT, at INTEGER)"); err != nil {
		t.Fatal(err)
	}
	inbox, out := dedup.New(s, "billing", dedup.Options{}), dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	t.Cleanup(func() { _ = out.Close(context.Background()) })
	pay := func(i int, at time.Time) {
		t.Helper()
		id := fmt.Sprint("order-", i)
		outcome, err := inbox.Once(ctx, dedup.Key{ID: id, At: at}, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO paid VALUES (?, ?)", id, clock.Unix())
			return err
		})
		if err != nil || outcome != dedup.Applied {
			t.Fatal(outcome, err)
		}
	}
	d := &audit.Database{DB: second(t, s), Dialect: audit.SQLite, Name: "store"}
	store := &audit.Store{In: d, Topic: "orders"}
	p := audit.Plan{Effects: &audit.Table{In: d, Name: "paid", Key: []string{"order_id"}, Applied: "at"}, Markers: store, Outbox: store, Horizon: 7 * 24 * time.Hour}
	look := func(want string) *audit.Report {
		t.Helper()
		p.Now = clock
		if got := found(t, p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		r, err := audit.Run(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	look("")
	for i := range 10 {
		pay(i, time.Time{})
		clock = clock.Add(12 * time.Hour)
	}
	look("") // all markers are there
	if _, err := s.Expire(ctx); err != nil {
		t.Fatal(err)
	}
	r := look("markers-short:6")
	if saw := r.Checks[6].Saw; !strings.HasPrefix(saw, "4 markers without a time, the oldest of 2026-02-04T00:00:00Z; 0 with one") {
		t.Error(saw)
	}
	pay(10, clock.Add(-time.Hour)) // a timed one
	if saw := look("markers-short:6").Checks[6].Saw; !strings.Contains(saw, "1 with one, the oldest of 2026-02-05T23:00:00Z") {
		t.Error(saw)
	}
	p.Horizon = 24 * time.Hour
	look("")

	add := func(ids ...string) {
		t.Helper()
		err := out.InTx(ctx, func(tx *sql.Tx) error {
			var errs []error
			for _, id := range ids {
				errs = append(errs, out.AddTx(ctx, tx, broker.Message{ID: id, Body: []byte("x")}))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Markers, p.Effects = nil, nil
	add("a", "b")
	// The store's clock may be another than the test's.
	var added int64
	if err := s.DB().QueryRowContext(ctx, "SELECT max(added) FROM onceline_outbox").Scan(&added); err != nil {
		t.Fatal(err)
	}
	clock = time.UnixMicro(added).Add(time.Minute)
	if saw := look("").Checks[5].Saw; saw != "2 messages in the outbox" {
		t.Error(saw)
	}
	clock = clock.Add(time.Hour)
	look("stuck:2")
	p.Outbox = &audit.Store{In: d, Topic: "o'ther"}
	look("")
	p.Outbox = store
	change := func(q string, args ...any) {
		t.Helper()
		if _, err := s.DB().ExecContext(ctx, q, args...); err != nil {
			t.Fatal(err)
		}
	}
	p.Window = 5 * time.Minute
	change("UPDATE onceline_outbox SET tried = ? WHERE id = CAST('a' AS BLOB)", added)
	look("retry-late:1 stuck:2")
	change("UPDATE onceline_outbox SET state = 1, reason = 'window' WHERE id = CAST('a' AS BLOB)")
	change("UPDATE onceline_outbox SET state = 2, reason = 'too large' WHERE id = CAST('b' AS BLOB)")
	look("held:1 parked:1")

	// What is in the outbox isn't missing.
	change("CREATE TABLE ordered (order_id TEXT, at INTEGER)")
	change("INSERT INTO ordered VALUES ('a', ?1), ('b', ?1), ('c', ?1), ('order-10', ?1)", added/1e6)
	p.Effects = &audit.Table{In: d, Name: "paid", Key: []string{"order_id"}, Applied: "at"}
	p.Sent = &audit.Table{In: d, Name: "ordered", Key: []string{"order_id"}, Time: "at"}
	p.Since = time.UnixMicro(added).Add(-time.Minute)
	r = look("missing:1 held:1 parked:1")
	if c := r.Checks[2]; c.Findings[0].Examples[0].Key != "c" || !strings.Contains(c.Saw, "2 in the outbox") {
		t.Errorf("%+v", c)
	}
	change("UPDATE onceline_outbox SET state = 9")
	if _, err := audit.Run(ctx, p); !errors.Is(err, audit.ErrTable) {
		t.Errorf("a state of another version: %v", err)
	}
}

// second opens the store's file once more, as the command does.
func second(t *testing.T, s *sqlite.Store) *sql.DB {
	t.Helper()
	var seq int
	var name, path string
	if err := s.DB().QueryRow("PRAGMA database_list").Scan(&seq, &name, &path); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
