package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// probeSettleDurable. Anomaly: acks were confirmed, the broker's process dies, and
// their messages come again. Experiment: hold many messages, ack a few at a
// time as fast as the broker answers, and kill it meanwhile, so that there are acks
// which it confirmed a moment before; start it again, let a lease pass, and look.
// Those that weren't acked must come again, or it says nothing that the others don't.
func probeSettleDurable(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, b.longer)
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	switch o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0); {
	case o.State == broker.Sent:
		b.NotApplicable(boundary.SettleDurable, "the broker confirms no ack (%s)", o.State)
		return nil
	case o.State != broker.Confirmed:
		return fmt.Errorf("ack %q: %s: %w", d.ID, o.State, o.Err)
	}
	// What is forgotten is a matter of milliseconds, which a busy machine takes for the
	// kill alone: where acks are said to be forgotten it is tried more than once, with
	// more of them.
	kills, stock := 1, 30
	if b.Target.Boundary.Entries[boundary.SettleDurable].Declared == boundary.Redelivered {
		kills, stock = attempts, 120
	}
	total := 0
	for range kills {
		var acked, again int
		e, acked, again, err = b.ackedAndKilled(ctx, e, stock)
		if errors.Is(err, broker.ErrNotFound) {
			b.Answer(boundary.SettleDurable, boundary.Final, "the crash leaves nothing that could come again, not even the topic: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		if total += acked; again > 0 {
			b.Answer(boundary.SettleDurable, boundary.Redelivered, "%s confirmed while the broker was killed: of their messages %d came again", amount(acked, "ack was", "acks were"), again)
			return nil
		}
	}
	b.Answer(boundary.SettleDurable, boundary.Final, "%s confirmed while the broker was killed (%s): none of their messages came again", amount(total, "ack was", "acks were"), often(kills))
	return nil
}

// ackedAndKilled is one kill under the acks of so many messages, and what came of it: how
// many of them were confirmed, and how many messages of those came again.
func (b *Bench) ackedAndKilled(ctx context.Context, e ends, stock int) (after ends, n, again int, err error) {
	acked, open, err := b.killUnderAcks(ctx, e, stock)
	if err != nil {
		return e, 0, 0, err
	}
	if e, err = b.reopen(ctx, e); err != nil {
		return e, 0, 0, err
	}
	bound := max(b.askingLease(), b.Target.Session)
	if err := b.Wait(ctx, bound+slack(bound)); err != nil {
		return e, 0, 0, err
	}
	copies, err := b.comeAll(ctx, e, open)
	if err != nil {
		return e, 0, 0, err
	}
	for id := range open {
		if copies[id] == 0 {
			return e, 0, 0, fmt.Errorf("%q wasn't acked before the broker was killed, and didn't come again: so nothing is said of those that were", id)
		}
	}
	for id := range copies {
		if acked[id] {
			again++
		}
	}
	return e, len(acked), again, nil
}

// stock publishes n messages and receives them. Only that they are published is in the
// history, which the rest would fill: what comes again is of something.
func (b *Bench) stock(ctx context.Context, e ends, n int) ([]broker.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*b.Target.patience()+10*time.Second)
	defer cancel()
	ms := b.Messages(n)
	for i := range ms {
		b.history.Record(report.Event{Actor: report.Producer, Kind: kindPublish, ID: ms[i].ID, Note: "held while the broker is killed"})
	}
	if _, err := e.pub.Publish(ctx, ms...); err != nil {
		return nil, err
	}
	var ds []broker.Delivery
	for len(ds) < n {
		more, err := e.rcv.Receive(ctx, n-len(ds))
		if err != nil {
			return nil, fmt.Errorf("receive: %d of %d: %w", len(ds), n, err)
		}
		ds = append(ds, more...)
	}
	return ds, nil
}

// killUnderAcks kills the broker while so many deliveries are acked, and returns whose
// acks were confirmed and which weren't tried.
func (b *Bench) killUnderAcks(ctx context.Context, e ends, stock int) (acked, open map[string]bool, err error) {
	// A broker that writes its state in intervals writes the first change after a quiet
	// time at once, on a busy machine with all that came with it, and holds back what
	// follows.
	const enough = 2 * aFew // acks before the kill
	const quiet = 250 * time.Millisecond
	for n := range attempts {
		ds, err := b.stock(ctx, e, stock)
		if err != nil {
			return nil, nil, err
		}
		if err := b.Others(ctx); err != nil {
			return nil, nil, err
		}
		sleep(ctx, quiet)
		acks, stop := context.WithCancel(ctx)
		defer stop()
		begun, result := make(chan struct{}), make(chan ackRun, 1)
		go func() { result <- ackAll(acks, e.rcv, ds, enough, begun) }()
		select {
		case <-begun:
			err := b.Kill(ctx)
			stop()
			run := <-result
			if run.failed != nil {
				b.Note("The first ack that wasn't confirmed: %v", run.failed)
			}
			return run.acked, run.open, err
		case run := <-result:
			if len(run.acked) >= enough { // it was faster than the kill
				return run.acked, run.open, b.Kill(ctx)
			}
			if err := run.failed; !errors.Is(err, broker.ErrLeaseLost) || n == attempts-1 {
				return nil, nil, fmt.Errorf("ack before the kill: %w", err)
			}
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	return nil, nil, errLeaseOver
}

// ackRun is how far ackAll came.
type ackRun struct {
	acked, open map[string]bool // confirmed; not tried
	failed      error           // of the first in between
}

// aFew is how many deliveries are acked at a time.
const aFew = 6

// ackAll acks deliveries, a few at a time, until one isn't confirmed. It closes begun
// once enough are.
func ackAll(ctx context.Context, r broker.Receiver, ds []broker.Delivery, enough int, begun chan<- struct{}) ackRun {
	run := ackRun{acked: map[string]bool{}, open: map[string]bool{}}
	for some := range slices.Chunk(ds, aFew) {
		if run.failed != nil {
			for i := range some {
				run.open[some[i].ID] = true
			}
			continue
		}
		s := make([]broker.Settlement, len(some))
		for i := range some {
			s[i] = broker.Settlement{Delivery: &some[i], Action: broker.Ack}
		}
		_ = r.Settle(ctx, s) // the outcomes say more
		for i := range s {
			if o := s[i].Outcome; o.State == broker.Confirmed {
				run.acked[some[i].ID] = true
			} else if run.failed == nil {
				run.failed = fmt.Errorf("%s: %w", o.State, o.Err)
			}
		}
		if begun != nil && len(run.acked) >= enough {
			close(begun)
			begun = nil
		}
	}
	return run
}
