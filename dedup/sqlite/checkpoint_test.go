package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
)

func TestCheckpoints(t *testing.T) {
	storetest.RunCheckpoints(t, false, func(t *testing.T) dedup.CheckpointDriver[*sql.Tx] { return open(t, sqlite.Options{}) })
}

func TestRelayRecords(t *testing.T) {
	storetest.RunRelayRecords(t, func(t *testing.T) storetest.RelayRecordsDriver[*sql.Tx] { return open(t, sqlite.Options{}) })
}
