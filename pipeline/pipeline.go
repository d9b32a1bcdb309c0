package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// The errors of this package, to be tested with errors.Is.
var (
	// ErrFenced: another process has begun to run the pipeline. What this one did
	// since its last checkpoint is taken back.
	ErrFenced = fmt.Errorf("pipeline: another process runs it now: %w", broker.ErrConflict)
	// ErrBudget: the interval, the time for a checkpoint and the restart budget don't
	// fit into the time for which the sink's broker keeps what is prepared.
	ErrBudget = fmt.Errorf("pipeline: the sink's transaction wouldn't live long enough: %w", broker.ErrInvalid)
	// ErrDataLoss: the broker has dropped output of a checkpoint that was recorded.
	// A [LossError] says which.
	ErrDataLoss = errors.New("pipeline: DATA LOSS")
	// ErrCorrupt: a checkpoint can't be read.
	ErrCorrupt = errors.New("pipeline: checkpoint can't be read")
	// ErrSource: a source brought messages from before the place that it was to begin
	// at. Most likely its topic was made anew, so that its offsets are those of other
	// messages: see Source.Epoch.
	ErrSource = fmt.Errorf("pipeline: the source went back: %w", broker.ErrConflict)
	// ErrUnresolved: the store or the sink's broker couldn't be asked what became of
	// a checkpoint. It is there as it was; the next Run asks again.
	ErrUnresolved = fmt.Errorf("pipeline: the last checkpoint isn't resolved: %w", broker.ErrUnknownOutcome)
)

// Pipeline reads sources, runs an operator on what they bring, and writes its output
// to a sink. Each message's effect on the operator's state and on the output is there
// once, whatever crashes: see the package comment for what that rests on. T is the
// store's transaction.
type Pipeline[T any] struct {
	store    dedup.CheckpointDriver[T]
	name     string
	sources  []Source
	operator Operator
	sink     Sink[T]
	o        Options
	step     func(step string) // told of each step of a checkpoint, by tests
	running  atomic.Bool
	counted  int64 // the last checkpoint that the stats have as complete
	stats    counters
}

// Config is what a [Pipeline] is made of. All fields but Options are needed.
type Config[T any] struct {
	// Name is the pipeline's in the store. One process at a time runs it: the last
	// one that began.
	Name     string
	Store    dedup.CheckpointDriver[T]
	Sources  []Source
	Operator Operator
	Sink     Sink[T]
	Options  Options
}

// New returns a pipeline. It asks nobody; what can't be is [broker.ErrInvalid].
func New[T any](c Config[T]) (*Pipeline[T], error) {
	o, err := c.Options.withDefaults()
	if err != nil {
		return nil, err
	}
	bad := func(format string, a ...any) error {
		return broker.Errorf(broker.ErrInvalid, nil, "pipeline %q: %s", c.Name, fmt.Sprintf(format, a...))
	}
	switch {
	case c.Name == "" || len(c.Name) > broker.MaxID/2 || strings.ToValidUTF8(c.Name, "") != c.Name || strings.ContainsRune(c.Name, 0):
		return nil, bad("the name is empty, over %d bytes or no text", broker.MaxID/2)
	case c.Store == nil || c.Sink == nil || c.Operator.Process == nil:
		return nil, bad("it has no store, no sink or no Process")
	case len(c.Sources) == 0:
		return nil, bad("it has no source")
	}
	names := map[string]bool{}
	for _, s := range c.Sources {
		if s.Name == "" || s.Open == nil || names[s.Name] {
			return nil, bad("source %q has no name, no Open, or another's name", s.Name)
		}
		names[s.Name] = true
	}
	return &Pipeline[T]{store: c.Store, name: c.Name, sources: c.Sources, operator: c.Operator, sink: c.Sink, o: o, step: func(string) {}}, nil
}

// Run runs the pipeline until ctx ends, and then, within Options.StopTimeout, takes a
// last checkpoint and returns nil.
//
// It begins by resolving the last checkpoint: what its sink had prepared is
// committed. Then the state is restored, the sources are opened where it stood, and
// input is processed. After an error all of that is done again, as Options.Restarts
// says. It returns an error when that is of no use: [ErrFenced], [ErrDataLoss],
// [ErrBudget], [ErrCorrupt], [ErrSource], [dedup.ErrVerify], a wish that a broker can't meet, or
// the last of too many errors in a row.
//
// A second Run at the same time is [broker.ErrConflict].
func (p *Pipeline[T]) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return broker.Errorf(broker.ErrConflict, nil, "pipeline %s runs already", p.name)
	}
	defer p.running.Store(false)
	if err := p.sink.Check(p.o.need()); err != nil {
		return fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	var term int64
	for failures := 0; ; {
		r := &run[T]{Pipeline: p, term: term}
		err := r.once(ctx)
		term = r.term
		switch {
		case err == nil:
			return nil
		case forGood(err):
			return fmt.Errorf("pipeline %s: %w", p.name, err)
		case ctx.Err() != nil && !r.begun && !errors.Is(err, ErrUnresolved):
			return nil // stopped before it did anything
		case r.checkpoints > 0:
			failures = 0
		}
		failures++
		p.stats.restarts.Add(1)
		p.o.Metric(MetricRestarts, float64(p.stats.restarts.Load()))
		if failures > p.o.Restarts {
			return fmt.Errorf("pipeline %s: failed %d times in a row: %w", p.name, failures, err)
		}
		if ctx.Err() == nil {
			p.o.ErrorHook(fmt.Errorf("pipeline %s begins anew: %w", p.name, err))
			pause(ctx, p.delay(failures))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("pipeline %s: stopped, and the next Run goes on from the last checkpoint: %w", p.name, err)
		}
	}
}

// forGood reports whether to begin anew is of no use.
func forGood(err error) bool {
	for _, kind := range []error{ErrFenced, ErrDataLoss, ErrBudget, ErrCorrupt, ErrSource, errState, dedup.ErrVerify, broker.ErrInvalid, broker.ErrUnsupported, broker.ErrUnauthorized} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func (p *Pipeline[T]) delay(failures int) time.Duration {
	bound := p.o.Backoff.Max
	if shift := failures - 1; shift < 40 && p.o.Backoff.Min <= bound>>shift {
		bound = p.o.Backoff.Min << shift
	}
	return time.Duration((1 + p.o.Rand()) / 2 * float64(bound))
}

// pause waits for d or ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
