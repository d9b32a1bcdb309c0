package targets

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup/mysql"
)

// mysqlStores are the stores in MariaDB; nil for no server. All are in one database, for
// to make its tables takes longer than many a probe: what each keeps is under a name of
// its own.
func mysqlStores(server *storeServer) []conformance.Store {
	return sqlStores("mariadb", server.make, openMySQLStore)
}

// prepareMySQL makes the tables in the database at an address.
func prepareMySQL(ctx context.Context, address string) error {
	d, err := openMySQLStore(ctx, address)
	if err != nil {
		return err
	}
	defer d.close()
	store := d.PositionDriver.(*mysql.Store)
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	_, err = d.db.ExecContext(ctx, `CREATE TABLE onceline_effect (n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, store VARBINARY(100) NOT NULL,
		id VARBINARY(255) NOT NULL, called VARBINARY(255), KEY (store, id), UNIQUE KEY (store, called)) ENGINE = InnoDB`)
	if err != nil {
		return err
	}
	return store.Verify(ctx)
}

// openMySQLStore opens the store that an address names, by one connection, which is cut
// to lose an answer.
func openMySQLStore(ctx context.Context, address string) (*database, error) {
	u, name, err := nameIn(address)
	if err != nil {
		return nil, err
	}
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Timeout, c.ReadTimeout, c.WriteTimeout = 10*time.Second, 40*time.Second, 40*time.Second
	c.Logger = &driver.NopLogger{} // its errors are returned as well
	lose := new(atomic.Bool)
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutOnCommit{Conn: conn, lose: lose, commits: func(b []byte) bool { return bytes.HasSuffix(b, []byte("COMMIT")) }}, nil
	}
	connector, err := driver.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	store, err := mysql.New(ctx, db, mysql.Options{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// The name is of letters that need no quotes.
	return &database{PositionDriver: store, calls: store, db: db, consumer: name, lose: lose, close: db.Close,
		insert: "INSERT INTO onceline_effect (store, id) VALUES ('" + name + "', ?)",
		call:   "INSERT INTO onceline_effect (store, id, called) VALUES ('" + name + "', ?, ?) ON DUPLICATE KEY UPDATE n = n",
		count:  "SELECT count(*) FROM onceline_effect WHERE store = '" + name + "' AND id = ?"}, nil
}
