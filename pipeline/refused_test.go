package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/pipeline"
)

// TestResolve: what a pipeline that nobody runs any more had prepared is committed,
// and what it left open is aborted.
func TestResolve(t *testing.T) {
	t.Parallel()
	g := model(t, 2, 1)
	path := file(t)
	s := openStore(t, path)
	g.publish(t, 120)
	if !spawn(t, g.env(path, "transactional", 120, "recorded", 2)) {
		t.Fatal("the child wasn't killed")
	}
	list := func() pipeline.Status {
		t.Helper()
		all, err := pipeline.List(t.Context(), s)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v: %v", all, err)
		}
		return all[0]
	}
	got := list()
	if got.Name != "crash" || got.Term != 1 || got.Checkpoint != 3 || got.State != dedup.CheckpointPrepared || got.StateBytes == 0 || len(got.Places) != 1 || got.Places[0].Offset == 0 || got.Err != nil {
		t.Fatalf("after the crash: %+v", got)
	}
	want := int(got.Places[0].Offset)
	p, err := pipeline.New(g.config(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := received(t, g.conn, "out/check", want); len(got) != want {
		t.Errorf("%d messages, want %d", len(got), want)
	}
	if got := list(); got.Term != 2 || got.State != dedup.CheckpointCommitted {
		t.Errorf("after Resolve: %+v", got)
	}
}

// TestRefused: what can't be is said before anything is done.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(3)
	good := func() pipeline.Config[*sql.Tx] {
		var op counting
		apply, _ := ledger(t, s)
		return pipeline.Config[*sql.Tx]{Name: "test", Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(), Sink: pipeline.Database(apply), Options: options()}
	}
	for name, change := range map[string]func(c *pipeline.Config[*sql.Tx]){
		"no name":         func(c *pipeline.Config[*sql.Tx]) { c.Name = "" },
		"NUL":             func(c *pipeline.Config[*sql.Tx]) { c.Name = "a\x00b" },
		"no text":         func(c *pipeline.Config[*sql.Tx]) { c.Name = "a\xff" },
		"long name":       func(c *pipeline.Config[*sql.Tx]) { c.Name = strings.Repeat("a", 600) },
		"no store":        func(c *pipeline.Config[*sql.Tx]) { c.Store = nil },
		"no source":       func(c *pipeline.Config[*sql.Tx]) { c.Sources = nil },
		"same source":     func(c *pipeline.Config[*sql.Tx]) { c.Sources = append(c.Sources, c.Sources[0]) },
		"no name, source": func(c *pipeline.Config[*sql.Tx]) { c.Sources[0].Name = "" },
		"no process":      func(c *pipeline.Config[*sql.Tx]) { c.Operator.Process = nil },
		"no sink":         func(c *pipeline.Config[*sql.Tx]) { c.Sink = nil },
		"interval":        func(c *pipeline.Config[*sql.Tx]) { c.Options.Interval = -1 },
		"on loss":         func(c *pipeline.Config[*sql.Tx]) { c.Options.OnLoss = 9 },
	} {
		c := good()
		change(&c)
		if _, err := pipeline.New(c); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		change func(c *pipeline.Config[*sql.Tx])
		want   string
	}{
		"too large a state": {func(c *pipeline.Config[*sql.Tx]) { c.Options.MaxState = 3 }, "MaxState"},
		"no topic": {func(c *pipeline.Config[*sql.Tx]) {
			c.Sink = pipeline.Outbox(s, dedup.OutboxOptions{})
			c.Operator.Process = func(_ context.Context, _ *pipeline.Input, out *pipeline.Out) error {
				out.Emit("", broker.Message{})
				return nil
			}
		}, "no topic"},
		"an operator that always fails": {func(c *pipeline.Config[*sql.Tx]) {
			c.Options.Restarts = 2
			c.Operator.Process = func(context.Context, *pipeline.Input, *pipeline.Out) error { return errBroken }
		}, "failed 3 times in a row"},
		"a source that can't start anywhere": {func(c *pipeline.Config[*sql.Tx]) {
			c.Sources[0].Open = func(context.Context, ...broker.ReceiverOption) (broker.Receiver, error) {
				return nil, broker.Errorf(broker.ErrUnsupported, nil, "StartFrom")
			}
		}, "StartFrom"},
	} {
		config := good()
		c.change(&config)
		if err := start(t, config).wait(t); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCorrupt: a record that can't be read ends the pipeline, and so does a state that
// the program doesn't know, or a checkpoint of another sink that isn't committed.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(3)
	b := newTransactions()
	config := func(version uint32) (pipeline.Config[*sql.Tx], *counting) {
		op := &counting{}
		op.Version = version
		return pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
			Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: options()}, op
	}
	c, _ := config(1)
	r := start(t, c)
	r.processed(t, 3)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	c, _ = config(2)
	if err := start(t, c).wait(t); err == nil || !strings.Contains(err.Error(), "version 1, this is 2") {
		t.Errorf("another version: %v", err)
	}
	c, op := config(2)
	op.Upgrade = func(s pipeline.Snapshot) (map[string]int, error) {
		return map[string]int{"upgraded": int(s.Version)}, nil
	}
	r = start(t, c)
	l.fill(1)
	r.processed(t, 1)
	if err := r.stop(t); err != nil || op.Value["upgraded"] != 1 {
		t.Errorf("%v: %v", op.Value, err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := s.DB().Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("UPDATE onceline_checkpoint SET state = 1")
	c, _ = config(2)
	apply, _ := ledger(t, s)
	c.Sink = pipeline.Database(apply)
	if err := start(t, c).wait(t); !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), "transactional") {
		t.Errorf("another sink: %v", err)
	}
	exec("UPDATE onceline_checkpoint SET data = substr(data, 1, 40)")
	c, _ = config(2)
	if err := start(t, c).wait(t); !errors.Is(err, pipeline.ErrCorrupt) {
		t.Errorf("cut: %v", err)
	}
	if all, err := pipeline.List(t.Context(), s); err != nil || len(all) != 1 || !errors.Is(all[0].Err, pipeline.ErrCorrupt) {
		t.Errorf("%+v: %v", all, err)
	}
}

// TestTopicMadeAnew: messages whose offsets were used before aren't left out in
// silence as repeats. Under another Epoch they are taken.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	apply, read := ledger(t, s)
	config := func(l *log, epoch string) pipeline.Config[*sql.Tx] {
		var op counting
		source := l.source("in")
		source.Epoch = epoch
		return pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{source}, Operator: op.operator(), Sink: pipeline.Database(apply), Options: options()}
	}
	first := newLog("0")
	first.fill(50)
	r := start(t, config(first, ""))
	r.processed(t, 50)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	anew := newLog("0")
	anew.fill(20)
	anew.ignore = true // as after an offset out of range
	if err := start(t, config(anew, "")).wait(t); !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, broker.ErrConflict) {
		t.Fatalf("Run returned %v", err)
	}
	r = start(t, config(anew, "2"))
	r.processed(t, 20)
	if err := r.stop(t); err != nil || len(read()) != 70 {
		t.Errorf("%d messages: %v", len(read()), err)
	}
}

// TestUnresolved: while the broker can't be asked what became of a checkpoint nothing
// is processed and nothing is lost.
func TestUnresolved(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(40)
	b := newTransactions()
	b.loseCommits = 1 << 20
	var op counting
	o := options()
	o.Restarts = -1
	c := pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
		Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: o}
	if err := start(t, c).wait(t); !errors.Is(err, pipeline.ErrUnresolved) || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatalf("Run returned %v", err)
	}
	if len(b.all) != 1 || b.all[0].state != "open" || rows(t, s)[0].State != dedup.CheckpointPrepared {
		t.Errorf("%d transactions, %+v", len(b.all), b.all[0])
	}
	r := start(t, c)
	eventually(t, "the broker is asked a few times", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.recoveries > 3 })
	if err := r.stop(t); !errors.Is(err, pipeline.ErrUnresolved) {
		t.Errorf("stopped while it asks: %v", err)
	}
	b.loseCommits = 0
	r = start(t, c)
	r.processed(t, 40)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	exact(t, l, b.seen())
}
