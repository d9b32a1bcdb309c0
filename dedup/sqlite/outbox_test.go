package sqlite_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
)

// ahead is a clock that can be moved.
type ahead struct{ by atomic.Int64 }

func (a *ahead) now() time.Time          { return time.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) forward(d time.Duration) { a.by.Add(int64(d)) }

func TestOutbox(t *testing.T) {
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
		var clock ahead
		return storetest.OutboxSetup[*sql.Tx]{Driver: open(t, sqlite.Options{Now: clock.now}), Forward: clock.forward, Leased: true}
	})
}

func TestLongOutbox(t *testing.T) {
	s := open(t, sqlite.Options{})
	storetest.LongOutbox(t, s, func(t *testing.T, n int) {
		if _, err := s.DB().Exec(`WITH RECURSIVE g (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < ?)
			INSERT INTO onceline_outbox (topic, lane, hash, at, added, id, key, meta, body) SELECT 'long', i % 64, 1 + i % 200, 1, 1, CAST(i AS BLOB), x'6b', x'', x'62' FROM g`, n); err != nil {
			t.Fatal(err)
		}
	})
}
