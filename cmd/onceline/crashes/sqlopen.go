package crashes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/dedup/sqlite"
)

const (
	insertText = "INSERT INTO ledger (id) VALUES ($1)"
	countText  = "SELECT id, count(*) FROM ledger WHERE id LIKE $1 GROUP BY id"
)

// openSQLite opens the file at the address.
func openSQLite(ctx context.Context, address string, _ *wires) (*database, error) {
	s, err := sqlite.Open(ctx, address, sqlite.Options{BusyTimeout: busyTimeout})
	if err != nil {
		return nil, err
	}
	return &database{db: s.DB(), store: s, calls: s, insert: insertText, count: countText, tables: tablesOf("TEXT"), ends: []func() error{s.Close}}, nil
}

// dialer is wires' dial, nil for none.
func dialer(w *wires) func(context.Context, string, string) (net.Conn, error) {
	if w == nil {
		return nil
	}
	return w.dial
}

// openPostgres opens the database at the address, with one connection of each kind in a
// consumer.
func openPostgres(_ context.Context, address string, w *wires) (*database, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	if dial := dialer(w); dial != nil {
		config.DialFunc = dial
	}
	o := postgres.Options{IdleTimeout: idleTimeout}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	if w == nil {
		db.SetMaxOpenConns(8)
	}
	s, err := postgres.NewSQL(db, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	one := &oneConn{config: config}
	p, err := postgres.New(one, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &database{db: db, store: s, calls: s, pgx: p, wires: w, insert: insertText, count: countText, tables: tablesOf("TEXT"),
		ends: []func() error{db.Close, one.close}}, nil
}

// oneConn is a connection that is made again when it is lost: what a pool is to those
// who need several.
type oneConn struct {
	config *pgx.ConnConfig
	conn   *pgx.Conn
}

func (o *oneConn) connected(ctx context.Context) error {
	if o.conn != nil && !o.conn.IsClosed() && o.conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	_ = o.close()
	c, err := pgx.ConnectConfig(ctx, o.config)
	if err == nil {
		o.conn = c
	}
	return err
}

func (o *oneConn) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	if err := o.connected(ctx); err != nil {
		return nil, err
	}
	return o.conn.BeginTx(ctx, options)
}

func (o *oneConn) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if err := o.connected(ctx); err != nil {
		return failedRow{err}
	}
	return o.conn.QueryRow(ctx, query, args...)
}

func (o *oneConn) close() error {
	if o.conn == nil {
		return nil
	}
	c := o.conn
	o.conn = nil
	_ = c.Close(context.Background()) // one that is lost says so
	return nil
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// openMariaDB opens the database at the address.
func openMariaDB(ctx context.Context, address string, w *wires) (*database, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	config, err := driver.ParseDSN(fmt.Sprintf("%s@tcp(%s)/%s?readTimeout=40s&writeTimeout=40s&timeout=10s", u.User.Username(), u.Host, strings.TrimPrefix(u.Path, "/")))
	if err != nil {
		return nil, err
	}
	config.Logger, config.DialFunc = &driver.NopLogger{}, dialer(w) // its errors are returned as well
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if w == nil {
		db.SetMaxOpenConns(8)
	}
	s, err := mysql.New(ctx, db, mysql.Options{IdleTimeout: idleTimeout})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &database{db: db, store: s, calls: s, wires: w, insert: "INSERT INTO ledger (id) VALUES (?)",
		count: "SELECT id, count(*) FROM ledger WHERE id LIKE ? GROUP BY id", tables: tablesOf("VARCHAR(100)"), ends: []func() error{db.Close}}, nil
}
