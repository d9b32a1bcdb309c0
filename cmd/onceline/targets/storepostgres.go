package targets

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup/postgres"
)

// postgresStores are the stores in PostgreSQL; nil for no server.
func postgresStores(server *storeServer) []conformance.Store {
	// Migrations take turns, for which one waits no longer than for any other lock.
	var migrating sync.Mutex
	prepared := func(ctx context.Context) (string, func() error, error) {
		address, remove, err := server.make(ctx)
		if err == nil {
			migrating.Lock()
			defer migrating.Unlock()
			err = preparePostgres(ctx, address)
		}
		return address, remove, err
	}
	return sqlStores("postgres", prepared, openPostgresStore)
}

// preparePostgres makes the schema that an address names, and what belongs in it.
func preparePostgres(ctx context.Context, address string) error {
	d, schema, err := connectPostgres(address)
	if err != nil {
		return err
	}
	defer d.close()
	if _, err := d.db.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		return err
	}
	store := d.PositionDriver.(*postgres.SQL)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if _, err := d.db.ExecContext(ctx, d.texts(schema+".")); err != nil {
		return err
	}
	return store.Verify(ctx)
}

// openPostgresStore opens the schema that an address names.
func openPostgresStore(_ context.Context, address string) (*database, error) {
	d, schema, err := connectPostgres(address)
	if err == nil {
		d.texts(schema + ".")
	}
	return d, err
}

// connectPostgres is a database of one connection, which is cut to lose an answer.
func connectPostgres(address string) (*database, string, error) {
	u, schema, err := nameIn(address)
	if err != nil {
		return nil, "", err
	}
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, "", err
	}
	lose := new(atomic.Bool)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutOnCommit{Conn: c, lose: lose, commits: postgresCommits}, nil
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	store, err := postgres.NewSQL(db, postgres.Options{Schema: schema})
	if err != nil {
		return nil, "", errors.Join(err, db.Close())
	}
	return &database{PositionDriver: store, calls: store, db: db, consumer: "probe", lose: lose, close: db.Close}, schema, nil
}

// postgresCommits reports whether what is sent is a commit.
func postgresCommits(b []byte) bool { return bytes.Contains(bytes.ToLower(b), []byte("commit")) }
