package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	processes "os/exec"
	"testing"
	"time"

	_ "github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/localstack"
)

// Where a process that is a relay finds its outbox and its broker.
const (
	relayDatabase = "ONCELINE_MYSQL_RELAY_DATABASE"
	relayBroker   = "ONCELINE_MYSQL_RELAY_BROKER"
)

// relay is what such a process does until it is killed.
func relay() error {
	ctx := context.Background()
	db, err := sql.Open("mysql", os.Getenv(relayDatabase))
	if err != nil {
		return err
	}
	s, err := mysql.New(ctx, db, mysql.Options{})
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

// TestRelayKilled: relays over embedded NATS are killed in the middle, and the
// connections to the database cut.
func TestRelayKilled(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{})
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
	var name string
	if err := db.QueryRow("SELECT database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	storetest.RelayKills[*sql.Tx]{
		Driver: s, Conn: conn, Kills: 2, Messages: 200,
		Fault: func() {
			e.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 3})
			server.Disconnect()
		},
		Relay: func() *processes.Cmd {
			cmd := processes.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), relayDatabase+"="+dsn(t, server, name), relayBroker+"="+e.URL())
			return cmd
		},
	}.Run(t)
}
