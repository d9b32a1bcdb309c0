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
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/dedup/sqlite"
)

// TestStores: a store's own tables, written by the store.
func TestStores(t *testing.T) {
	clock := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlite.Options{Window: 48 * time.Hour, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	stores(t, s, s.DB(), &audit.Database{DB: second(t, s), Dialect: audit.SQLite, Name: "store"}, &clock)
}

// TestStoresMariaDB: the same there, on a server in another mode than it has by itself.
func TestStoresMariaDB(t *testing.T) {
	maria := onMariaDB(t, t)
	maria.exec(t, "SET GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY'")
	maria.DB.SetMaxIdleConns(0) // those that are open have the old one
	clock := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	s, err := mysql.New(t.Context(), maria.DB, mysql.Options{Window: 48 * time.Hour, Now: func() time.Time { return clock }})
	if err == nil {
		err = s.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	stores(t, s, maria.DB, maria.Database, &clock)
}

// stores fills and looks at the tables of a store whose clock is that, and whose database
// the audit reads by d.
func stores(t *testing.T, s interface {
	dedup.Driver[*sql.Tx]
	dedup.OutboxDriver[*sql.Tx]
	Expire(ctx context.Context) (int64, error)
}, db *sql.DB, d *audit.Database, now *time.Time) {
	ctx := t.Context()
	clock := *now
	set := func(at time.Time) { clock, *now = at, at }
	change := func(q string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(ctx, q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	change("CREATE TABLE paid (order_id TEXT, at INTEGER)")
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
		set(clock.Add(12 * time.Hour))
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
	if err := db.QueryRowContext(ctx, "SELECT max(added) FROM onceline_outbox").Scan(&added); err != nil {
		t.Fatal(err)
	}
	set(time.UnixMicro(added).Add(time.Minute))
	if saw := look("").Checks[5].Saw; saw != "2 messages in the outbox" {
		t.Error(saw)
	}
	set(clock.Add(time.Hour))
	look("stuck:2")
	for _, other := range []string{"o'ther", `or\ders`, `orders\`} {
		p.Outbox = &audit.Store{In: d, Topic: other}
		look("")
	}
	// One with each of them in its name is found.
	odd := dedup.NewOutbox(s, `o"d'd\`, dedup.OutboxOptions{})
	t.Cleanup(func() { _ = odd.Close(context.Background()) })
	if err := odd.InTx(ctx, func(tx *sql.Tx) error { return odd.AddTx(ctx, tx, broker.Message{ID: "odd"}) }); err != nil {
		t.Fatal(err)
	}
	p.Outbox = &audit.Store{In: d, Topic: `o"d'd\`}
	if r, err := audit.Run(ctx, p); err != nil || r.Checks[5].Saw != "1 message in the outbox" {
		t.Errorf("%v, %+v", err, r)
	}
	change("DELETE FROM onceline_outbox WHERE id = x'6f6464'")
	p.Outbox = store
	p.Window = 5 * time.Minute
	change("UPDATE onceline_outbox SET tried = ? WHERE id = x'61'", added)
	look("retry-late:1 stuck:2")
	change("UPDATE onceline_outbox SET state = 1, reason = 'window' WHERE id = x'61'")
	change("UPDATE onceline_outbox SET state = 2, reason = 'too large' WHERE id = x'62'")
	look("held:1 parked:1")

	// What is in the outbox isn't missing.
	change("CREATE TABLE ordered (order_id TEXT, at INTEGER)")
	change("INSERT INTO ordered VALUES ('a', ?), ('b', ?), ('c', ?), ('order-10', ?)", added/1e6, added/1e6, added/1e6, added/1e6)
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
