package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// begin makes the pipeline this process's own, resolves the last checkpoint, and
// opens sink and sources where it stands.
func (r *run[T]) begin(ctx context.Context) error {
	if err := r.store.VerifyCheckpoints(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, r.o.CheckpointTimeout)
	defer cancel()
	state, err := r.prepared(bounded)
	if err != nil {
		return err
	}
	if r.operator.State != nil {
		if err := contain(func() error { return r.operator.State.Restore(state) }); err != nil {
			return fmt.Errorf("%w: restore checkpoint %d: %w", errState, r.base, err)
		}
	}
	r.receivers = map[*Source]broker.Receiver{}
	for i := range r.sources {
		s := &r.sources[i]
		receiver, err := s.Open(ctx, broker.StartFrom(r.places.startFrom(s)))
		if err != nil {
			return fmt.Errorf("source %s: %w", s.Name, err)
		}
		r.receivers[s] = receiver
	}
	return nil
}

// prepared takes the pipeline, resolves its last checkpoint and opens the sink. It
// returns the state to begin with.
func (r *run[T]) prepared(ctx context.Context) (Snapshot, error) {
	last, note, err := r.own(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	if last != nil && last.State == dedup.CheckpointPrepared {
		if err := r.resolve(ctx, last); err != nil {
			return Snapshot{}, err
		}
	}
	state, err := r.choose(ctx, last)
	if err != nil {
		return Snapshot{}, err
	}
	return state, r.open(ctx, note)
}

// own takes the pipeline, or, after an error, sees to it that nobody else has. It
// returns the last checkpoint, if there is one, and the sink's note.
func (r *run[T]) own(ctx context.Context) (last *dedup.CheckpointRow, note []byte, err error) {
	var p dedup.PipelineRow
	var ignored bool
	err = r.transact(ctx, func(tx T) (err error) {
		if r.term == 0 {
			p, err = r.store.TakePipeline(ctx, tx, r.name)
		} else {
			// Who was taken over in the meantime must not take it back.
			if err = r.owned(ctx, tx); err == nil {
				p, err = r.row(ctx, tx)
			}
		}
		if err != nil {
			return err
		}
		rows, err := r.store.Checkpoints(ctx, tx, r.name, 1)
		if last = nil; len(rows) > 0 {
			last = &rows[0]
		}
		return err
	}, &ignored)
	if err == nil {
		r.term = p.Term
	}
	return last, p.Note, err
}

func (r *run[T]) row(ctx context.Context, tx T) (dedup.PipelineRow, error) {
	all, err := r.store.Pipelines(ctx, tx)
	for _, p := range all {
		if p.Name == r.name {
			return p, err
		}
	}
	return dedup.PipelineRow{}, err
}

// choose finds the checkpoint to begin with, which is the last one unless that is
// undone, and returns its state.
func (r *run[T]) choose(ctx context.Context, last *dedup.CheckpointRow) (state Snapshot, err error) {
	r.number, r.places = 1, newPlaces(nil)
	if last == nil {
		return Snapshot{}, nil
	}
	newest, err := decode(r.name, last)
	if err != nil {
		return Snapshot{}, err
	}
	r.number = last.Number + 1
	if last.State != dedup.CheckpointUndone {
		r.base, r.from, r.places = last.Number, newest.next, newPlaces(newest.next)
		return newest.state, nil
	}
	r.from, r.places = newest.from, newPlaces(newest.from)
	var rows []dedup.CheckpointRow
	var ignored bool
	err = r.transact(ctx, func(tx T) (err error) {
		rows, err = r.store.Checkpoints(ctx, tx, r.name, int(min(last.Number, 1<<20)))
		return err
	}, &ignored)
	if err != nil {
		return Snapshot{}, err
	}
	for i := range rows {
		if rows[i].State == dedup.CheckpointUndone {
			continue
		}
		rec, err := decode(r.name, &rows[i])
		if err != nil {
			return Snapshot{}, err
		}
		r.base = rec.number
		return rec.state, nil
	}
	if oldest := rows[len(rows)-1].Number; oldest > 1 {
		return Snapshot{}, fmt.Errorf("%w: all checkpoints of %s from %d on are undone, and the one before isn't kept", ErrCorrupt, r.name, oldest)
	}
	return Snapshot{}, nil // the first was undone, and is all there was
}

// resolve commits what the last checkpoint's sink had prepared, or finds out that it
// is lost; the row's State is what is written then.
func (r *run[T]) resolve(ctx context.Context, row *dedup.CheckpointRow) error {
	rec, err := decode(r.name, row)
	if err != nil {
		return err
	}
	if rec.kind != r.sink.Kind() {
		return broker.Errorf(broker.ErrInvalid, nil, "checkpoint %d was prepared by a sink of kind %q, and this one is %q: run the pipeline with the former until it is committed", rec.number, rec.kind, r.sink.Kind())
	}
	var fate Fate
	for failures := 1; ; failures++ {
		if fate, err = r.sink.Recover(ctx, rec.token); fate != FateOpen {
			break
		}
		if forGood(err) {
			return fmt.Errorf("%w: checkpoint %d: %w", ErrUnresolved, rec.number, err)
		}
		pause(ctx, min(r.delay(failures), time.Second))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: checkpoint %d: %w: %w", ErrUnresolved, rec.number, context.Cause(ctx), err)
		}
	}
	r.step("resolved")
	state, note := dedup.CheckpointCommitted, ""
	if fate == FateCommitted {
		log, age := r.o.Log.Info, time.Since(rec.opened)
		switch {
		case row.Number <= r.counted:
			log = r.o.Log.Debug // known before, and not yet written down
		case age > r.o.need():
			log = r.o.Log.Warn // it was luck
		}
		log("pipeline: committed the last checkpoint of the run before", "pipeline", r.name, "checkpoint", rec.number, "messages", rec.output, "open", age, "budget", r.o.need())
	} else {
		loss := r.lost(rec, row, fate, err)
		note = loss.String()
		switch loss.Action {
		case StopOnLoss:
			return &LossError{loss}
		case RewindOnLoss:
			state = dedup.CheckpointUndone
		case ContinueOnLoss:
			state = dedup.CheckpointLost
		}
	}
	var ignored bool
	err = r.transact(ctx, func(tx T) error {
		if err := r.owned(ctx, tx); err != nil {
			return err
		}
		_, err := r.store.MarkCheckpoint(ctx, tx, r.name, row.Number, state, note)
		return err
	}, &ignored)
	if err != nil {
		return fmt.Errorf("mark checkpoint %d as %v: %w", row.Number, state, err)
	}
	row.State = state
	if state == dedup.CheckpointCommitted && row.Number > r.counted {
		r.stats.recovered.Add(1)
		r.stats.input.Add(rec.input)
		r.stats.output.Add(rec.output)
		r.ended(false)
	}
	r.step("marked")
	return nil
}

// lost tells everybody of a loss, and says what is to be done.
func (r *run[T]) lost(rec *record, row *dedup.CheckpointRow, fate Fate, cause error) Loss {
	loss := Loss{Pipeline: r.name, Checkpoint: rec.number, Fate: fate, Cause: cause, Messages: rec.output, Input: rec.input, From: rec.from, To: rec.next,
		Opened: rec.opened, Recorded: row.Taken, Found: time.Now(), Need: r.o.need(), Action: r.o.OnLoss}
	if loss.Action == RewindOnLoss && (fate != FateAborted || rec.inStore) {
		loss.Action = StopOnLoss
	}
	r.stats.losses.Add(1)
	r.stats.lost.Add(rec.output)
	r.ended(true)
	r.o.Metric(MetricLosses, float64(r.stats.losses.Load()))
	r.o.Metric(MetricLostMessages, float64(r.stats.lost.Load()))
	r.o.Log.Error("pipeline: DATA LOSS", "pipeline", r.name, "loss", loss.String(), "cause", cause)
	if r.o.Loss != nil {
		r.o.Loss(loss)
	}
	return loss
}

// open opens the sink, and keeps its note before anything is written to it.
func (r *run[T]) open(ctx context.Context, note []byte) error {
	kind := append([]byte(r.sink.Kind()), 0)
	before, same := bytes.CutPrefix(note, kind)
	if !same {
		if len(note) > 0 {
			was, _, _ := bytes.Cut(note, []byte{0})
			r.o.Log.Warn("pipeline: the sink is of another kind than before; a transaction that one left open stays until its broker aborts it, and holds up who reads committed messages", "pipeline", r.name, "before", string(was), "now", r.sink.Kind())
		}
		before = nil
	}
	own, err := r.sink.Open(ctx, before)
	if err != nil {
		return fmt.Errorf("open sink: %w", err)
	}
	own = append(kind, own...)
	if bytes.Equal(own, note) {
		return nil
	}
	var ignored bool
	err = r.transact(ctx, func(tx T) error {
		if err := r.owned(ctx, tx); err != nil {
			return err
		}
		return r.store.NotePipeline(ctx, tx, r.name, own)
	}, &ignored)
	if err != nil {
		return fmt.Errorf("keep the sink's note: %w", err)
	}
	return nil
}
