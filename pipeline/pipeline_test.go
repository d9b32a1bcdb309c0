package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/pipeline"
)

// ledger is a table that takes the output of a Database sink, duplicates too.
func ledger(t *testing.T, s *sqlite.Store) (apply func(ctx context.Context, tx *sql.Tx, msgs []pipeline.Output) error, read func() []broker.Message) {
	t.Helper()
	if _, err := s.DB().Exec("CREATE TABLE IF NOT EXISTS ledger (n INTEGER PRIMARY KEY, id TEXT, key TEXT, body BLOB)"); err != nil {
		t.Fatal(err)
	}
	apply = func(ctx context.Context, tx *sql.Tx, msgs []pipeline.Output) error {
		for _, m := range msgs {
			if _, err := tx.ExecContext(ctx, "INSERT INTO ledger (id, key, body) VALUES (?, ?, ?)", m.ID, m.Key, m.Body); err != nil {
				return err
			}
		}
		return nil
	}
	return apply, func() (all []broker.Message) {
		rows, err := s.DB().Query("SELECT id, key, body FROM ledger ORDER BY n")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var m broker.Message
			if err := rows.Scan(&m.ID, &m.Key, &m.Body); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		return all
	}
}

// unreliable is a store whose transactions fail in turn: lost before, its answer
// lost after the commit, its commit lost.
type unreliable struct {
	*sqlite.Store
	n int
}

func (u *unreliable) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	u.n++
	switch u.n % 7 {
	case 2:
		return fmt.Errorf("%w: %w", dedup.ErrLost, errBroken)
	case 4:
		if err := u.Store.Transact(ctx, f); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", dedup.ErrCommitUnknown, errBroken)
	case 6:
		if err := u.Store.Transact(ctx, func(tx *sql.Tx) error { return errors.Join(f(tx), errBroken) }); !errors.Is(err, errBroken) {
			return err
		}
		return fmt.Errorf("%w: %w", dedup.ErrCommitUnknown, errBroken)
	}
	return u.Store.Transact(ctx, f)
}

// TestOnce: whatever goes wrong, state and output count each message once
// (twmb/franz-go#1222).
func TestOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"database", "transactional"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, file(t))
			apply, read := ledger(t, s)
			b := newTransactions()
			b.loseAnswers, b.loseCommits = 2, 2
			b.refuse["test.0"], b.refuse["test.1"] = 1, 1
			sink := pipeline.Database(apply)
			if kind == "transactional" {
				sink, read = pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), b.seen
			}
			l := newLog("0", "1")
			l.fill(300)
			l.breakAt = 190
			l.openErr = errBroken
			failed, panicked := once("0-0100"), once("1-0250")
			op := counting{before: func(in *pipeline.Input) error {
				if failed(in.ID) {
					return errBroken
				}
				if panicked(in.ID) {
					panic("broken")
				}
				return nil
			}}
			o := options()
			o.Restarts = 30
			var infos []pipeline.Info
			o.Checkpointed = func(i pipeline.Info) { infos = append(infos, i) }
			r := start(t, pipeline.Config[*sql.Tx]{Store: &unreliable{Store: s}, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(), Sink: sink, Options: o})
			r.processed(t, 600)
			if err := r.stop(t); err != nil {
				t.Fatal(err)
			}
			exact(t, l, read())
			if b.open() != 0 {
				t.Errorf("%d transactions are open", b.open())
			}
			stats := r.Stats()
			if stats.Restarts < 4 || stats.Input != 600 || stats.Output != 600 || stats.Losses != 0 || kind == "transactional" && (stats.Recovered == 0 || stats.Aborted == 0) {
				t.Errorf("%+v", stats)
			}
			for i, info := range infos {
				if info.Input > 40 || info.Bytes == 0 || i > 0 && info.Number <= infos[i-1].Number {
					t.Errorf("checkpoint %+v", info)
				}
			}
			if got := rows(t, s); len(got) != 3 || got[0].State != dedup.CheckpointCommitted {
				t.Errorf("%d rows are kept, the last is %v", len(got), got[0].State)
			}
			if l.acked["0"] != 300 || l.acked["1"] != 300 {
				t.Errorf("acked: %v", l.acked)
			}
		})
	}
}

// TestGoesOn: a later process, with a receiver that begins anywhere, goes on where
// the last checkpoint is, also in the middle of nothing.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	path := file(t)
	l := newLog("0", "1", "2")
	b := newTransactions()
	total := 0
	for round := range 4 {
		l.fill(10 * round)
		total += 30 * round
		s := openStore(t, path)
		l.acked = map[string]uint64{} // the group forgot
		var op counting
		r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
			Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: options()})
		r.processed(t, 30*round)
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		if got := r.Stats(); got.Input != uint64(30*round) || got.Recovered != 0 {
			t.Errorf("round %d: %+v", round, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	exact(t, l, b.seen())
}

// TestStop: a stop takes a last checkpoint, of what Flush emits too.
func TestStop(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(25)
	b := newTransactions()
	o := options()
	o.Interval, o.MaxInput = time.Hour, 0
	o.RestartBudget = time.Nanosecond
	b.scope.Limit = 0
	seen := make(chan struct{}, 100)
	n := 0
	r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Options: o,
		Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}),
		Operator: pipeline.Operator{
			Process: func(_ context.Context, in *pipeline.Input, _ *pipeline.Out) error {
				n++
				seen <- struct{}{}
				return nil
			},
			Flush: func(_ context.Context, out *pipeline.Out) error {
				out.Emit("sums", broker.Message{Body: fmt.Append(nil, n)})
				return nil
			},
		}})
	for range 25 {
		<-seen
	}
	if len(b.seen()) != 0 {
		t.Error("output before the checkpoint")
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	got := b.seen()
	if len(got) != 1 || string(got[0].Body) != "25" || got[0].ID != "test:flush:1:1:v1" || b.topics[0] != "sums" {
		t.Errorf("%+v to %v", got, b.topics)
	}
	if rs := rows(t, s); len(rs) != 1 || rs[0].State != dedup.CheckpointCommitted {
		t.Errorf("rows %+v", rs)
	}
}

// TestReassigned: a partition that is taken away and comes back between two
// checkpoints goes on where it was, and what comes again is left out.
func TestReassigned(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0", "1")
	l.fill(20)
	b := newTransactions()
	o := options()
	o.Interval, o.MaxInput = time.Hour, 80
	b.scope.Limit = 0
	again := once("1-0010")
	op := counting{before: func(in *pipeline.Input) error {
		if again(in.ID) {
			l.reassign("1")
		}
		return nil
	}}
	r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
		Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: o})
	eventually(t, "the reassignment", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.reassigned == 1 })
	l.fill(20)
	r.processed(t, 80)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	exact(t, l, b.seen())
	if got := r.Stats(); got.Dropped == 0 || l.opens != 1 {
		t.Errorf("%+v, opened %d times: nothing came again", got, l.opens)
	}
}

// TestTakenOver: of two processes the last one that began runs the pipeline; the
// other ends, also if it has nothing to do, and nothing of it counts twice.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	path := file(t)
	l := newLog("0", "1")
	b := newTransactions()
	config := func() pipeline.Config[*sql.Tx] {
		var op counting
		return pipeline.Config[*sql.Tx]{Store: openStore(t, path), Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
			Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: options()}
	}
	first := start(t, config())
	l.fill(30)
	first.processed(t, 60)
	second := start(t, config())
	if err := first.wait(t); !errors.Is(err, pipeline.ErrFenced) || !errors.Is(err, broker.ErrConflict) {
		t.Fatalf("the first one: %v", err)
	}
	l.fill(30)
	second.processed(t, 60)
	third := start(t, config())
	for range 10 { // input all the while
		l.fill(20)
	}
	if err := second.wait(t); !errors.Is(err, pipeline.ErrFenced) {
		t.Fatalf("the second one: %v", err)
	}
	eventually(t, "all output", func() bool { return len(b.seen()) >= 520 })
	if err := third.stop(t); err != nil {
		t.Fatal(err)
	}
	exact(t, l, b.seen())
}

// TestRunTwice: one Run at a time.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(1)
	apply, _ := ledger(t, s)
	var op counting
	r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(), Sink: pipeline.Database(apply), Options: options()})
	r.processed(t, 1)
	if err := r.Run(t.Context()); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("a second Run: %v", err)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
}
