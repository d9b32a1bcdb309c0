package mysql_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/mysql"
)

// ahead is a clock that can be moved.
type ahead struct{ by atomic.Int64 }

func (a *ahead) now() time.Time          { return time.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) forward(d time.Duration) { a.by.Add(int64(d)) }

func TestOutbox(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
		var clock ahead
		return storetest.OutboxSetup[*sql.Tx]{Driver: open(t, newDatabase(t, server, first), mysql.Options{Now: clock.now}), Forward: clock.forward}
	})
	// Without a clock of its own the store takes the database's, whatever its zone.
	t.Run("Clock", func(t *testing.T) {
		storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
			db := newDatabase(t, server, first, "time_zone=%27%2B09%3A00%27")
			return storetest.OutboxSetup[*sql.Tx]{Driver: open(t, db, mysql.Options{}), Forward: func(time.Duration) {}}
		}, "Sent", "Order", "Parked", "Stop", "Wake")
	})
}
