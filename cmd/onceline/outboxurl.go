package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/dedup/sqlite"
)

// outboxEnv holds the address of an outbox, and keeps its password out of the list of
// processes.
const outboxEnv = "ONCELINE_OUTBOX"

// outbox is an outbox that was opened by its address.
type outbox struct {
	dedup.OutboxStore
	// note is what who runs it should know of the database; "" for nothing.
	note string
	// listen hears of new messages; nil where the store can't tell.
	listen func(topic string) func(ctx context.Context, wake func(), failed func(error))
	// through puts messages into the outbox of a topic, each once by the marks of the
	// named consumer, and wakes a relay.
	through func(consumer, topic string, wake func()) (broker.Publisher, func(context.Context) error)
	// expire removes marks that are older than they are kept.
	expire func(ctx context.Context) error
	close  func() error
}

// throughOf is outbox.through of a store.
func throughOf[T any](store interface {
	dedup.Driver[T]
	dedup.OutboxDriver[T]
}) func(consumer, topic string, wake func()) (broker.Publisher, func(context.Context) error) {
	return func(consumer, topic string, wake func()) (broker.Publisher, func(context.Context) error) {
		out := dedup.NewOutbox(store, topic, dedup.OutboxOptions{Wake: wake, Others: true})
		return bridge.Through(dedup.New(store, consumer, dedup.Options{}), out), out.Close
	}
}

// openOutbox opens the database at from, whose tables are in schema. It makes missing
// tables where migrate says so. workers is how many turns will be under way.
func openOutbox(ctx context.Context, from, schema string, migrate bool, workers int) (*outbox, error) {
	return openDatabase(ctx, "--from", from, schema, migrate, workers, 0)
}

// openDatabase is openOutbox for what the flag named flag gives; keep is how long marks
// of an inbox are kept, zero as long as the store does by itself.
func openDatabase(ctx context.Context, flag, from, schema string, migrate bool, workers int, keep time.Duration) (*outbox, error) {
	scheme, rest, ok := strings.Cut(from, "://")
	switch {
	case from == "":
		return nil, fmt.Errorf("no outbox: give %s, or set %s", flag, outboxEnv)
	case ok && (scheme == "postgres" || scheme == "postgresql"):
		return openPostgres(ctx, flag, from, schema, migrate, workers, keep)
	case schema != "":
		return nil, errors.New("--schema is for PostgreSQL")
	case ok && (scheme == "mysql" || scheme == "mariadb"):
		return openMySQL(ctx, flag, from, migrate, workers, keep)
	case ok && scheme == "sqlite":
		path, err := url.PathUnescape(rest)
		if err != nil {
			return nil, errors.New(flag + ": sqlite://PATH with an escape that isn't one")
		}
		return openSQLite(ctx, flag, path, migrate, keep)
	case ok: // may hold a password
		return nil, errors.New(flag + ": neither postgres://…, mysql://…, mariadb://… nor sqlite://PATH")
	}
	return openSQLite(ctx, flag, from, migrate, keep)
}

func openSQLite(ctx context.Context, flag, path string, migrate bool, keep time.Duration) (*outbox, error) {
	if _, err := os.Stat(path); err != nil && !migrate { // Open would make it
		return nil, runError{fmt.Errorf("%s: %w", flag, err)}
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{Window: keep})
	if err != nil {
		return nil, failure(err)
	}
	expire := func(ctx context.Context) error { _, err := s.Expire(ctx); return err }
	return &outbox{OutboxStore: s, through: throughOf(s), expire: expire, close: s.Close}, nil
}

func openPostgres(ctx context.Context, flag, from, schema string, migrate bool, workers int, keep time.Duration) (*outbox, error) {
	config, err := pgxpool.ParseConfig(from)
	if err != nil { // its text may show parts of a password that isn't escaped
		return nil, errors.New(flag + ": not the address of a PostgreSQL database")
	}
	config.MaxConns = max(config.MaxConns, int32(workers)+2)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, runError{fmt.Errorf("%s: %w", flag, err)}
	}
	s, err := postgres.New(pool, postgres.Options{Schema: schema, Window: keep})
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
		through: throughOf(s),
		expire:  func(ctx context.Context) error { _, err := s.Maintain(ctx); return err },
		close:   func() error { pool.Close(); return nil },
	}, nil
}

// openMySQL opens a database by mysql://user:password@host:port/database, whose
// parameters are those of the driver. What waits for a server that is frozen is bounded,
// which the driver leaves to its user.
func openMySQL(ctx context.Context, flag, from string, migrate bool, workers int, keep time.Duration) (*outbox, error) {
	config, err := mysqlConfig(from)
	if err != nil { // its text may show parts of a password that isn't escaped
		return nil, errors.New(flag + ": not the address of a MySQL or MariaDB database: mysql://USER:PASSWORD@HOST:PORT/DATABASE, and the driver's parameters")
	}
	connector, err := driversql.NewConnector(config)
	if err != nil {
		return nil, errors.New(flag + ": the parameters of the address don't fit together")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(workers + 2)
	db.SetMaxIdleConns(workers + 2)
	s, err := mysql.New(ctx, db, mysql.Options{Window: keep})
	if err == nil && migrate {
		err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(failure(err), db.Close())
	}
	expire := func(ctx context.Context) error { _, err := s.Expire(ctx); return err }
	box := &outbox{OutboxStore: s, through: throughOf(s), expire: expire, close: db.Close}
	if !s.Tested() {
		box.note = fmt.Sprintf("the server is MySQL %s: its outbox is tested on MariaDB, and untested on MySQL", s.Version())
	}
	return box, nil
}

func mysqlConfig(from string) (*driversql.Config, error) {
	u, err := url.Parse(from)
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Hostname() == "" || name == "" || strings.Contains(name, "/") {
		return nil, errors.New("no host, or no database")
	}
	config := driversql.NewConfig()
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 10*time.Second, 40*time.Second, 40*time.Second
	if u.RawQuery != "" {
		// The driver reads its parameters in its own form of an address alone.
		parsed, err := driversql.ParseDSN("tcp(h)/d?" + u.RawQuery)
		if err != nil {
			return nil, err
		}
		for _, bound := range []struct{ of, zero *time.Duration }{
			{&parsed.Timeout, &config.Timeout}, {&parsed.ReadTimeout, &config.ReadTimeout}, {&parsed.WriteTimeout, &config.WriteTimeout},
		} {
			if *bound.of == 0 {
				*bound.of = *bound.zero
			}
		}
		config = parsed
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	config.Net, config.Addr, config.DBName = "tcp", net.JoinHostPort(u.Hostname(), port), name
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &driversql.NopLogger{} // its errors are returned as well
	return config, nil
}
