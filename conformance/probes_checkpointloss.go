package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// The times of the pipeline that dies in probeTimeoutLoss: together the six seconds for
// which the broker is asked to keep its transaction.
const (
	lossInterval = time.Second
	lossSteps    = 4500 * time.Millisecond // a busy machine takes its time to open a transaction
	lossAway     = 500 * time.Millisecond
)

// lossTooLong is away for longer than a broker that has a limit keeps a transaction.
const lossTooLong = 1000 * time.Hour

// probeTimeoutLoss. Anomaly: a checkpoint counts on output that the broker drops, because
// nobody came back to commit it in time; the job goes on, and the hole is found much
// later. Experiment: a pipeline that asks its broker for more than any allows must be
// refused before it reads. Another one is killed behind its checkpoint, before it commits,
// and stays away until the broker has ended its transaction, which a message shows that
// waits behind it. The next process recovers: whether the output is there, and if not,
// whether Run says so, the log does, and the metrics count it. At last the output is made
// again from the checkpoint before, which tells a loss that is told from one that is only
// claimed.
func probeTimeoutLoss(ctx context.Context, b *Bench) (err error) {
	p, err := b.pipe(ctx, false, boundary.CheckpointTimeoutLoss)
	if p == nil || err != nil {
		return err
	}
	// From the first on, for the model of Kafka keeps to what an ID asked for first
	// (KAF-F-421).
	usual := p.p
	p.p.Interval, p.p.Steps, p.p.Away = lossInterval, lossSteps, lossAway
	refused, err := p.trial(ctx)
	if err != nil {
		return err
	}
	if refused != nil {
		p.unsupported(refused, boundary.CheckpointTimeoutLoss)
		return nil
	}
	checked, err := p.checksBudget(ctx)
	if err != nil {
		return err
	}
	// The checkpoint that is lost is of the last two messages, and the one before stays.
	p.p.Batch = 2
	left := 4
	if checked == "" {
		left-- // one wasn't read yet
	}
	if _, err := p.feed(ctx, left); err != nil {
		return err
	}
	if err := p.killAt(ctx, Recorded, 1); err != nil {
		return err
	}
	killed := time.Now()
	if err := p.collectOpen(ctx); err != nil {
		return err
	}
	gone := p.missing()
	p.history.Add(report.Broker, "abort", "", "what waits behind the transaction is seen %s after the kill", time.Since(killed).Round(time.Millisecond))
	if len(gone) == 0 {
		b.Answer(boundary.CheckpointTimeoutLoss, boundary.Kept, "the output is there, though nobody committed it")
		return nil
	}
	p.p = usual
	p.p.Batch = 1
	next, err := p.feed(ctx, 1)
	if err != nil {
		return err
	}
	told, why, err := p.told(ctx, next[0].ID)
	if err != nil {
		return err
	}
	why = fmt.Sprintf("the broker dropped the output of %s after %s; %s", amount(len(gone), "message", "messages"), time.Since(killed).Round(time.Millisecond), why)
	if !told {
		b.Answer(boundary.CheckpointTimeoutLoss, boundary.LostInSilence, "%s", why)
		return nil
	}
	p.p.Rewind = true
	r := p.start(ctx, nil)
	defer func() { err = errors.Join(err, p.ended(r)) }()
	if err := p.collect(ctx, r); err != nil {
		return err
	}
	found, again := p.multiplicity()
	if found != boundary.Once {
		return fmt.Errorf("%s; run with the choice to make it again: %s", why, again)
	}
	if checked != "" {
		b.Answer(boundary.CheckpointTimeoutLoss, boundary.LostUnforeseen, "%s; and %s", why, checked)
		return nil
	}
	b.Answer(boundary.CheckpointTimeoutLoss, boundary.LostAndTold, "%s; run with the choice to make it again: %s. A pipeline that may be away for %s isn't begun", why, again, lossTooLong)
	return nil
}

// checksBudget says what is wrong with a pipeline's check of its times at the start;
// empty for nothing.
func (p *piped) checksBudget(ctx context.Context) (wrong string, err error) {
	before := p.p
	defer func() { p.p = before }()
	p.p.Away = lossTooLong
	refused, err := p.trial(ctx)
	switch {
	case err != nil:
		return "", err
	case refused == nil:
		return fmt.Sprintf("a pipeline that may be away for %s was begun, which no broker keeps a transaction for", lossTooLong), nil
	}
	p.Note("a pipeline that may be away for %s isn't begun: %v", lossTooLong, refused)
	return "", nil
}

// collectOpen reads what is there until a message comes that waits behind the open
// transaction: then that is no more.
func (p *piped) collectOpen(ctx context.Context) error {
	behind := p.Message()
	if _, err := p.MustPublish(ctx, p.out.pub, behind); err != nil {
		return err
	}
	for deadline := time.Now().Add(40 * time.Second); len(p.seen[behind.ID]) == 0; {
		ids, err := p.take(ctx, time.Until(deadline))
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(ids) == 0:
			return fmt.Errorf("%q, which waits behind the transaction, never came: the broker keeps that for longer than it was asked to", behind.ID)
		}
	}
	return nil
}

// told runs the pipeline until it ends by the loss, or the output of a later message
// comes, and says how the loss was told.
func (p *piped) told(ctx context.Context, later string) (bool, string, error) {
	r := p.start(ctx, nil)
	defer r.end()
	for len(p.seen[later]) == 0 {
		select {
		case <-r.ended:
			return p.judge(r)
		default:
		}
		if _, err := p.take(ctx, 100*time.Millisecond); err != nil {
			return false, "", err
		}
		if ctx.Err() != nil {
			return false, "", context.Cause(ctx)
		}
	}
	return false, fmt.Sprintf("and the next process went on without it: %q, which came later, has its output; logged as an error: %q", later, r.logs.String()), nil
}

// judge says how a pipeline that ended told of the loss.
func (p *piped) judge(r *running) (bool, string, error) {
	switch losses, rate := r.metric(metricLosses), r.metric(metricAbortRate); {
	case !errors.Is(r.err, ErrOutputLost):
		return false, "", fmt.Errorf("the pipeline ended, and not by the loss: %w", r.err)
	case r.logs.String() == "":
		return false, fmt.Sprintf("the next process ended by it, and logged no error: %v", r.err), nil
	case losses < 1 || rate <= 0:
		return false, fmt.Sprintf("the next process ended by it, and didn't count it: %s is %v, %s %v", metricLosses, losses, metricAbortRate, rate), nil
	default:
		return true, fmt.Sprintf("the next process says so, in its log too: %v; %s is %v, %s %v", r.err, metricLosses, losses, metricAbortRate, rate), nil
	}
}

// crossingSteps are those at which a pipeline that reads another broker is killed, by how
// it writes.
var crossingSteps = map[PipelineSink][]PipelineStep{
	Transacted: {Prepared, Recorded, Committed},
	Relayed:    {Prepared, Recorded, PipelineRelay},
}

// probeCrossBroker. Anomaly: input from one broker and output on another are in no
// transaction together, and each crash in between makes a copy, or a hole. Experiment: a
// pipeline reads another broker and writes here, in a transaction where the broker has one
// that can be kept over a checkpoint, else by an outbox and a relay. It is killed before
// its checkpoint is recorded, behind that, and when its output is sent and nobody has
// noted so. The last process lives, and the outputs are counted.
func probeCrossBroker(ctx context.Context, b *Bench) (err error) {
	p, err := b.pipe(ctx, true, boundary.PipelineCrossBroker)
	if p == nil || err != nil {
		return err
	}
	refused, err := p.trial(ctx)
	if err != nil {
		return err
	}
	how := "in a transaction"
	if refused != nil {
		if !errors.Is(refused, broker.ErrUnsupported) {
			return refused
		}
		how, p.p.Sink = "by an outbox and a relay", Relayed
	}
	p.p.Batch, p.p.Interval = 1, visibleInterval
	steps := crossingSteps[p.p.Sink]
	for _, at := range steps {
		if _, err := p.feed(ctx, 1); err != nil {
			return err
		}
		if err := p.killAt(ctx, at, 0); err != nil {
			return err
		}
	}
	// What was sent already is sent again before this one, of the same key.
	if _, err := p.feed(ctx, 1); err != nil {
		return err
	}
	r := p.start(ctx, nil)
	defer func() { err = errors.Join(err, p.ended(r)) }()
	if err := p.collect(ctx, r); err != nil {
		return err
	}
	found, why := p.multiplicity()
	b.Answer(boundary.PipelineCrossBroker, found, "the pipeline writes %s, and was killed at the steps %q: %s", how, steps, why)
	return nil
}
