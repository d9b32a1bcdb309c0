package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/localstack"
)

// start starts a server for the test alone.
func start(t testing.TB) *localstack.Database {
	t.Helper()
	return servertest.MariaDB(t)
}

// dsn is the address of a database of the server, "" for the first.
func dsn(t testing.TB, server *localstack.Database, name string, more ...string) string {
	t.Helper()
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		name = strings.TrimPrefix(u.Path, "/")
	}
	return strings.Join(append([]string{fmt.Sprintf("root@tcp(%s)/%s?readTimeout=40s&timeout=10s", u.Host, name)}, more...), "&")
}

// connect opens a database of the server, "" for the first.
func connect(t testing.TB, server *localstack.Database, name string, more ...string) *sql.DB {
	t.Helper()
	config, err := driversql.ParseDSN(dsn(t, server, name, more...))
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &driversql.NopLogger{} // it tells of each connection that a test cuts
	connector, err := driversql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t testing.TB, db *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.ExecContext(context.Background(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

var databases atomic.Int64

// newDatabase makes a database that no other test uses, with a ledger in it.
func newDatabase(t testing.TB, server *localstack.Database, first *sql.DB, more ...string) *sql.DB {
	t.Helper()
	name := fmt.Sprint("test", databases.Add(1))
	exec(t, first, "CREATE DATABASE "+name)
	db := connect(t, server, name, more...)
	exec(t, db, "CREATE TABLE ledger (id VARBINARY(300) NOT NULL) ENGINE = InnoDB")
	return db
}

// open makes a store in db.
func open(t testing.TB, db *sql.DB, o mysql.Options) *mysql.Store {
	t.Helper()
	s, err := mysql.New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func effect(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) VALUES (?)", id)
	return err
}

// ledger counts the rows of each ID.
func ledger(ctx context.Context, db *sql.DB) (map[string]int, error) {
	rows, err := db.QueryContext(ctx, "SELECT id, count(*) FROM ledger GROUP BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		got[id] = n
	}
	return got, rows.Err()
}
