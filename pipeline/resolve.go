package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Resolve does what Run does before it reads anything: it takes the pipeline over,
// commits what its last checkpoint had prepared, and has the sink abort what was left
// open. It is for pipelines that nobody is going to run any more, as when a job goes
// on with fewer instances: until its broker aborts it, what such a one left open holds
// up everybody who reads committed messages, and what it had prepared is lost then.
//
// The errors are those of Run. Nothing is tried a second time.
func (p *Pipeline[T]) Resolve(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return broker.Errorf(broker.ErrConflict, nil, "pipeline %s runs", p.name)
	}
	defer p.running.Store(false)
	if err := p.sink.Check(p.o.need()); err != nil {
		return fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	if err := p.store.VerifyCheckpoints(ctx); err != nil {
		return err
	}
	r := &run[T]{Pipeline: p}
	defer r.close(ctx, nil)
	ctx, cancel := context.WithTimeout(ctx, p.o.CheckpointTimeout)
	defer cancel()
	if _, err := r.prepared(ctx); err != nil {
		return fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	return nil
}

// Status is a pipeline as its store has it.
type Status struct {
	Name string
	// Term counts the processes that have run it.
	Term int64
	// Checkpoint is the number of the last one, 0 if there is none; Taken is when it
	// was recorded, State what became of its output and Note why.
	Checkpoint int64
	Taken      time.Time
	State      dedup.CheckpointState
	Note       string
	// Places is where the sources stand, and State's size is StateBytes.
	Places     []Place
	StateBytes int
	// Err is why the last checkpoint can't be read.
	Err error
}

// List returns all pipelines of a store, by name. One whose State is
// CheckpointPrepared and that nobody runs needs a [Pipeline.Resolve], or a Run, within
// its restart budget.
func List[T any](ctx context.Context, store dedup.CheckpointDriver[T]) ([]Status, error) {
	var all []Status
	err := store.Transact(ctx, func(tx T) error {
		all = nil
		pipelines, err := store.Pipelines(ctx, tx)
		if err != nil {
			return err
		}
		for _, p := range pipelines {
			s := Status{Name: p.Name, Term: p.Term}
			rows, err := store.Checkpoints(ctx, tx, p.Name, 1)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				row := &rows[0]
				s.Checkpoint, s.Taken, s.State, s.Note = row.Number, row.Taken, row.State, row.Note
				rec, err := decode(p.Name, row)
				if s.Err = err; err == nil {
					s.Places, s.StateBytes = rec.next, len(rec.state.Data)
				}
			}
			all = append(all, s)
		}
		return nil
	})
	// Nothing was written, so that the answer to the commit is worth nothing.
	if err != nil && !errors.Is(err, dedup.ErrCommitUnknown) {
		return nil, fmt.Errorf("pipeline: list: %w", err)
	}
	return all, nil
}
