package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
)

// relayFile is where a process that is a relay finds its outbox.
const relayFile = "ONCELINE_SQLITE_RELAY_FILE"

// relay is what such a process does until it is killed.
func relay() error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, os.Getenv(relayFile), sqlite.Options{BusyTimeout: 20 * time.Second})
	if err != nil {
		return err
	}
	return storetest.RunRelay(ctx, s, dedup.RelayOptions{Poll: 20 * time.Millisecond})
}

// TestRelayKilled: relays over embedded NATS are killed in the middle.
func TestRelayKilled(t *testing.T) {
	e := servertest.NATS(t)
	path := filepath.Join(t.TempDir(), "a.db")
	storetest.RelayKills[*sql.Tx]{
		Driver: openFile(t, path, sqlite.Options{BusyTimeout: 20 * time.Second}), Broker: e.URL(), Kills: 2, Messages: 200,
		Fault: func() { e.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 3}) },
		Env:   []string{relayFile + "=" + path},
	}.Run(t)
}
