package pipeline_test

import (
	"bytes"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/pipeline"
)

// TestLoss: what the broker dropped after its checkpoint was recorded is told to
// everybody, and then what the caller chose happens.
func TestLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		onLoss pipeline.OnLoss
		forget bool // the broker doesn't know the transaction any more
		action pipeline.OnLoss
		state  dedup.CheckpointState
	}{
		{"stop", pipeline.StopOnLoss, false, pipeline.StopOnLoss, dedup.CheckpointPrepared},
		{"rewind", pipeline.RewindOnLoss, false, pipeline.RewindOnLoss, dedup.CheckpointUndone},
		{"continue", pipeline.ContinueOnLoss, false, pipeline.ContinueOnLoss, dedup.CheckpointLost},
		{"gone", pipeline.RewindOnLoss, true, pipeline.StopOnLoss, dedup.CheckpointPrepared},
		{"gone, continue", pipeline.ContinueOnLoss, true, pipeline.ContinueOnLoss, dedup.CheckpointLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, file(t))
			l := newLog("0", "1")
			l.fill(40)
			b := newTransactions()
			var text bytes.Buffer
			metrics := map[string]float64{}
			var losses []pipeline.Loss
			var op counting
			o := options()
			o.Interval = time.Hour
			b.scope.Limit = 0
			o.Keep = 50
			o.OnLoss, o.Log = c.onLoss, slog.New(slog.NewTextHandler(&text, nil))
			o.Loss = func(l pipeline.Loss) { losses = append(losses, l) }
			o.Metric = func(name string, value float64) { metrics[name] = value }
			checkpoints := 0
			o.Checkpointed = func(pipeline.Info) {
				if checkpoints++; checkpoints == 1 { // the second one is dropped
					b.mu.Lock()
					b.abortNext, b.forget = true, c.forget
					b.mu.Unlock()
				}
			}
			config := pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
				Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: o}
			r := start(t, config)
			if c.action == pipeline.StopOnLoss {
				err := r.wait(t)
				var loss *pipeline.LossError
				if !errors.Is(err, pipeline.ErrDataLoss) || !errors.As(err, &loss) || loss.Loss.Checkpoint != 2 || !strings.Contains(err.Error(), "DATA LOSS") || !strings.Contains(err.Error(), "RewindOnLoss") {
					t.Errorf("Run returned %v", err)
				}
				if len(b.seen()) != 40 {
					t.Errorf("%d messages are there", len(b.seen()))
				}
			} else {
				if c.action == pipeline.RewindOnLoss {
					r.processed(t, 80)
				}
				eventually(t, "the loss is written down", func() bool { return number(t, s, 2).State == c.state })
				if err := r.stop(t); err != nil {
					t.Error(err)
				}
			}
			if len(losses) != 1 {
				t.Fatalf("%d losses are told", len(losses))
			}
			got := losses[0]
			fate := pipeline.FateAborted
			if c.forget {
				fate = pipeline.FateGone
			}
			if got.Pipeline != "test" || got.Fate != fate || got.Cause == nil || got.Messages != 40 || got.Input != 40 || got.Action != c.action || got.Age() <= 0 || got.Recorded.IsZero() {
				t.Errorf("loss %+v", got)
			}
			told := got.String()
			if !strings.Contains(told, "in/1 from ") || !strings.Contains(text.String(), "level=ERROR") || !strings.Contains(text.String(), "DATA LOSS") {
				t.Errorf("told: %s\nlogged: %s", told, text.String())
			}
			if metrics[pipeline.MetricLosses] != 1 || metrics[pipeline.MetricLostMessages] != 40 || metrics[pipeline.MetricAbortRate] <= 0 || metrics[pipeline.MetricAbortRate] >= 1 {
				t.Errorf("metrics %v", metrics)
			}
			if got := r.Stats(); got.Aborted != 1 || metrics[pipeline.MetricAbortRate] != 1/float64(1+got.Checkpoints) {
				t.Errorf("%+v, and a rate of %v", got, metrics[pipeline.MetricAbortRate])
			}
			second := number(t, s, 2)
			if second.State != c.state || c.state != dedup.CheckpointPrepared && !strings.Contains(second.Note, "messages of output") {
				t.Errorf("the row is %v: %q", second.State, second.Note)
			}
			switch c.name {
			case "rewind":
				exact(t, l, b.seen())
			case "continue": // the state has counted what the output hasn't
				if len(b.seen()) != 40 || op.Value["1-k0"] != 14 {
					t.Errorf("%d messages of output, state %v", len(b.seen()), op.Value)
				}
			case "stop": // and whoever runs it anew chooses
				config.Options.OnLoss = pipeline.RewindOnLoss
				again := start(t, config)
				again.processed(t, 40)
				if err := again.stop(t); err != nil {
					t.Error(err)
				}
				exact(t, l, b.seen())
			}
			if b.open() != 0 {
				t.Errorf("%d transactions are open", b.open())
			}
		})
	}
}

// number returns the row of a checkpoint.
func number(t *testing.T, s *sqlite.Store, n int64) (row dedup.CheckpointRow) {
	t.Helper()
	for _, r := range rows(t, s) {
		if r.Number == n {
			row = r
		}
	}
	return row
}

// TestRewoundOften: after many losses in a row, more than Keep, the state is that of
// the last checkpoint that stands.
func TestRewoundOften(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(40)
	b := newTransactions()
	o := options()
	o.Interval, o.OnLoss, o.Keep, o.Restarts = time.Hour, pipeline.RewindOnLoss, 2, 20
	b.scope.Limit = 0
	n := 0
	b.committing = func(int) {
		if n++; n >= 2 && n < 20 { // commits and recoveries in turn
			b.abortNext = true
		}
	}
	var op counting
	r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
		Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: o})
	r.processed(t, 40)
	l.fill(40)
	r.processed(t, 80)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	exact(t, l, b.seen())
	if got := r.Stats(); got.Losses < 9 || got.Restarts != got.Losses {
		t.Errorf("%+v", got)
	}
}

// TestAbortedBeforeTheRecord: a transaction that the broker aborts before a checkpoint
// counts on it costs another attempt, and is no loss.
func TestAbortedBeforeTheRecord(t *testing.T) {
	t.Parallel()
	s := openStore(t, file(t))
	l := newLog("0")
	l.fill(100)
	b := newTransactions()
	var op counting
	o := options()
	var rates []float64
	o.Metric = func(name string, value float64) {
		if name == pipeline.MetricAbortRate {
			rates = append(rates, value)
		}
	}
	p, err := pipeline.New(pipeline.Config[*sql.Tx]{Name: "test", Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
		Sink: pipeline.Transactional[*sql.Tx](b, "test", pipeline.TransactionalOptions{}), Options: o})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	pipeline.AtStep(p, func(at string) {
		if at != "prepare" {
			return
		}
		if n++; n != 2 {
			return
		}
		b.mu.Lock()
		b.all[len(b.all)-1].state = "aborted"
		b.mu.Unlock()
	})
	r := run(t, p)
	r.processed(t, 100)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	exact(t, l, b.seen())
	got := r.Stats()
	if got.Losses != 0 || got.Aborted != 1 || got.Restarts != 1 || !slices.ContainsFunc(rates, func(v float64) bool { return v > 0 && v < 1 }) {
		t.Errorf("%+v, rates %v", got, rates)
	}
	// One checkpoint was complete before, so that one of two was aborted then.
	if got.Checkpoints < 2 || rates[0] != 0 || rates[1] != 0.5 || rates[len(rates)-1] != 1/float64(1+got.Checkpoints) {
		t.Errorf("%+v, rates %v", got, rates)
	}
}

// TestBudget: a pipeline for which interval, time for a checkpoint and restart budget
// don't fit into what the broker allows doesn't begin.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := newTransactions()
	for _, c := range []struct {
		name  string
		o     pipeline.Options
		sink  pipeline.TransactionalOptions
		scope broker.Scope
		err   error
		asked time.Duration
	}{
		{name: "fits", o: pipeline.Options{Interval: time.Minute, CheckpointTimeout: time.Minute, RestartBudget: 5 * time.Minute}, asked: 7 * time.Minute},
		{name: "rounded up", o: pipeline.Options{Interval: time.Millisecond, CheckpointTimeout: time.Minute, RestartBudget: time.Minute}, asked: 2*time.Minute + time.Second},
		{name: "own timeout", o: pipeline.Options{}, sink: pipeline.TransactionalOptions{Timeout: 10 * time.Minute}, asked: 10 * time.Minute},
		{name: "own timeout too short", o: pipeline.Options{}, sink: pipeline.TransactionalOptions{Timeout: 6 * time.Minute}, err: pipeline.ErrBudget},
		{name: "interval too long", o: pipeline.Options{Interval: 10 * time.Minute}, err: broker.ErrUnsupported},
		{name: "budget too long", o: pipeline.Options{RestartBudget: time.Hour}, err: broker.ErrUnsupported},
		{name: "broker's timeout shorter", o: pipeline.Options{}, scope: broker.Scope{Timeout: time.Minute}, err: pipeline.ErrBudget},
		{name: "no prepare", o: pipeline.Options{}, scope: broker.Scope{Note: "because"}, err: broker.ErrUnsupported},
	} {
		b.asked = 0
		b.scope = broker.Scope{Publishes: true, Prepares: true, Atomic: true, Isolated: true, Fences: true, Limit: 15 * time.Minute, Timeout: c.scope.Timeout}
		if c.scope.Note != "" {
			b.scope = c.scope
		}
		s := openStore(t, file(t))
		l := newLog("0")
		l.fill(1)
		var op counting
		c.o.ErrorHook, c.o.Log, c.o.MaxInput = func(error) {}, slog.New(slog.DiscardHandler), 1
		r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{l.source("in")}, Operator: op.operator(),
			Sink: pipeline.Transactional[*sql.Tx](b, "test", c.sink), Options: c.o})
		if c.err != nil {
			if err := r.wait(t); !errors.Is(err, c.err) {
				t.Errorf("%s: %v", c.name, err)
			} else if !strings.Contains(err.Error(), "restart budget") && c.scope.Note == "" || !strings.Contains(err.Error(), c.scope.Note) {
				t.Errorf("%s: nobody learns from %q what to change", c.name, err)
			}
			if l.opens != 0 {
				t.Errorf("%s: input was read", c.name)
			}
			continue
		}
		r.processed(t, 1)
		if err := r.stop(t); err != nil || b.asked != c.asked {
			t.Errorf("%s: asked for %v: %v", c.name, b.asked, err)
		}
	}
}
