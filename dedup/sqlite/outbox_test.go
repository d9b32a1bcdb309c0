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
