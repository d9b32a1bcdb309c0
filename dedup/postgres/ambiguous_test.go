package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// slowCommits makes each commit that wrote to the ledger take half a second, in a
// trigger that is deferred to it.
func slowCommits(t *testing.T, p *pool, schema string) {
	p.exec(t,
		fmt.Sprintf("CREATE FUNCTION %q.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'", schema),
		fmt.Sprintf("CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON %q.ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION %q.slow()", schema, schema))
}

// inCommit waits until a backend is in a commit that slowCommits made slow.
func inCommit(t *testing.T, p *pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		var n int
		err := p.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND lower(query) = 'commit'").Scan(&n)
		if err != nil {
			t.Error(err)
			return
		}
		if n > 0 {
			return
		}
	}
}

// TestCommitCut: the connection is cut during the commit, which takes place all the
// same. The call asks again, and tells that the effect stands.
func TestCommitCut(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 4)
	s, schema := open(t, p, postgres.Options{})
	slowCommits(t, p, schema)
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{Attempts: 10})
	query := insert(schema)
	cut := func() {
		inCommit(t, p)
		if n := db.Disconnect(); n < 1 {
			t.Errorf("%d connections were cut", n)
		}
	}
	for name, apply := range map[string]func(id string) (dedup.Outcome, error){
		"once": func(id string) (dedup.Outcome, error) {
			return in.Once(t.Context(), byID(id), func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, query, id)
				return err
			})
		},
		"pipelined": func(id string) (dedup.Outcome, error) {
			results, err := postgres.OncePipelined(t.Context(), in, []string{id}, byID, func(b *pgx.Batch, id string) { b.Queue(query, id) })
			return results[0].Outcome, err
		},
	} {
		before := in.Stats()
		done := make(chan struct{})
		go func() { defer close(done); cut() }()
		outcome, err := apply(name)
		<-done
		// A batch doesn't wait until the server has ended the transaction that was
		// cut off: what is in flight comes again.
		for outcome == dedup.InFlight && name == "pipelined" {
			outcome, err = apply(name)
		}
		if !outcome.OK() || err != nil || name == "once" && outcome != dedup.Applied {
			t.Errorf("%s: %v: %v", name, outcome, err)
		}
		if after := in.Stats(); after.Ambiguous != before.Ambiguous+1 || after.Failed != 0 || after.Unknown != 0 {
			t.Errorf("%s: stats %+v, before %+v", name, after, before)
		}
		if outcome, err := apply(name); outcome != dedup.Duplicate || err != nil {
			t.Errorf("%s again: %v: %v", name, outcome, err)
		}
	}
	check(t, p, schema, []string{"once", "pipelined"}, func(int) bool { return true })

	pos := dedup.NewPosition[pgx.Tx](s, "c", dedup.Options{Attempts: 10})
	at := dedup.Partition{Topic: "orders", Name: "0"}
	done := make(chan struct{})
	go func() { defer close(done); cut() }()
	last, err := dedup.AppliedFrom(t.Context(), pos, at, dedup.Start, []int64{0}, func(o int64) int64 { return o }, func(ctx context.Context, tx pgx.Tx, _ int64) error {
		_, err := tx.Exec(ctx, query, "position")
		return err
	})
	<-done
	if last != 0 || err != nil {
		t.Errorf("position %d, %v", last, err)
	}
	check(t, p, schema, []string{"position"}, func(int) bool { return true })
}

// TestServerKilled: the server is killed while effects are applied, and each is
// applied once when its messages come again.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 5)
	s, schema := open(t, p, postgres.Options{})
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	ids := series("m", 400)
	killed := make(chan error, 1)
	go func() { killed <- db.Kill(context.WithoutCancel(t.Context())) }()
	todo, rounds := ids, 0
	deadline := time.Now().Add(60 * time.Second)
	for ended := false; len(todo) > 0 || !ended; rounds++ {
		select {
		case err := <-killed:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are left after %d rounds", len(todo), rounds)
		}
		if len(todo) == 0 {
			continue
		}
		n := min(20, len(todo))
		results, _ := postgres.OncePipelined(t.Context(), in, todo[:n], byID, func(b *pgx.Batch, id string) { b.Queue(insert(schema), id) })
		var open []string
		for i, r := range results {
			switch {
			case r.Outcome.OK():
			case r.Outcome == dedup.Failed:
				t.Fatalf("%s failed: %v", todo[i], r.Err)
			default:
				open = append(open, todo[i])
			}
		}
		todo = append(open, todo[n:]...)
	}
	check(t, p, schema, ids, func(int) bool { return true })
	t.Logf("%d rounds, %+v", rounds, in.Stats())
}
