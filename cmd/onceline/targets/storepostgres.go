package targets

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup/postgres"
)

// postgresStores are the stores in PostgreSQL; nil for no server.
func postgresStores(server *storeServer) []conformance.Store {
	return sqlStores("postgres", server.make, openPostgresStore)
}

// openPostgresStore opens the schema that an address names, with one connection, which
// is cut to lose an answer.
func openPostgresStore(ctx context.Context, address string) (*database, error) {
	u, schema, err := nameIn(address)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, err
	}
	lose := new(atomic.Bool)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutOnCommit{Conn: c, lose: lose}, nil
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	d, err := preparePostgres(ctx, db, schema)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	d.lose = lose
	return d, nil
}

func preparePostgres(ctx context.Context, db *sql.DB, schema string) (*database, error) {
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		return nil, err
	}
	store, err := postgres.NewSQL(db, postgres.Options{Schema: schema})
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	if err := store.Verify(ctx); err != nil {
		return nil, err
	}
	d := &database{PositionDriver: store, calls: store, db: db, close: db.Close}
	_, err = db.ExecContext(ctx, d.texts(schema+"."))
	return d, err
}

// cutOnCommit is a connection to PostgreSQL that is cut when the answer to a commit is
// there, and before anybody has read it.
type cutOnCommit struct {
	net.Conn
	lose *atomic.Bool
	cut  atomic.Bool
}

func (c *cutOnCommit) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("commit")) && c.lose.Swap(false) {
		c.cut.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutOnCommit) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.cut.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}
