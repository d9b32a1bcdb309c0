package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/pipeline"
)

// patience bounds what a test waits for.
const patience = 20 * time.Second

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func openStore(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{BusyTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// counting is the state of the tests' operator: how many messages of each key came.
type counting struct {
	pipeline.JSON[map[string]int]
	before func(in *pipeline.Input) error // called for each message
	topic  string
}

// operator emits, for each message, one with the number of its key so far, and what
// it was.
func (c *counting) operator() pipeline.Operator {
	c.Empty = func() map[string]int { return map[string]int{} }
	if c.topic == "" {
		c.topic = "out"
	}
	return pipeline.Operator{State: &c.JSON, Process: func(_ context.Context, in *pipeline.Input, out *pipeline.Out) error {
		c.Value[in.Key]++
		if c.before != nil {
			if err := c.before(in); err != nil {
				return err
			}
		}
		out.Emit(c.topic, broker.Message{Key: in.Key, Body: fmt.Appendf(nil, "%d %s", c.Value[in.Key], in.Body)})
		return nil
	}}
}

// exact checks that the output is what the logs' messages make: each once, in order
// of its key, with the number that it has there.
func exact(t *testing.T, l *log, got []broker.Message) {
	t.Helper()
	want := map[string][]string{}
	for _, p := range l.names() {
		for _, m := range l.parts[p] {
			want[m.Key] = append(want[m.Key], fmt.Sprintf("%d %s", len(want[m.Key])+1, m.Body))
		}
	}
	exactly(t, want, got)
}

func exactly(t *testing.T, want map[string][]string, got []broker.Message) {
	t.Helper()
	have := map[string][]string{}
	ids := map[string]int{}
	for _, m := range got {
		have[m.Key] = append(have[m.Key], string(m.Body))
		ids[m.ID]++
	}
	for key, w := range want {
		if !slices.Equal(have[key], w) {
			t.Errorf("key %s: %d messages, want %d: %s", key, len(have[key]), len(w), difference(have[key], w))
		}
		delete(have, key)
	}
	for key := range have {
		t.Errorf("key %q isn't in the input", key)
	}
	for id, n := range ids {
		if n != 1 || id == "" {
			t.Errorf("%d messages have the ID %q", n, id)
		}
	}
}

func difference(got, want []string) string {
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			return fmt.Sprintf("from number %d on: %q, want %q", i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
	}
	return fmt.Sprintf("%q is too much", got[len(want):min(len(want)+3, len(got))])
}

// options are quick ones.
func options() pipeline.Options {
	return pipeline.Options{Interval: 10 * time.Millisecond, MaxInput: 40, CheckpointTimeout: 10 * time.Second, RestartBudget: time.Minute,
		Backoff: broker.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond}, ErrorHook: func(error) {}, Log: slog.New(slog.DiscardHandler)}
}

// running is a pipeline that runs.
type running struct {
	*pipeline.Pipeline[*sql.Tx]
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, c pipeline.Config[*sql.Tx]) *running {
	t.Helper()
	if c.Name == "" {
		c.Name = "test"
	}
	p, err := pipeline.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, p)
}

func run(t *testing.T, p *pipeline.Pipeline[*sql.Tx]) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{p, cancel, make(chan error, 1)}
	go func() { r.done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel() })
	return r
}

// stop stops it and returns its error.
func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.cancel()
	return r.wait(t)
}

func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		t.Fatal("Run doesn't return")
		return nil
	}
}

// processed waits until n messages are in complete checkpoints.
func (r *running) processed(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages in checkpoints", n), func() bool {
		select {
		case err := <-r.done:
			r.done <- err
			t.Fatalf("Run returned %v after %+v", err, r.Stats())
		default:
		}
		return r.Stats().Input >= uint64(n)
	})
}

// rows returns the checkpoints of the pipeline.
func rows(t *testing.T, s *sqlite.Store) (rows []dedup.CheckpointRow) {
	t.Helper()
	err := s.Transact(context.Background(), func(tx *sql.Tx) (err error) {
		rows, err = s.Checkpoints(context.Background(), tx, "test", 100)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// once returns a function that is true the first time that a message with the text
// in its ID comes.
func once(text string) func(id string) bool {
	var first sync.Once
	return func(id string) (hit bool) {
		if strings.Contains(id, text) {
			first.Do(func() { hit = true })
		}
		return hit
	}
}

var errBroken = errors.New("broken")

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "a.db") }
