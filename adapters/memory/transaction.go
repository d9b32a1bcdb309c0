package memory

import (
	"context"
	"fmt"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// transaction keeps what is published and settled until the commit does all of it in
// one step. The broker's lock guards it.
type transaction struct {
	t        *transactor
	number   uint64
	link     *link
	out      []output
	in       []input
	prepared bool
}

// input is a settle that waits for the commit.
type input struct {
	grant  *grant
	action broker.Action
	reason string
}

// Settle is driver.Transaction's.
func (x *transaction) Settle(_ context.Context, _ driver.Receiver, ops []driver.Op) {
	b := x.t.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range ops {
		s, g := ops[i].Settlement, ops[i].Token.Ref.(*grant)
		switch {
		case b.closed:
			s.Outcome.Err = broker.Errorf(broker.ErrClosed, nil, "%s", describe(s))
		case g.item.grant != g || g.settled:
			s.Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, nil, "%s: its lease has ended", describe(s))}
		case s.Action == broker.DeadLetter && b.topics[g.item.sub.deadLetter] == nil:
			s.Outcome.Err = broker.Errorf(broker.ErrUnsupported, nil, "%s: subscription %s has no dead-letter topic", describe(s), g.item.sub.name)
		default:
			g.joined = true
			x.in = append(x.in, input{g, s.Action, s.Reason})
			s.Outcome.State = broker.Pending
		}
	}
}

// Prepare is driver.Transaction's.
func (x *transaction) Prepare(context.Context) ([]byte, error) {
	b := x.t.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := x.dead(); err != nil {
		return nil, err
	}
	x.prepared = true
	b.holders[x.t.id].prepared[x.number] = x
	return x.token(), nil
}

// dead is why the transaction can't be committed, nil if it can.
func (x *transaction) dead() error {
	c := x.t.c
	switch {
	case c.b.closed:
		return broker.Errorf(broker.ErrClosed, nil, "transaction of %s", x.t.id)
	case c.b.holders[x.t.id].epoch != x.t.epoch:
		return broker.Errorf(broker.ErrFenced, nil, "transaction of %s: somebody else opened it", x.t.id)
	case c.link != x.link && !x.prepared:
		return broker.Errorf(broker.ErrAborted, errCut, "transaction of %s", x.t.id)
	}
	return nil
}

// Commit is driver.Transaction's.
func (x *transaction) Commit(ctx context.Context) broker.Outcome {
	c, id := x.t.c, x.t.id
	i := c.b.faults.strike(Commit, request, id, "")
	if i == nil {
		return x.commit("commit on " + id)
	}
	link := c.connected()
	var why error
	switch i.fault.Kind {
	case LoseRequest:
		why = silence(ctx, link, x.t.done)
	case LoseResponse:
		i.apply(x.commit("commit on "+id).State == broker.Confirmed)
		why = silence(ctx, link, x.t.done)
	case Delay:
		answers := make(chan broker.Outcome, 1)
		answered := i.later(link, func() {
			o := x.commit("commit on " + id)
			i.apply(o.State == broker.Confirmed)
			answers <- o
		})
		if why = silenceOr(ctx, link, x.t.done, answered); why == nil {
			return <-answers
		}
	case Cut:
		c.cutNow()
		why = errCut
	case Error:
		return broker.Outcome{Err: i.answer("commit on %s", id)}
	}
	return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "commit on %s", id)}
}

// commit carries out a request that has arrived.
func (x *transaction) commit(what string) broker.Outcome {
	b := x.t.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return broker.Outcome{Err: broker.Errorf(broker.ErrClosed, nil, "%s", what)}
	}
	now := b.begin()
	defer b.arm(now)
	return x.apply(what, now)
}

// apply does all of it, or undoes it.
func (x *transaction) apply(what string, now int64) broker.Outcome {
	b := x.t.c.b
	h := b.holders[x.t.id]
	if committed, known := h.ended[x.number]; known {
		if committed {
			return broker.Outcome{State: broker.Confirmed}
		}
		err := x.dead()
		if err == nil {
			err = broker.ErrAborted
		}
		return broker.Outcome{State: broker.LeaseLost, Err: fmt.Errorf("%s: %w", what, err)}
	}
	if err := x.obstacle(); err != nil {
		x.undo(now)
		return broker.Outcome{State: broker.LeaseLost, Err: fmt.Errorf("%s: %w", what, err)}
	}
	for i := range x.out {
		var receipt [1]broker.Receipt
		b.topics[x.out[i].topic].append([]broker.Message{x.out[i].msg}, receipt[:], "", now, true)
	}
	for _, in := range x.in {
		it := in.grant.item
		if in.action == broker.DeadLetter {
			_ = it.sub.bury(it, in.reason, now) // the topic is there: obstacle looked
		}
		it.sub.finish(it)
		in.grant.settled, in.grant.action = true, in.action
	}
	h.end(x.number, true)
	x.forget()
	return broker.Outcome{State: broker.Confirmed}
}

// obstacle is why the commit can't take effect, nil if it can.
func (x *transaction) obstacle() error {
	if err := x.dead(); err != nil && !x.prepared {
		return err
	}
	b := x.t.c.b
	for i := range x.out {
		if b.topics[x.out[i].topic] == nil {
			return broker.Errorf(broker.ErrAborted, broker.ErrNotFound, "topic %s", x.out[i].topic)
		}
	}
	for _, in := range x.in {
		g := in.grant
		if g.item.grant != g || g.settled {
			return broker.Errorf(broker.ErrLeaseLost, nil, "a lease on %s has ended", g.item.sub.name)
		}
		if in.action == broker.DeadLetter && b.topics[g.item.sub.deadLetter] == nil {
			return broker.Errorf(broker.ErrAborted, broker.ErrNotFound, "dead-letter topic %s", g.item.sub.deadLetter)
		}
	}
	return nil
}

// undo gives back what was settled, in its order.
func (x *transaction) undo(now int64) {
	x.t.c.b.holders[x.t.id].end(x.number, false)
	for _, in := range x.in {
		g := in.grant
		g.joined = false
		if g.item.grant == g && !g.settled {
			g.item.sub.release(g.item, 0, now)
		}
	}
	x.forget()
}

func (x *transaction) forget() {
	x.out, x.in = nil, nil
	if x.t.open == x {
		x.t.open = nil
	}
}

// Resolve is driver.Transaction's. The broker knows; a request that was lost is made
// up for.
func (x *transaction) Resolve(context.Context) broker.Outcome {
	return x.commit("resolve on " + x.t.id)
}

// Abort is driver.Transaction's.
func (x *transaction) Abort(context.Context) error {
	b := x.t.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return broker.Errorf(broker.ErrClosed, nil, "abort on %s", x.t.id)
	}
	now := b.begin()
	if _, known := b.holders[x.t.id].ended[x.number]; !known {
		x.undo(now)
	}
	b.arm(now)
	return nil
}
