package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// checkpointProbes are those about pipelines that take checkpoints.
func checkpointProbes() []Probe {
	return []Probe{
		{"checkpoint-recovery", claims(boundary.CheckpointRecovery), 0, probeRecovery},
		{"checkpoint-loss", claims(boundary.CheckpointTimeoutLoss), 0, probeTimeoutLoss},
		{"cross-broker", claims(boundary.PipelineCrossBroker), 0, probeCrossBroker},
		{"checkpoint-visibility", claims(boundary.CheckpointVisibility), 0, probeVisibility},
	}
}

// visibleInterval is the time between checkpoints in probeVisibility.
const visibleInterval = 400 * time.Millisecond

// probeVisibility. Anomaly: output is seen before the checkpoint that counts it, so that
// a crash in between brings it again; or those who count on low latency wait for an
// interval and don't know. Experiment: a pipeline is held when its first output is with
// the broker, and again when its checkpoint is recorded: a receiver that has just got
// another message gets nothing. It goes on, and the output comes. What is published right
// behind this checkpoint is timed until it is seen: no sooner than the interval.
func probeVisibility(ctx context.Context, b *Bench) (err error) {
	p, err := b.pipe(ctx, false, boundary.CheckpointVisibility)
	if p == nil || err != nil {
		return err
	}
	refused, err := p.trial(ctx)
	if err != nil {
		return err
	}
	if refused != nil {
		p.unsupported(refused, boundary.CheckpointVisibility)
		return nil
	}
	if d, err := p.visible(ctx); err != nil || d == nil { // or the receiver doesn't show anything
		return err
	}
	p.p.Interval = visibleInterval
	h := &held{at: make(chan PipelineStep), goOn: make(chan struct{}), committed: make(chan time.Time, 1000)}
	r := p.start(ctx, h.step)
	defer func() { err = errors.Join(err, p.ended(r)) }()
	defer h.release()
	if _, err := p.feed(ctx, 1); err != nil {
		return err
	}
	for _, step := range []PipelineStep{Prepared, Recorded} {
		if err := h.wait(ctx, r, step); err != nil {
			return err
		}
		early, err := b.Receive(ctx, p.out.rcv, 1, min(b.Target.patience()/2, 500*time.Millisecond))
		if err != nil {
			return err
		}
		if len(early) > 0 {
			b.Answer(boundary.CheckpointVisibility, boundary.Early, "%q is seen while the pipeline is at the step %q: its checkpoint isn't committed", early[0].ID, step)
			return nil
		}
		if err := h.pass(ctx); err != nil {
			return err
		}
	}
	h.release()
	first, err := p.visible(ctx)
	if err != nil || first == nil {
		return err
	}
	var since time.Time
	select {
	case since = <-h.committed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, err := p.feed(ctx, 1); err != nil {
		return err
	}
	second, err := p.visible(ctx)
	if err != nil || second == nil {
		return err
	}
	took := time.Since(since)
	if took < visibleInterval {
		b.Answer(boundary.CheckpointVisibility, boundary.Early, "%q is seen %s behind the checkpoint before it, and the next was due after %s", second.ID, took.Round(time.Millisecond), visibleInterval)
		return nil
	}
	b.Answer(boundary.CheckpointVisibility, boundary.AfterCheckpoint, "not while the pipeline was held with its output prepared, nor when its checkpoint was recorded, but when that was committed; what was published right behind it was seen with the next one, %s later, with an interval of %s", took.Round(time.Millisecond), visibleInterval)
	return nil
}

// visible waits for the next output. None is an answer.
func (p *piped) visible(ctx context.Context) (*broker.Delivery, error) {
	ds, err := p.Receive(ctx, p.out.rcv, 1, 5*p.Target.patience()+p.Target.SlowStart)
	if err != nil {
		return nil, err
	}
	if len(ds) == 0 {
		p.Answer(boundary.CheckpointVisibility, boundary.Never, "the checkpoint is complete, and nothing came for %s", 5*p.Target.patience()+p.Target.SlowStart)
		return nil, nil
	}
	p.note(&ds[0])
	return &ds[0], p.MustAck(ctx, p.out.rcv, &ds[0])
}

// held holds a pipeline at steps until it is released.
type held struct {
	at        chan PipelineStep
	goOn      chan struct{}
	released  bool           // by the probe; goOn is closed
	committed chan time.Time // of each checkpoint
}

func (h *held) step(ctx context.Context, at PipelineStep) error {
	switch at {
	case Committed:
		select {
		case h.committed <- time.Now():
		default:
		}
	case Prepared, Recorded:
		select {
		case <-h.goOn:
			return nil
		default:
		}
		select {
		case h.at <- at:
			select {
			case <-h.goOn:
			case <-ctx.Done():
			}
		case <-h.goOn:
		case <-ctx.Done():
		}
	}
	return nil
}

// wait waits until it is held at the step.
func (h *held) wait(ctx context.Context, r *running, step PipelineStep) error {
	select {
	case at := <-h.at:
		if at != step {
			return fmt.Errorf("the pipeline is at the step %q, and %q was to come", at, step)
		}
		return nil
	case <-r.ended:
		return fmt.Errorf("the pipeline ended before the step %q: %w", step, r.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pass lets it go to the next step.
func (h *held) pass(ctx context.Context) error {
	select {
	case h.goOn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *held) release() {
	if !h.released {
		h.released = true
		close(h.goOn)
	}
}

// recoverySteps are those at which pipelines are killed one after another, and of how
// many such steps each is the next.
var recoverySteps = []struct {
	at   PipelineStep
	skip int
}{
	{Preparing, 1}, {Prepared, 0}, {Recorded, 1}, {Resolved, 0}, {Marked, 0}, {Committed, 1}, {Prepared, 1}, {Recorded, 0},
}

// recoveryBatch is of how many messages a checkpoint is in probeRecovery.
const recoveryBatch = 3

// probeRecovery. Anomaly: a process dies between two phases, and the next one commits what
// no checkpoint counts, aborts what one does, or does it again. Experiment: a pipeline
// that numbers messages is killed with SIGKILL at each step of a checkpoint, and its
// successors at each step of the recovery; the last one lives. How often each output is
// there, and with which number, says what was committed and what the state counted.
func probeRecovery(ctx context.Context, b *Bench) (err error) {
	p, err := b.pipe(ctx, false, boundary.CheckpointRecovery)
	if p == nil || err != nil {
		return err
	}
	refused, err := p.trial(ctx)
	if err != nil {
		return err
	}
	if refused != nil {
		p.unsupported(refused, boundary.CheckpointRecovery)
		return nil
	}
	p.p.Batch = recoveryBatch
	if _, err := p.feed(ctx, 10*recoveryBatch); err != nil {
		return err
	}
	for _, kill := range recoverySteps {
		if err := p.killAt(ctx, kill.at, kill.skip); err != nil {
			return err
		}
	}
	r := p.start(ctx, nil)
	defer func() { err = errors.Join(err, p.ended(r)) }()
	if err := p.collect(ctx, r); err != nil {
		return err
	}
	found, why := p.multiplicity()
	b.Answer(boundary.CheckpointRecovery, found, "%d processes were killed, at the steps %s: %s", len(recoverySteps), recoveryOrder(), why)
	return nil
}

// recoveryOrder is the steps of recoverySteps in words.
func recoveryOrder() string {
	var steps []string
	for _, kill := range recoverySteps {
		steps = append(steps, string(kill.at))
	}
	return strings.Join(steps, ", ")
}
