package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
)

// Where a process that is a relay finds its outbox and its broker.
const (
	relayFile   = "ONCELINE_SQLITE_RELAY_FILE"
	relayBroker = "ONCELINE_SQLITE_RELAY_BROKER"
)

// relay is what such a process does until it is killed.
func relay() error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, os.Getenv(relayFile), sqlite.Options{})
	if err != nil {
		return err
	}
	conn, err := broker.Open(ctx, os.Getenv(relayBroker))
	if err != nil {
		return err
	}
	to, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		return err
	}
	fmt.Println("started")
	return dedup.NewRelay(s, "orders", to, dedup.RelayOptions{Batch: 20, Poll: 20 * time.Millisecond, PublishTimeout: 300 * time.Millisecond,
		Backoff: broker.Backoff{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}}).Run(ctx)
}

// TestRelayKilled: relays over embedded NATS are killed in the middle.
func TestRelayKilled(t *testing.T) {
	e, err := localstack.StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	conn, err := broker.Open(t.Context(), e.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	path := filepath.Join(t.TempDir(), "a.db")
	storetest.RelayKills[*sql.Tx]{
		Driver: openFile(t, path, sqlite.Options{BusyTimeout: 20 * time.Second}), Conn: conn, Kills: 2, Messages: 200,
		Fault: func() { e.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 3}) },
		Relay: func() *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), relayFile+"="+path, relayBroker+"="+e.URL())
			cmd.Stderr = os.Stderr
			return cmd
		},
	}.Run(t)
}
