package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
)

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 8)
	t.Run("pgx", func(t *testing.T) {
		storetest.RunCheckpoints(t, true, func(t *testing.T) dedup.CheckpointDriver[pgx.Tx] {
			s, _ := open(t, p, postgres.Options{})
			return s
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		db := openSQL(t, p)
		storetest.RunCheckpoints(t, true, func(t *testing.T) dedup.CheckpointDriver[*sql.Tx] {
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

func TestRelayRecords(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 8)
	t.Run("pgx", func(t *testing.T) {
		storetest.RunRelayRecords(t, func(t *testing.T) storetest.RelayRecordsDriver[pgx.Tx] {
			s, _ := open(t, p, postgres.Options{})
			return s
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		db := openSQL(t, p)
		storetest.RunRelayRecords(t, func(t *testing.T) storetest.RelayRecordsDriver[*sql.Tx] {
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
