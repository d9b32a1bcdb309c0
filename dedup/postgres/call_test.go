package postgres_test

import (
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
)

// TestCalls: the behaviours of every store of calls, by pgx and by database/sql.
func TestCalls(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 10)
	t.Run("pgx", func(t *testing.T) {
		storetest.RunCalls(t, func(t *testing.T) dedup.CallDriver {
			s, _ := open(t, p, postgres.Options{})
			return s
		})
	})
	t.Run("SQL", func(t *testing.T) {
		db := openSQL(t, p)
		storetest.RunCalls(t, func(t *testing.T) dedup.CallDriver {
			s, err := postgres.NewSQL(db, postgres.Options{Schema: newSchema(t, p)})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}
