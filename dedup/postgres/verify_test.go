package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// TestVerify: what would let an effect happen twice or be lost is refused, with what
// to change.
func TestVerify(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	const marker, timed = "%[1]s.onceline_marker", "%[1]s.onceline_marker_timed"
	for _, c := range []struct {
		name, sql string
		says      []string
	}{
		{"nothing there", "DROP TABLE " + marker + "; DROP TABLE " + timed + "; DROP TABLE %[1]s.onceline_position", []string{"onceline_marker is missing", "onceline_marker_timed is missing", "onceline_position is missing", "Migrate"}},
		{"no key", "ALTER TABLE " + marker + " DROP CONSTRAINT onceline_marker_pkey", []string{"primary key of", "keeps copies out"}},
		{"deferrable key", "ALTER TABLE " + marker + " DROP CONSTRAINT onceline_marker_pkey, ADD PRIMARY KEY (key) DEFERRABLE", []string{"deferrable"}},
		{"day of arrival in the key", `DROP TABLE ` + timed + `; CREATE TABLE ` + timed + ` (key uuid, day date DEFAULT current_date, PRIMARY KEY (key, day)) PARTITION BY RANGE (day)`,
			[]string{"(key,day)", "across midnight", "RANGE (day)", "no partition for"}},
		{"not partitioned", "DROP TABLE " + timed + "; CREATE TABLE " + timed + " (key uuid PRIMARY KEY)", []string{`kind "r", not "p"`}},
		{"default partition", "CREATE TABLE %[1]s.rest PARTITION OF " + timed + " DEFAULT", []string{"partition rest", "never dropped"}},
		{"no partition of today", `DO $$ DECLARE n text; BEGIN FOR n IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '` + timed + `'::regclass LOOP EXECUTE 'DROP TABLE ' || n; END LOOP; END $$`,
			[]string{"no partition for", "Maintain"}},
		{"unlogged", "ALTER TABLE " + marker + " SET UNLOGGED", []string{"unlogged", "SET LOGGED"}},
		{"position without epoch", "ALTER TABLE %[1]s.onceline_position DROP CONSTRAINT onceline_position_pkey, ADD PRIMARY KEY (consumer, topic, partition)", []string{"onceline_position", "(consumer,topic,partition)"}},
		{"asynchronous commit", "ALTER ROLE onceline SET synchronous_commit = off", []string{"synchronous_commit is off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, schema := open(t, p, postgres.Options{})
			name := fmt.Sprintf("%q", schema)
			for _, q := range strings.Split(fmt.Sprintf(c.sql+"%.0[1]s", name), "; ") {
				if !strings.Contains(c.sql, "$$") {
					p.exec(t, q)
				}
			}
			if strings.Contains(c.sql, "$$") {
				p.exec(t, fmt.Sprintf(c.sql, name))
			}
			if strings.HasPrefix(c.sql, "ALTER ROLE") {
				defer p.exec(t, "ALTER ROLE onceline RESET synchronous_commit")
				p.reopen(t) // a session keeps what it began with
			}
			err := s.Verify(t.Context())
			if !errors.Is(err, dedup.ErrVerify) {
				t.Fatalf("verify: %v", err)
			}
			for _, say := range c.says {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("doesn't say %q: %v", say, err)
				}
			}
		})
	}
	p.reopen(t)
}

// reopen closes all connections.
func (p *pool) reopen(t testing.TB) {
	for range cap(p.free) {
		if c := <-p.free; c != nil {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		defer func() { p.free <- nil }()
	}
}

// TestIsolation: a claim in somebody's own transaction refuses a level at which a
// copy would be an error.
func TestIsolation(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 1)
	s, _ := open(t, p, postgres.Options{})
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	for level, want := range map[pgx.TxIsoLevel]error{pgx.ReadCommitted: nil, pgx.RepeatableRead: dedup.ErrVerify, pgx.Serializable: dedup.ErrVerify} {
		tx, err := p.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.ClaimTx(t.Context(), tx, byID("a")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", level, err, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// Inboxes begin their own, whatever the database's default is.
	p.exec(t, "SET default_transaction_isolation = serializable")
	outcome, err := in.Once(t.Context(), byID("a"), func(context.Context, pgx.Tx) error { return nil })
	if outcome != dedup.Applied || err != nil {
		t.Errorf("%v: %v", outcome, err)
	}
}

// TestTimeouts: a consumer that is frozen in its effect loses its session, and with
// it its claim.
func TestTimeouts(t *testing.T) {
	p := connect(t, start(t), 2)
	_, schema := open(t, p, postgres.Options{}) // tables are made without these limits
	s, err := postgres.New(p, postgres.Options{Schema: schema, IdleTimeout: 50e6, StatementTimeout: 100e6})
	if err != nil {
		t.Fatal(err)
	}
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{Attempts: 1})
	frozen, thawed, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		outcome, err := in.Once(t.Context(), byID("a"), func(ctx context.Context, tx pgx.Tx) error {
			close(frozen)
			<-thawed
			_, err := tx.Exec(ctx, insert(schema), "a")
			return err
		})
		if outcome != dedup.Unknown || !errors.Is(err, dedup.ErrLost) {
			t.Errorf("frozen: %v: %v", outcome, err)
		}
	}()
	<-frozen
	for {
		outcome, err := in.Once(t.Context(), byID("a"), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert(schema), "a")
			return err
		})
		if outcome == dedup.InFlight {
			continue
		}
		if outcome != dedup.Applied {
			t.Errorf("the next: %v: %v", outcome, err)
		}
		break
	}
	close(thawed)
	<-done
	check(t, p, schema, []string{"a"}, func(int) bool { return true })
	outcome, err := in.Once(t.Context(), byID("slow"), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	})
	if outcome != dedup.Failed || err == nil {
		t.Errorf("a statement that takes too long: %v: %v", outcome, err)
	}
}

func TestOptions(t *testing.T) {
	p := &pool{}
	for _, o := range []postgres.Options{
		{Window: -1}, {Ahead: -1}, {Schema: "a\x00"}, {CommitTimeout: -1},
		{Window: 24 * 3600e9, Horizon: dedup.Horizon{ProducerRetry: 3600e9, Replay: 24 * 3600e9}},
	} {
		if _, err := postgres.New(p, o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := postgres.NewSQL(nil, o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("no database: %v", err)
		}
	}
	if _, err := postgres.New(nil, postgres.Options{}); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("no database: %v", err)
	}
}
