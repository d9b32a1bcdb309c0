package dedup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
)

// required reports whether the test run must not be without a database.
func required(name string) bool {
	return slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), name)
}

// TestVersioned: states come twice and in any order, to eight consumers at once, and
// the newest one stands, whole.
func TestVersioned(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		versioned(t, dedup.SQLite, s.DB())
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		if !required("postgres") {
			t.Skip("needs a PostgreSQL server: set ONCELINE_REQUIRE=postgres")
		}
		db, err := localstack.StartPostgres(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close(context.Background()) }) // after its clients
		versioned(t, dedup.PostgreSQL, openDB(t, "pgx", db.URL()))
	})
	t.Run("MariaDB", func(t *testing.T) {
		if !required("mariadb") {
			t.Skip("needs a MariaDB server: set ONCELINE_REQUIRE=mariadb")
		}
		db, err := localstack.StartMariaDB(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close(context.Background()) }) // after its clients
		versioned(t, dedup.MySQL, openDB(t, "mysql", mysqlName(t, db.URL())))
	})
}

func openDB(t *testing.T, driver, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// mysqlName is a server's URL as the driver names it.
func mysqlName(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s@tcp(%s)%s", u.User.Username(), u.Host, u.Path)
}

func versioned(t *testing.T, d dedup.Dialect, db *sql.DB) {
	ctx := t.Context()
	quote := `"`
	if d == dedup.MySQL {
		quote = "`"
	}
	if _, err := db.ExecContext(ctx, strings.ReplaceAll("CREATE TABLE 'account state' ('owner' VARCHAR(20) NOT NULL, id INTEGER NOT NULL, 'the version' BIGINT NOT NULL, name VARCHAR(20), city VARCHAR(20), PRIMARY KEY ('owner', id))", "'", quote)); err != nil {
		t.Fatal(err)
	}
	v, err := dedup.NewVersioned(d, dedup.VersionedTable{Name: "account state", Key: []string{"owner", "id"}, Version: "the version", Columns: []string{"name", "city"}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(id, version int) dedup.Outcome {
		outcome, err := v.Write(ctx, dedup.ExecSQL(db), int64(version), []any{"o'\"`", id}, fmt.Sprint("name ", version), fmt.Sprint("city ", version))
		if err != nil {
			t.Error(err)
		}
		return outcome
	}
	for i, c := range []struct {
		version int
		want    dedup.Outcome
	}{{3, dedup.Applied}, {3, dedup.Duplicate}, {2, dedup.Duplicate}, {5, dedup.Applied}, {4, dedup.Duplicate}, {5, dedup.Duplicate}, {1 << 40, dedup.Applied}, {-1, dedup.Duplicate}} {
		if got := write(0, c.version); got != c.want {
			t.Errorf("write %d, version %d: %v, want %v", i, c.version, got, c.want)
		}
	}
	whole := func(id, version int) {
		t.Helper()
		var at int
		var name, city string
		query := strings.ReplaceAll(fmt.Sprintf("SELECT 'the version', name, city FROM 'account state' WHERE id = %d", id), "'", quote)
		if err := db.QueryRowContext(ctx, query).Scan(&at, &name, &city); err != nil {
			t.Fatal(err)
		}
		if at != version || name != fmt.Sprint("name ", version) || city != fmt.Sprint("city ", version) {
			t.Errorf("account %d: version %d, %s, %s; want %d", id, at, name, city, version)
		}
	}
	whole(0, 1<<40)

	const accounts, versions = 5, 20
	var applied atomic.Int64
	var consumers sync.WaitGroup
	for c := range 8 {
		consumers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 7))
			for _, i := range random.Perm(accounts * versions) {
				if write(1+i%accounts, 1+i/accounts) == dedup.Applied {
					applied.Add(1)
				}
			}
		})
	}
	consumers.Wait()
	for id := range accounts {
		whole(1+id, versions)
	}
	if n := applied.Load(); n < accounts || n > accounts*versions {
		t.Errorf("%d writes were applied", n)
	}
	if _, err := v.Write(ctx, dedup.ExecSQL(db), 1, []any{1}, "a", "b"); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("part of a key: %v", err)
	}
	if outcome, err := v.Write(ctx, dedup.ExecSQL(db), 1, []any{nil, 1}, "a", "b"); err == nil || outcome != dedup.Unknown {
		t.Errorf("%v, %v", outcome, err)
	}
}

func TestVersionedTable(t *testing.T) {
	for _, bad := range []dedup.VersionedTable{{}, {Name: "t"}, {Name: "t", Key: []string{"a"}}, {Key: []string{"a"}, Version: "v"},
		{Name: "t", Key: []string{"a"}, Version: "v", Columns: []string{""}}, {Name: "t", Key: []string{"a"}, Version: "a"}} {
		if _, err := dedup.NewVersioned(dedup.SQLite, bad); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	good := dedup.VersionedTable{Name: "s.t", Key: []string{"a"}, Version: "v"}
	if _, err := dedup.NewVersioned(0, good); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("no dialect: %v", err)
	}
	v, err := dedup.NewVersioned(dedup.PostgreSQL, good)
	if err != nil {
		t.Fatal(err)
	}
	if want := `INSERT INTO "s"."t" AS old_row ("a", "v") VALUES ($1, $2) ON CONFLICT ("a") DO UPDATE SET "v" = excluded."v" WHERE old_row."v" < excluded."v"`; v.Query() != want {
		t.Error(v.Query())
	}
	if got := fmt.Sprint(dedup.PostgreSQL, dedup.SQLite, dedup.MySQL, dedup.Dialect(9)); got != "PostgreSQL SQLite MySQL Dialect(9)" {
		t.Error(got)
	}
}

// A message that tells an order's state has no effect when it comes again, or after a
// newer one.
func ExampleVersioned_Write() {
	store, _, closeBank := openBank()
	defer closeBank()
	ctx := context.Background()
	if _, err := store.DB().Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL)"); err != nil {
		fmt.Println(err)
	}
	orders, err := dedup.NewVersioned(dedup.SQLite, dedup.VersionedTable{Name: "orders", Key: []string{"id"}, Version: "version", Columns: []string{"state"}})
	if err != nil {
		fmt.Println(err)
	}
	for _, m := range []struct {
		version int64
		state   string
	}{{1, "placed"}, {3, "shipped"}, {3, "shipped"}, {2, "paid"}} {
		outcome, err := orders.Write(ctx, dedup.ExecSQL(store.DB()), m.version, []any{"8812"}, m.state)
		fmt.Println(m.state, outcome, err)
	}
	// Output:
	// placed applied <nil>
	// shipped applied <nil>
	// shipped duplicate <nil>
	// paid duplicate <nil>
}
