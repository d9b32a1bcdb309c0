package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
)

// cutting is a connection that can be told to end at the next COMMIT: before it is
// sent, or before its answer is read.
type cutting struct {
	net.Conn
	plan *atomic.Int32 // 1: not sent, 2: no answer
}

func (c *cutting) Write(b []byte) (int, error) {
	if bytes.HasSuffix(b, []byte("COMMIT")) {
		switch c.plan.Swap(0) {
		case 1:
			_ = c.Conn.Close()
			return len(b), nil
		case 2:
			n, err := c.Conn.Write(b)
			if err == nil {
				_, err = c.Read(make([]byte, 100)) // it has taken place
			}
			_ = c.Conn.Close()
			return n, err
		}
	}
	return c.Conn.Write(b)
}

// TestCommitCut: when the answer to a commit is lost the message is applied once,
// whether the commit took place or not.
func TestCommitCut(t *testing.T) {
	server := start(t)
	var plan atomic.Int32
	driversql.RegisterDialContext("cutting", func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		return &cutting{c, &plan}, err
	})
	defer driversql.DeregisterDialContext("cutting")
	first := connect(t, server, "")
	plain := newDatabase(t, server, first)
	open(t, plain, mysql.Options{})
	var name string
	if err := plain.QueryRow("SELECT database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	config, err := driversql.ParseDSN(dsn(t, server, name))
	if err != nil {
		t.Fatal(err)
	}
	config.Net, config.Logger = "cutting", &driversql.NopLogger{}
	connector, err := driversql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	s, err := mysql.New(t.Context(), db, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{Attempts: 10})
	p := dedup.NewPosition[*sql.Tx](s, "c", dedup.Options{Attempts: 10})
	last := dedup.Start
	for i, cut := range []int32{1, 2, 1, 2} {
		id := fmt.Sprint("m", i)
		plan.Store(cut)
		once(t, in, dedup.Key{ID: id}, dedup.Applied)
		if n := in.Stats().Ambiguous; n != uint64(i+1) {
			t.Errorf("%d commits were ambiguous, want %d", n, i+1)
		}
		once(t, in, dedup.Key{ID: id}, dedup.Duplicate)
		plan.Store(cut)
		at := dedup.Partition{Topic: "orders", Name: "0"}
		next := []int64{last + 1, last + 2}
		last, err = dedup.AppliedFrom(t.Context(), p, at, last, next, func(o int64) int64 { return o }, func(ctx context.Context, tx *sql.Tx, o int64) error {
			return effect(ctx, tx, fmt.Sprint("r", o))
		})
		if err != nil || last != next[1] {
			t.Errorf("at %d, %v; want %d", last, err, next[1])
		}
	}
	got, err := ledger(t.Context(), plain)
	if err != nil || len(got) != 4+8 {
		t.Errorf("%v, %v", got, err)
	}
	for id, n := range got {
		if n != 1 {
			t.Errorf("%d effects of %s", n, id)
		}
	}
}

// TestRolledBack: a transaction that the server rolled back under the effect, which
// doesn't notice, isn't taken for committed.
func TestRolledBack(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	in := dedup.New[*sql.Tx](open(t, db, mysql.Options{}), "c", dedup.Options{})
	for _, id := range []string{"one", "two"} {
		runs := 0
		run := func(ctx context.Context, tx *sql.Tx, id string) error {
			err := effect(ctx, tx, id)
			if runs++; runs == 1 { // as after a deadlock
				_, rollback := tx.ExecContext(ctx, "ROLLBACK")
				err = errors.Join(err, rollback)
			}
			return err
		}
		var err error
		if id == "one" {
			_, err = in.Once(t.Context(), dedup.Key{ID: id}, func(ctx context.Context, tx *sql.Tx) error { return run(ctx, tx, id) })
		} else {
			_, err = dedup.OnceBatch(t.Context(), in, []string{id, "three"}, func(id string) dedup.Key { return dedup.Key{ID: id} }, run)
		}
		if err != nil || runs < 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
		once(t, in, dedup.Key{ID: id}, dedup.Duplicate)
	}
	got, err := ledger(t.Context(), db)
	if err != nil || got["one"] != 1 || got["two"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSwallowedDeadlock: an effect that goes on after the server has rolled its transaction
// back leaves nothing of what it did then, for it runs again; and who gets the connection
// next finds it as it was.
func TestSwallowedDeadlock(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	db.SetMaxOpenConns(1)
	in := dedup.New[*sql.Tx](open(t, db, mysql.Options{}), "c", dedup.Options{})
	broken := errors.New("broken")
	for _, id := range []string{"goes on", "fails", "panics"} {
		runs := 0
		outcome, err := in.Once(t.Context(), dedup.Key{ID: id}, func(ctx context.Context, tx *sql.Tx) error {
			if runs++; runs == 1 {
				if _, err := tx.ExecContext(ctx, "ROLLBACK"); err != nil { // as after a deadlock
					t.Error(err)
				}
			}
			if err := effect(ctx, tx, id); err != nil {
				return err
			}
			switch id {
			case "fails":
				return broken
			case "panics":
				panic(broken)
			}
			return nil
		})
		if want := id == "goes on"; outcome.OK() != want || !want && !errors.Is(err, broken) {
			t.Errorf("%s: %v: %v", id, outcome, err)
		}
		var auto int
		if err := db.QueryRow("SELECT @@autocommit").Scan(&auto); err != nil || auto != 1 {
			t.Errorf("%s: autocommit %d, %v", id, auto, err)
		}
	}
	got, err := ledger(t.Context(), db)
	if err != nil || len(got) != 1 || got["goes on"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSlowStatement: a message whose statement takes longer than one may is Failed, so that
// its attempts are counted and it is dead-lettered in the end; those beside it are applied.
func TestSlowStatement(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	in := dedup.New[*sql.Tx](open(t, db, mysql.Options{StatementTimeout: 100 * time.Millisecond}), "c", dedup.Options{})
	var runs int
	slow := func(ctx context.Context, tx *sql.Tx, id string) error {
		if err := effect(ctx, tx, id); err != nil || id != "slow" {
			return err
		}
		runs++
		_, err := tx.ExecContext(ctx, "INSERT INTO ledger (id) SELECT 'slow' FROM (SELECT sleep(20)) s")
		return err
	}
	began := time.Now()
	outcome, err := in.Once(t.Context(), dedup.Key{ID: "slow"}, func(ctx context.Context, tx *sql.Tx) error { return slow(ctx, tx, "slow") })
	if outcome != dedup.Failed || !strings.Contains(err.Error(), "max_statement_time") || runs != 1 {
		t.Errorf("%v after %d runs: %v", outcome, runs, err)
	}
	results, _ := dedup.OnceBatch(t.Context(), in, []string{"a", "slow", "b"}, func(id string) dedup.Key { return dedup.Key{ID: id} }, slow)
	for i, want := range []dedup.Outcome{dedup.Applied, dedup.Failed, dedup.Applied} {
		if results[i].Outcome != want {
			t.Errorf("message %d: %v: %v", i, results[i].Outcome, results[i].Err)
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	if got, err := ledger(t.Context(), db); err != nil || len(got) != 2 || got["a"] != 1 || got["b"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestFrozen: a consumer that stops in the middle loses its session, and with it its
// claims, when it is idle for too long.
func TestFrozen(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{IdleTimeout: time.Second})
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{Attempts: 1})
	frozen, thaw, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		outcome, err := in.Once(t.Context(), dedup.Key{ID: "a"}, func(ctx context.Context, tx *sql.Tx) error {
			err := effect(ctx, tx, "a")
			close(frozen)
			<-thaw
			return err
		})
		if outcome.OK() || outcome == dedup.Failed {
			t.Errorf("who was frozen: %v: %v", outcome, err)
		}
	}()
	<-frozen
	once(t, in, dedup.Key{ID: "a"}, dedup.InFlight)
	for deadline := time.Now().Add(30 * time.Second); ; {
		outcome, err := in.Once(t.Context(), dedup.Key{ID: "a"}, func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx, "a") })
		if outcome == dedup.Applied {
			break
		}
		if outcome != dedup.InFlight || time.Now().After(deadline) {
			t.Errorf("%v: %v", outcome, err)
			break
		}
	}
	close(thaw)
	<-done
	if got, err := ledger(t.Context(), db); err != nil || got["a"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestKilled: what was committed outlives the server's crash, and what wasn't is
// applied after it.
func TestKilled(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	in := dedup.New[*sql.Tx](open(t, db, mysql.Options{}), "c", dedup.Options{Attempts: 50})
	once(t, in, dedup.Key{ID: "before"}, dedup.Applied)
	killed := false
	outcome, err := in.Once(t.Context(), dedup.Key{ID: "while"}, func(ctx context.Context, tx *sql.Tx) error {
		if err := effect(ctx, tx, "while"); err != nil || killed {
			return err
		}
		killed = true
		return server.Kill(context.WithoutCancel(ctx))
	})
	if outcome != dedup.Applied {
		t.Errorf("%v: %v", outcome, err)
	}
	for _, id := range []string{"before", "while"} {
		once(t, in, dedup.Key{ID: id}, dedup.Duplicate)
	}
	if got, err := ledger(t.Context(), db); err != nil || got["before"] != 1 || got["while"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestIsolation: a transaction of the caller's at a higher level, which doesn't see
// what was committed meanwhile, is refused instead of applying a copy.
func TestIsolation(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	in := dedup.New[*sql.Tx](open(t, db, mysql.Options{}), "c", dedup.Options{})
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM ledger").Scan(&n); err != nil { // its view of all begins
		t.Fatal(err)
	}
	once(t, in, dedup.Key{ID: "a"}, dedup.Applied)
	if claims, err := in.ClaimTx(t.Context(), tx, dedup.Key{ID: "a"}); !errors.Is(err, dedup.ErrVerify) {
		t.Errorf("%v, %v", claims, err)
	}
}

// TestNames: names are compared byte by byte, and one that is too long is refused
// instead of cut.
func TestNames(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""), "sql_mode=''") // which cuts
	p := dedup.NewPosition[*sql.Tx](open(t, db, mysql.Options{}), "c", dedup.Options{})
	move := func(topic string, last int64) error {
		_, err := dedup.AppliedFrom(t.Context(), p, dedup.Partition{Topic: topic}, dedup.Start, []int64{last}, func(o int64) int64 { return o }, func(context.Context, *sql.Tx, int64) error { return nil })
		return err
	}
	for i, topic := range []string{"a", "A", "a ", "ä", "\x00", "a\x00", "\xff"} {
		if err := move(topic, int64(i)); err != nil {
			t.Errorf("%q: %v", topic, err)
		}
		if last, err := p.Load(t.Context(), dedup.Partition{Topic: topic}); last != int64(i) || err != nil {
			t.Errorf("%q: %d, %v", topic, last, err)
		}
	}
	if err := move(string(bytes.Repeat([]byte("x"), 256)), 1); !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
}
