package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/pipeline"
)

// TestPostgres: the record is kept in PostgreSQL, which ends all its connections in
// the middle, again and again, while two processes take the pipeline from each other.
func TestPostgres(t *testing.T) {
	t.Parallel()
	wanted := slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), "postgres")
	if os.Getenv("ONCELINE_LOCAL") == "" && !wanted {
		t.Skip("needs a PostgreSQL server: set ONCELINE_LOCAL=1 or ONCELINE_REQUIRE=postgres")
	}
	server, err := localstack.StartPostgres(context.Background())
	if errors.Is(err, localstack.ErrNotInstalled) && !wanted {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	connect := func(name string) *sql.DB {
		db, err := sql.Open("pgx", server.URL()+"&application_name="+name)
		if !strings.Contains(server.URL(), "?") {
			db, err = sql.Open("pgx", server.URL()+"?application_name="+name)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	store := func() *postgres.SQL {
		s, err := postgres.NewSQL(connect("pipeline"), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	admin := connect("admin")
	l := newLog("0", "1")
	b := newTransactions()
	begin := func() *running {
		var op counting
		o := options()
		o.Restarts = 1000
		return start(t, pipeline.Config[*sql.Tx]{Store: store(), Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
			Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: o})
	}
	first := begin()
	cut := 0
	for i := range 40 {
		l.fill(10)
		var n int
		err := admin.QueryRow("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'pipeline'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		cut += n
		if i == 20 {
			second := begin()
			if err := first.wait(t); !errors.Is(err, pipeline.ErrFenced) {
				t.Fatalf("the first one: %v", err)
			}
			first = second
		}
		before := len(b.seen())
		eventually(t, "more output", func() bool { return len(b.seen()) > before || before == (i+1)*20 })
	}
	eventually(t, "all output", func() bool { return len(b.seen()) >= 800 })
	if err := first.stop(t); err != nil {
		t.Fatal(err)
	}
	exact(t, l, b.seen())
	if cut < 20 {
		t.Errorf("%d connections were cut", cut)
	}
	all, err := pipeline.List(t.Context(), store())
	if err != nil || len(all) != 1 || all[0].Term != 2 || time.Since(all[0].Taken) > time.Minute {
		t.Errorf("%+v: %v", all, err)
	}
}
