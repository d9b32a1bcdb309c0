package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driversql "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/onceline/onceline/dedup/audit"
	"github.com/onceline/onceline/localstack"
)

// place is a database in which a test makes tables.
type place struct {
	*audit.Database
	text, stamp, bytes string // types of columns
	filled             map[*row]string
}

var tables atomic.Int64

func onSQLite(t testing.TB) *place {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "audit.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &place{&audit.Database{DB: db, Dialect: audit.SQLite, Name: "sqlite"}, "TEXT COLLATE NOCASE", "DATETIME", "BLOB", map[*row]string{}}
}

// start starts a server, until the end of the whole test, as the tests of the stores do: where ONCELINE_LOCAL or
// ONCELINE_REQUIRE asks for it.
func start(whole, t testing.TB, name string, run func(context.Context, ...localstack.ServerOption) (*localstack.Database, error)) *localstack.Database {
	t.Helper()
	wanted := slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), name)
	if os.Getenv("ONCELINE_LOCAL") == "" && !wanted {
		t.Skipf("needs a server of %[1]s: set ONCELINE_LOCAL=1 or ONCELINE_REQUIRE=%[1]s", name)
	}
	server, err := run(context.Background())
	if errors.Is(err, localstack.ErrNotInstalled) && !wanted {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	whole.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			whole.Error(err)
		}
	})
	return server
}

func onPostgres(whole, t testing.TB) *place {
	t.Helper()
	server := start(whole, t, "postgres", localstack.StartPostgres)
	db, err := sql.Open("pgx", server.URL())
	if err != nil {
		t.Fatal(err)
	}
	whole.Cleanup(func() { _ = db.Close() })
	return &place{&audit.Database{DB: db, Dialect: audit.Postgres, Name: "postgres"}, "text", "timestamptz", "bytea", map[*row]string{}}
}

func onMariaDB(whole, t testing.TB) *place {
	t.Helper()
	server := start(whole, t, "mariadb", localstack.StartMariaDB)
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	config, err := driversql.ParseDSN(fmt.Sprintf("root@tcp(%s)/%s", u.Host, strings.TrimPrefix(u.Path, "/")))
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &driversql.NopLogger{}
	connector, err := driversql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	whole.Cleanup(func() { _ = db.Close() })
	return &place{&audit.Database{DB: db, Dialect: audit.MySQL, Name: "mariadb"}, "VARCHAR(200) CHARACTER SET utf8mb4", "DATETIME(6)", "VARBINARY(200)", map[*row]string{}}
}

func (p *place) exec(t testing.TB, q string, args ...any) {
	t.Helper()
	if _, err := p.DB.ExecContext(context.Background(), q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

// row is one of effects or of what was sent.
type row struct {
	key      any // nil for none
	at, last time.Time
	producer string
	seq      int64
	attempts int64
}

// fill makes a table with rows and returns its name; for the same rows the same.
func (p *place) fill(t testing.TB, rows []row) string {
	t.Helper()
	if len(rows) > 0 {
		if name, ok := p.filled[&rows[0]]; ok {
			return name
		}
	}
	name := fmt.Sprint("Rows ", tables.Add(1))
	quoted := `"` + name + `"`
	if p.Dialect == audit.MySQL {
		quoted = "`" + name + "`"
	}
	p.exec(t, fmt.Sprintf("CREATE TABLE %s (order_id %s, at %s, late %[3]s, who %[2]s, seq bigint, attempts bigint)", quoted, p.text, p.stamp))
	tx, err := p.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for chunk := range slices.Chunk(rows, 200) {
		var values []string
		var args []any
		for _, r := range chunk {
			var marks []string
			for _, v := range []any{r.key, p.time(r.at), p.time(r.last), r.producer, r.seq, r.attempts} {
				args = append(args, v)
				mark := "?"
				if p.Dialect == audit.Postgres {
					mark = fmt.Sprint("$", len(args))
				}
				marks = append(marks, mark)
			}
			values = append(values, "("+strings.Join(marks, ", ")+")")
		}
		if _, err := tx.Exec("INSERT INTO "+quoted+" VALUES "+strings.Join(values, ", "), args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if len(rows) > 0 {
		p.filled[&rows[0]] = name
	}
	return name
}

func (p *place) time(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC()
}
