package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/dedup/sqlite"
)

// outboxEnv holds the address of an outbox, and keeps its password out of the list of
// processes.
const outboxEnv = "ONCELINE_OUTBOX"

// outbox is an outbox that was opened by its address.
type outbox struct {
	dedup.OutboxStore
	// listen hears of new messages; nil where the store can't tell.
	listen func(topic string) func(ctx context.Context, wake func(), failed func(error))
	close  func() error
}

// openOutbox opens the database at from, whose tables are in schema. It makes missing
// tables where migrate says so. workers is how many turns will be under way.
func openOutbox(ctx context.Context, from, schema string, migrate bool, workers int) (*outbox, error) {
	scheme, rest, ok := strings.Cut(from, "://")
	switch {
	case from == "":
		return nil, fmt.Errorf("no outbox: give --from, or set %s", outboxEnv)
	case ok && (scheme == "postgres" || scheme == "postgresql"):
		return openPostgres(ctx, from, schema, migrate, workers)
	case schema != "":
		return nil, errors.New("--schema is for PostgreSQL")
	case ok && scheme == "sqlite":
		path, err := url.PathUnescape(rest)
		if err != nil {
			return nil, errors.New("--from: sqlite://PATH with an escape that isn't one")
		}
		return openSQLite(ctx, path, migrate)
	case ok: // may hold a password
		return nil, errors.New("--from: neither postgres://… nor sqlite://PATH")
	}
	return openSQLite(ctx, from, migrate)
}

func openSQLite(ctx context.Context, path string, migrate bool) (*outbox, error) {
	if _, err := os.Stat(path); err != nil && !migrate { // Open would make it
		return nil, runError{fmt.Errorf("--from: %w", err)}
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, failure(err)
	}
	return &outbox{OutboxStore: s, close: s.Close}, nil
}

func openPostgres(ctx context.Context, from, schema string, migrate bool, workers int) (*outbox, error) {
	config, err := pgxpool.ParseConfig(from)
	if err != nil { // its text may show parts of a password that isn't escaped
		return nil, errors.New("--from: not the address of a PostgreSQL database")
	}
	config.MaxConns = max(config.MaxConns, int32(workers)+2)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, runError{fmt.Errorf("--from: %w", err)}
	}
	s, err := postgres.New(pool, postgres.Options{Schema: schema})
	if err == nil && migrate {
		err = s.Migrate(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, failure(err)
	}
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config.ConnConfig.Copy()) }
	return &outbox{
		OutboxStore: s,
		listen: func(topic string) func(context.Context, func(), func(error)) {
			return postgres.Listener(connect, schema, topic)
		},
		close: func() error { pool.Close(); return nil },
	}, nil
}
