package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
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
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	var now atomic.Int64
	began := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	now.Store(began.Unix())
	s := open(t, db, mysql.Options{Window: 24 * time.Hour, Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{MaxBatch: 500})
	old := began.Add(-30 * time.Hour)
	once(t, in, dedup.Key{ID: "timed", At: began}, dedup.Applied)
	once(t, in, dedup.Key{ID: "old", At: old}, dedup.Applied) // nothing was deleted yet, so it can't be a copy
	once(t, in, dedup.Key{ID: "old", At: old}, dedup.Duplicate)
	ids := make([]string, 2500) // more than one chunk
	for i := range ids {
		ids[i] = fmt.Sprint("m", i)
	}
	if _, err := dedup.OnceBatch(t.Context(), in, ids, func(id string) dedup.Key { return dedup.Key{ID: id} }, func(context.Context, *sql.Tx, string) error { return nil }); err != nil {
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
	now.Store(began.Add(24 * time.Hour).Unix())
	expire(0)
	once(t, in, dedup.Key{ID: "timed", At: began}, dedup.Duplicate)
	once(t, in, dedup.Key{ID: "m7"}, dedup.Duplicate)
	now.Store(began.Add(24*time.Hour + time.Minute).Unix())
	expire(2501)
	once(t, in, dedup.Key{ID: "timed", At: began}, dedup.OutsideWindow)
	once(t, in, dedup.Key{ID: "m7"}, dedup.Applied)
	expire(0)
}

// TestVerify: a database that can lose what it has committed, or whose tables keep no
// copies out, is refused with what to change.
func TestVerify(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	for _, c := range []struct {
		says         string
		change, mend []string
	}{
		{"onceline_marker is missing", []string{"DROP TABLE onceline_marker"}, nil},
		{"onceline_marker_timed is kept by Aria", []string{"ALTER TABLE onceline_marker_timed ENGINE = Aria"}, nil},
		{"the primary key of onceline_marker is (marker,seen), not (marker)", []string{"ALTER TABLE onceline_marker DROP PRIMARY KEY, ADD PRIMARY KEY (marker, seen)"}, nil},
		{"the primary key of onceline_position is ()", []string{"ALTER TABLE onceline_position DROP PRIMARY KEY"}, nil},
		{"onceline_slot has 65535 rows", []string{"DELETE FROM onceline_slot WHERE slot = 7"}, nil},
		{"onceline_floor has 0 rows", []string{"DELETE FROM onceline_floor"}, nil},
		{"innodb_flush_log_at_trx_commit is 2", []string{"SET GLOBAL innodb_flush_log_at_trx_commit = 2"}, []string{"SET GLOBAL innodb_flush_log_at_trx_commit = 1"}},
		{"the server is read only", []string{"SET GLOBAL read_only = 1"}, []string{"SET GLOBAL read_only = 0"}},
	} {
		db := newDatabase(t, server, first)
		s := open(t, db, mysql.Options{})
		exec(t, db, c.change...)
		if err := s.Verify(t.Context()); !errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.says, err)
		}
		exec(t, db, c.mend...)
	}
	db := newDatabase(t, server, first)
	for _, o := range []mysql.Options{{Window: -1}, {Window: time.Hour, Horizon: dedup.Horizon{Replay: 2 * time.Hour}}} {
		if _, err := mysql.New(t.Context(), db, o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := mysql.New(t.Context(), nil, mysql.Options{}); !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
	// Several processes that start at the same time.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := mysql.New(t.Context(), db, mysql.Options{})
			if err == nil {
				err = errors.Join(s.Migrate(t.Context()), s.Verify(t.Context()))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := mysql.New(t.Context(), db, mysql.Options{}); !errors.Is(err, dedup.ErrLost) {
		t.Errorf("no server: %v", err)
	}
}
