package postgres_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
)

// ahead is a clock that can be moved.
type ahead struct{ by atomic.Int64 }

func (a *ahead) now() time.Time          { return time.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) forward(d time.Duration) { a.by.Add(int64(d)) }

func TestOutbox(t *testing.T) {
	p := connect(t, start(t), 16)
	t.Run("pgx", func(t *testing.T) {
		storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[pgx.Tx] {
			var clock ahead
			s, _ := open(t, p, postgres.Options{Now: clock.now})
			return storetest.OutboxSetup[pgx.Tx]{Driver: s, Forward: clock.forward}
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		db := openSQL(t, p)
		storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
			var clock ahead
			s, err := postgres.NewSQL(db, postgres.Options{Schema: newSchema(t, p), Now: clock.now})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return storetest.OutboxSetup[*sql.Tx]{Driver: s, Forward: clock.forward}
		})
	})
}
