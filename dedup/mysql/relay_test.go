package mysql_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	driversql "github.com/go-sql-driver/mysql"
	_ "github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/localstack"
)

// relayDatabase is where a process that is a relay finds its outbox.
const relayDatabase = "ONCELINE_MYSQL_RELAY_DATABASE"

// relay is what such a process does until it is killed.
func relay() error {
	ctx := context.Background()
	_ = driversql.SetLogger(&driversql.NopLogger{}) // it tells of connections that the test cuts
	db, err := sql.Open("mysql", os.Getenv(relayDatabase))
	if err != nil {
		return err
	}
	s, err := mysql.New(ctx, db, mysql.Options{})
	if err != nil {
		return err
	}
	return storetest.RunRelay(ctx, s, dedup.RelayOptions{Poll: 20 * time.Millisecond})
}

// TestRelayKilled: relays over embedded NATS are killed in the middle, and the
// connections to the database cut.
func TestRelayKilled(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{})
	e := servertest.NATS(t)
	var name string
	if err := db.QueryRow("SELECT database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	storetest.RelayKills[*sql.Tx]{
		Driver: s, Broker: e.URL(), Kills: 2, Messages: 200,
		Fault: func() {
			e.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 3})
			server.Disconnect()
		},
		Env: []string{relayDatabase + "=" + dsn(t, server, name)},
	}.Run(t)
}
