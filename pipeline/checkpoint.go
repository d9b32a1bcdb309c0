package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/onceline/onceline/dedup"
)

// errState: the operator's state can't be kept or restored.
var errState = errors.New("pipeline: state")

// checkpoint makes all since the last one permanent: the sink prepares its output,
// one record in the store says where everything stands and what is prepared, and then
// the sink commits.
func (r *run[T]) checkpoint(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.o.CheckpointTimeout)
	defer cancel()
	if r.operator.Flush != nil {
		r.out.in, r.out.n = nil, 0
		r.out.prefix = append(r.out.prefix[:0], r.name, "flush", strconv.FormatInt(r.number, 10))
		if err := contain(func() error { return r.operator.Flush(ctx, &r.out) }); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
		if r.out.err != nil {
			return r.out.err
		}
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	rec := &record{pipeline: r.name, number: r.number, opened: r.opened, from: r.began(), next: r.places.list(),
		input: r.input, output: r.output, kind: r.sink.Kind(), inStore: r.sink.InStore() && r.output > 0}
	var err error
	if rec.state, err = r.snapshot(); err != nil {
		return err
	}
	r.step("prepare")
	if rec.token, err = r.sink.Prepare(ctx); err != nil {
		return fmt.Errorf("prepare checkpoint %d: %w", r.number, err)
	}
	r.step("prepared")
	data := rec.encode()
	if err := r.record(ctx, rec, data); err != nil {
		return fmt.Errorf("record checkpoint %d: %w", r.number, err)
	}
	r.step("recorded")
	if r.output > 0 {
		if fate, err := r.sink.Commit(ctx); fate != FateCommitted {
			return fmt.Errorf("%w: commit of checkpoint %d: %v: %w", ErrUnresolved, r.number, fate, err)
		}
	}
	r.step("committed")
	r.complete(ctx, rec, Info{Number: r.number, Input: r.input, Output: r.output, Bytes: len(data), Took: time.Since(began), Held: time.Since(r.opened)})
	return nil
}

// complete goes on to the next checkpoint, and tells of this one.
func (r *run[T]) complete(ctx context.Context, rec *record, info Info) {
	held := r.held
	r.unmarked = rec.token != nil
	r.base, r.counted, r.from = r.number, r.number, rec.next
	r.number++
	r.checkpoints++
	r.start()
	r.stats.input.Add(info.Input)
	r.stats.output.Add(info.Output)
	r.stats.checkpoints.Add(1)
	r.ended(false)
	r.o.Metric(MetricCheckpointSeconds, info.Took.Seconds())
	r.o.Metric(MetricCheckpointBytes, float64(info.Bytes))
	r.o.Metric(MetricHeldSeconds, info.Held.Seconds())
	r.ack(ctx, held)
	if r.o.Checkpointed != nil {
		r.o.Checkpointed(info)
	}
}

// began is where the sources stood before the present checkpoint's input.
func (r *run[T]) began() []Place {
	ps := slices.Clone(r.from)
	return append(ps, listOf(r.first)...)
}

func listOf(m map[at]uint64) []Place {
	ps := make([]Place, 0, len(m))
	for k, offset := range m {
		ps = append(ps, Place{k.source, k.epoch, k.partition, offset})
	}
	return ps
}

// snapshot takes the operator's state.
func (r *run[T]) snapshot() (s Snapshot, err error) {
	if r.operator.State == nil {
		return Snapshot{}, nil
	}
	if err := contain(func() (err error) { s, err = r.operator.State.Snapshot(); return err }); err != nil {
		return s, fmt.Errorf("%w: snapshot: %w", errState, err)
	}
	if len(s.Data) > r.o.MaxState {
		return s, fmt.Errorf("%w: the snapshot has %d bytes, over Options.MaxState (%d)", errState, len(s.Data), r.o.MaxState)
	}
	if s.Data == nil {
		s.Data = []byte{} // nil is the state before the first message
	}
	return s, nil
}

// record writes the checkpoint's row, with what the sink has for the store, in one
// transaction. When it fails, r.recorded tells whether the row may be there.
func (r *run[T]) record(ctx context.Context, rec *record, data []byte) error {
	row := dedup.CheckpointRow{Number: r.number, Term: r.term, State: dedup.CheckpointCommitted, Taken: time.Now(), Data: data}
	if rec.token != nil {
		row.State = dedup.CheckpointPrepared
	}
	keep := max(int64(r.o.Keep), r.number-r.base+1) // the base stays
	return r.transact(ctx, func(tx T) error {
		if err := r.owned(ctx, tx); err != nil {
			return err
		}
		if r.recorded { // an earlier attempt got no answer to its commit
			last, err := r.store.Checkpoints(ctx, tx, r.name, 1)
			if err != nil || len(last) > 0 && last[0].Number == r.number {
				return err // no other process can have written it: the term is ours
			}
		}
		if r.unmarked {
			if _, err := r.store.MarkCheckpoint(ctx, tx, r.name, r.number-1, dedup.CheckpointCommitted, ""); err != nil {
				return err
			}
		}
		if err := r.store.AddCheckpoint(ctx, tx, r.name, row, keep); err != nil {
			return err
		}
		return r.sink.Record(ctx, tx)
	}, &r.recorded)
}

// owned sees to it that nobody takes the pipeline over before tx ends.
func (r *run[T]) owned(ctx context.Context, tx T) error {
	own, err := r.store.OwnPipeline(ctx, tx, r.name, r.term)
	if err == nil && !own {
		return ErrFenced
	}
	return err
}

// mark notes that the last checkpoint is committed, if its row doesn't say so yet, so
// that nobody has to ask a broker that may have forgotten it by then; and finds out
// whether somebody else runs the pipeline.
func (r *run[T]) mark(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.CheckpointTimeout)
	defer cancel()
	var unsure bool
	err := r.transact(ctx, func(tx T) error {
		if err := r.owned(ctx, tx); err != nil {
			return err
		}
		if !r.unmarked {
			return nil
		}
		_, err := r.store.MarkCheckpoint(ctx, tx, r.name, r.number-1, dedup.CheckpointCommitted, "")
		return err
	}, &unsure)
	if err == nil {
		r.unmarked = false
	}
	return err
}

// transact runs f in a transaction of the store, again and again until ctx ends when
// that was refused for the sake of another, lost, or has no answer. Done is set when
// f may have been committed all the same, and f looks for that when it is set.
func (r *run[T]) transact(ctx context.Context, f func(tx T) error, done *bool) error {
	for failures := 1; ; failures++ {
		err := r.store.Transact(ctx, f)
		if err == nil {
			*done = true
			return nil
		}
		unknown := errors.Is(err, dedup.ErrCommitUnknown)
		if unknown {
			*done = true
		}
		// After ErrFenced the row of an earlier attempt, if it was committed, is the
		// new owner's to resolve.
		again := unknown || errors.Is(err, dedup.ErrLost) || r.store.Fault(err) != dedup.Permanent
		if !again || errors.Is(err, ErrFenced) || ctx.Err() != nil {
			return err
		}
		pause(ctx, min(r.delay(failures), time.Second))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
