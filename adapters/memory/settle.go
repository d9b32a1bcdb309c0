package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Settle carries out all ops in one step.
func (r *receiver) Settle(ctx context.Context, ops []driver.Op) {
	// After Close only the broker's memory is asked, and ctx has ended.
	shut := r.isShut()
	if ctx.Err() != nil && !shut {
		for i := range ops {
			untouched(&ops[i], broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "%s", describe(ops[i].Settlement)))
		}
		return
	}
	if !shut {
		if i := r.c.b.faults.strike(Settle, request, r.name, topicOf(r.name)); i != nil {
			r.struckSettle(ctx, i, ops)
			return
		}
	}
	r.settle(ops)
}

func (r *receiver) isShut() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// settle carries out a request that has arrived. It reports whether any of it
// took effect.
func (r *receiver) settle(ops []driver.Op) (applied bool) {
	b := r.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		for i := range ops {
			untouched(&ops[i], broker.Errorf(broker.ErrClosed, nil, "%s", describe(ops[i].Settlement)))
		}
		return false
	}
	now := b.begin()
	for i := range ops {
		op := &ops[i]
		op.Settlement.Outcome, op.Untouched = b.settle(op.Token.Ref.(*grant), op.Settlement, now)
		applied = applied || op.Settlement.Outcome.State == broker.Confirmed
		b.broken.answerSettle(op)
	}
	b.arm(now)
	return applied
}

// untouched is the outcome of an op of which nothing took effect.
func untouched(op *driver.Op, err error) {
	op.Untouched = true
	op.Settlement.Outcome = broker.Outcome{Err: err}
}

func describe(s *broker.Settlement) string { return fmt.Sprintf("%s %q", s.Action, s.Delivery.ID) }

// settle does one action for the holder of a grant.
func (b *Broker) settle(g *grant, s *broker.Settlement, now int64) (o broker.Outcome, untouched bool) {
	it := g.item
	sub := it.sub
	switch {
	case b.broken.ackOnDelivery:
		return broker.Outcome{State: broker.Confirmed, Lease: time.Unix(0, g.at)}, false
	case g.settled && g.action == s.Action && b.broken.settleMemory:
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "%s", describe(s))}, false
	case g.settled && g.action == s.Action:
		return broker.Outcome{State: broker.Confirmed}, false
	case g.joined && s.Action != broker.Extend && it.grant == g:
		return broker.Outcome{State: broker.Pending}, false
	case it.grant == g && !g.settled:
	case !b.broken.fencing:
		return broker.Outcome{State: broker.LeaseLost,
			Err: broker.Errorf(broker.ErrLeaseLost, nil, "%s: lease %d of %s has ended", describe(s), g.number, sub.name)}, false
	case it.state != inFlight && it.state != ready:
		// Nobody to take it from.
		return broker.Outcome{State: broker.Confirmed}, false
	}
	switch s.Action {
	case broker.Extend:
		return b.extend(g, s.Delay, now), false
	case broker.DeadLetter:
		if err := sub.bury(it, s.Reason, now); err != nil {
			return broker.Outcome{Err: fmt.Errorf("%s: %w", describe(s), err)}, true
		}
		sub.finish(it)
	case broker.Ack:
		if !b.broken.finalSettle {
			sub.finish(it)
		}
	case broker.Nack:
		sub.release(it, b.broken.nackDelay(int64(s.Delay)), now)
	}
	g.settled, g.action = true, s.Action
	return broker.Outcome{State: broker.Confirmed}, false
}

// extend moves the end of a lease to d from now, or by the subscription's lease.
func (b *Broker) extend(g *grant, d time.Duration, now int64) broker.Outcome {
	it := g.item
	at := later(now, it.sub.lease)
	if d > 0 {
		at = later(now, int64(d))
	}
	g.at = at
	if !b.broken.extend && it.state == inFlight {
		it.sub.runLease(it, at, now)
	}
	return broker.Outcome{State: broker.Confirmed, Lease: time.Unix(0, at)}
}

// struckSettle is Settle under a fault.
func (r *receiver) struckSettle(ctx context.Context, i *Injection, ops []driver.Op) {
	link := r.c.connected()
	var why error
	switch i.fault.Kind {
	case LoseRequest:
		why = silence(ctx, link, r.done)
	case LoseResponse:
		i.apply(r.settle(ops))
		why = silence(ctx, link, r.done)
		if r.c.b.broken.lostSettleUnknown {
			for n := range ops {
				ops[n].Settlement.Outcome = broker.Outcome{State: broker.LeaseLost,
					Err: broker.Errorf(broker.ErrLeaseLost, why, "%s", describe(ops[n].Settlement))}
			}
			return
		}
	case Delay:
		sent, outcomes := onTheWay(ops)
		answered := i.later(link, func() { i.apply(r.settle(sent)) })
		if why = silenceOr(ctx, link, r.done, answered); why == nil {
			for n := range ops {
				ops[n].Settlement.Outcome, ops[n].Untouched = outcomes[n].Outcome, sent[n].Untouched
			}
			return
		}
	case Cut:
		r.c.cutNow()
		why = errCut
	case Error:
		for n := range ops {
			refuseSettle(&ops[n], i.answer("%s", describe(ops[n].Settlement)))
		}
		return
	}
	for n := range ops {
		ops[n].Untouched = false
		ops[n].Settlement.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "%s", describe(ops[n].Settlement))}
	}
}

// refuseSettle is the outcome of an op that the broker answers with an error.
func refuseSettle(op *driver.Op, err error) {
	op.Settlement.Outcome = broker.Outcome{Err: err}
	switch {
	case errors.Is(err, broker.ErrLeaseLost):
		op.Settlement.Outcome.State = broker.LeaseLost
	case !errors.Is(err, broker.ErrUnknownOutcome):
		op.Untouched = true
	}
}

// onTheWay copies ops for a request that may outlive its caller.
func onTheWay(ops []driver.Op) (sent []driver.Op, settlements []broker.Settlement) {
	sent, settlements = slices.Clone(ops), make([]broker.Settlement, len(ops))
	deliveries := make([]broker.Delivery, len(ops))
	for i := range ops {
		settlements[i] = *ops[i].Settlement
		deliveries[i].ID = ops[i].Settlement.Delivery.ID
		settlements[i].Delivery = &deliveries[i]
		sent[i].Settlement = &settlements[i]
	}
	return sent, settlements
}
