package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/rueidis"

	"github.com/onceline/onceline/localstack"
)

// Database is what was found of a database that dedup stores can keep their state in.
// No claim is asked of it.
type Database struct {
	Name    string // "postgres", "mariadb", "redis"
	Version string // as the server itself says; with its own name where that differs
	// Absent says what is missing where it isn't installed, and the rest is zero then.
	Absent string
	// Kept is true if what the server had answered to was there after it was killed
	// and started again.
	Kept bool
	// Err is why nothing was found out; nil if Absent.
	Err error
}

// Databases starts each database that dedup stores are for, on a port and in a folder
// of its own, speaks to it by its own protocol, commits a write, kills it with SIGKILL,
// starts it again and looks for the write. It blocks until all have been stopped, and
// starts no more when ctx ends. p may be nil; it is told of the steps, from several
// goroutines at a time.
func Databases(ctx context.Context, p Progress) []Database {
	kinds := []struct {
		name  string
		start func(context.Context, ...localstack.ServerOption) (*localstack.Database, error)
		open  func(ctx context.Context, url string) (databaseClient, error)
	}{
		{"postgres", localstack.StartPostgres, openPostgres},
		{"mariadb", localstack.StartMariaDB, openMariaDB},
		{"redis", localstack.StartRedis, openRedis},
	}
	found := make([]Database, len(kinds))
	var all sync.WaitGroup
	for i, kind := range kinds {
		found[i].Name = kind.name
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, databaseWithin)
			defer cancel()
			db, err := kind.start(ctx, p.For(kind.name))
			if errors.Is(err, localstack.ErrNotInstalled) {
				found[i].Absent = err.Error()
				return
			}
			if err == nil {
				err = found[i].examine(ctx, db, kind.open)
			}
			if err != nil {
				found[i].Err = fmt.Errorf("%s: %w", kind.name, err)
			}
		})
	}
	all.Wait()
	return found
}

// Bounds of what is done with one database, its making included, and of its stop.
const (
	databaseWithin = 2 * time.Minute
	databaseStop   = 30 * time.Second
)

// databaseClient is one connection.
type databaseClient interface {
	version(ctx context.Context) (string, error)
	// write commits a value, which read returns; "" if there is none.
	write(ctx context.Context, value string) error
	read(ctx context.Context) (string, error)
	close(ctx context.Context) error
}

func (d *Database) examine(ctx context.Context, db *localstack.Database, open func(context.Context, string) (databaseClient, error)) (err error) {
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseStop)
		defer cancel()
		err = errors.Join(err, db.Close(end))
	}()
	const value = "committed before the kill"
	err = with(ctx, db.URL(), open, func(c databaseClient) error {
		if d.Version, err = c.version(ctx); err != nil {
			return fmt.Errorf("version: %w", err)
		}
		if err := c.write(ctx, value); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := db.Kill(ctx); err != nil {
		return err
	}
	return with(ctx, db.URL(), open, func(c databaseClient) error {
		got, err := c.read(ctx)
		if err != nil {
			return fmt.Errorf("read after the kill: %w", err)
		}
		d.Kept = got == value
		return nil
	})
}

// with runs do on a connection of its own.
func with(ctx context.Context, url string, open func(context.Context, string) (databaseClient, error), do func(databaseClient) error) error {
	c, err := open(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return errors.Join(do(c), c.close(ctx))
}

// In SQL a table that is gone is a loss like a row that is; both servers say so by
// an error of their own.
const (
	createSQL = "CREATE TABLE IF NOT EXISTS onceline_kept (value TEXT NOT NULL)"
	selectSQL = "SELECT value FROM onceline_kept"
)

type postgresClient struct{ *pgx.Conn }

func openPostgres(ctx context.Context, url string) (databaseClient, error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return postgresClient{c}, nil
}

func (c postgresClient) version(ctx context.Context) (v string, err error) {
	return v, c.QueryRow(ctx, "SHOW server_version").Scan(&v)
}

func (c postgresClient) write(ctx context.Context, value string) error {
	return pgx.BeginFunc(ctx, c.Conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, createSQL); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO onceline_kept VALUES ($1)", value)
		return err
	})
}

func (c postgresClient) read(ctx context.Context) (v string, err error) {
	if err = c.QueryRow(ctx, selectSQL).Scan(&v); errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	var gone *pgconn.PgError
	if errors.As(err, &gone) && gone.Code == "42P01" { // undefined_table
		return "", nil
	}
	return v, err
}

func (c postgresClient) close(ctx context.Context) error { return c.Conn.Close(ctx) }

type mariaDBClient struct{ *sql.DB }

func openMariaDB(ctx context.Context, raw string) (databaseClient, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Logger = &mysql.NopLogger{} // its errors are returned as well
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return mariaDBClient{db}, nil
}

func (c mariaDBClient) version(ctx context.Context) (v string, err error) {
	return v, c.QueryRowContext(ctx, "SELECT VERSION()").Scan(&v)
}

func (c mariaDBClient) write(ctx context.Context, value string) error {
	// It commits what makes a table by itself.
	if _, err := c.ExecContext(ctx, createSQL+" ENGINE=InnoDB"); err != nil {
		return err
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO onceline_kept VALUES (?)", value); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (c mariaDBClient) read(ctx context.Context) (v string, err error) {
	if err = c.QueryRowContext(ctx, selectSQL).Scan(&v); errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	var gone *mysql.MySQLError
	if errors.As(err, &gone) && gone.Number == 1146 { // ER_NO_SUCH_TABLE
		return "", nil
	}
	return v, err
}

func (c mariaDBClient) close(context.Context) error { return c.Close() }

type redisClient struct{ rueidis.Client }

const redisKey = "onceline:kept"

func openRedis(ctx context.Context, raw string) (databaseClient, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{u.Host}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return nil, err
	}
	if err := c.Do(ctx, c.B().Ping().Build()).Error(); err != nil {
		c.Close()
		return nil, err
	}
	return redisClient{c}, nil
}

// version names the server where that isn't Redis, whose version it imitates then.
func (c redisClient) version(ctx context.Context) (string, error) {
	info, err := c.Do(ctx, c.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return "", err
	}
	said := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		said[name] = value
	}
	if v := said["valkey_version"]; v != "" {
		return "Valkey " + v, nil
	}
	if v := said["redis_version"]; v != "" {
		return v, nil
	}
	return "", errors.New("it says none")
}

func (c redisClient) write(ctx context.Context, value string) error {
	return c.Do(ctx, c.B().Set().Key(redisKey).Value(value).Build()).Error()
}

func (c redisClient) read(ctx context.Context) (string, error) {
	v, err := c.Do(ctx, c.B().Get().Key(redisKey).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return v, err
}

func (c redisClient) close(context.Context) error { c.Client.Close(); return nil }
