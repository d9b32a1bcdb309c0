package driver

import (
	"context"
	"slices"

	"github.com/onceline/onceline/broker"
)

// Settle is broker.Transaction's. The fence is the receivers' own: a handle that may
// not speak for its message any more is refused here as it is there.
func (x *transaction) Settle(ctx context.Context, s []broker.Settlement) error {
	if len(s) == 0 {
		return nil
	}
	if !x.of.gate.enter() {
		return x.refuse(s, broker.Errorf(broker.ErrClosed, nil, "settle in transaction of %s", x.of.id))
	}
	defer x.of.gate.leave()
	x.grow.RLock()
	defer x.grow.RUnlock()
	if err := x.growing("settle"); err != nil {
		return x.refuse(s, err)
	}
	if ctx.Err() != nil {
		return x.refuse(s, broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "settle in transaction of %s", x.of.id))
	}
	for at := 0; at < len(s); {
		at = x.settleSome(ctx, s, at)
	}
	for i := range s {
		if s[i].Outcome.Err != nil {
			return s[i].Outcome.Err
		}
	}
	return nil
}

func (x *transaction) refuse(s []broker.Settlement, err error) error {
	for i := range s {
		s[i].Outcome = broker.Outcome{Err: err}
	}
	return err
}

// settleSome settles those from index at that are of one receiver, as far as they
// stand together, and returns where it stopped.
func (x *transaction) settleSome(ctx context.Context, s []broker.Settlement, at int) int {
	pooled := ops.Get().(*[]Op)
	todo := (*pooled)[:0]
	var of *receiver
	now := x.of.conn.now().UnixNano()
	for ; at < len(s); at++ {
		l, err := x.leaseOf(&s[at])
		if err != nil {
			s[at].Outcome = broker.Outcome{Err: err}
			continue
		}
		if of == nil {
			of = l.receiver
		} else if of != l.receiver {
			break
		}
		if x.has(l, &s[at]) {
			continue
		}
		if pass, _ := l.admit(&s[at], now, true); pass {
			s[at].Outcome = broker.Outcome{}
			todo = append(todo, Op{Settlement: &s[at], Token: &l.token})
		}
	}
	if len(todo) > 0 {
		x.pass(ctx, of, todo)
	}
	clear(todo)
	*pooled = todo[:0]
	ops.Put(pooled)
	return at
}

// pass brings ops to the adapter and remembers the handles that are in the
// transaction then.
func (x *transaction) pass(ctx context.Context, of *receiver, todo []Op) {
	open := of.gate.enter()
	if open {
		x.driver.Settle(ctx, of.driver, todo)
		of.gate.leave()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range todo {
		op := &todo[i]
		l, _ := leaseBehind(op.Settlement.Delivery)
		if !open {
			op.Settlement.Outcome = lost(op.Settlement, "its receiver is closed")
		} else if op.Settlement.Outcome.State != broker.Pending && op.Settlement.Outcome.State != broker.LeaseLost {
			op.Untouched = true // nothing of it is in the transaction
		}
		l.conclude(op, true)
		if op.Settlement.Outcome.State == broker.Pending {
			x.leases = append(x.leases, l)
		}
	}
}

// has answers for a handle that is settled already: in this transaction, which is the
// same once more, or elsewhere.
func (x *transaction) has(l *lease, s *broker.Settlement) bool {
	was := l.status()
	if was.phase != settled {
		return false
	}
	switch {
	case was.action == s.Action && was.known == broker.LeaseLost:
		s.Outcome = lost(s, "as answered before")
	case was.action == s.Action && was.known == broker.Pending && x.holds(l):
		s.Outcome = broker.Outcome{State: broker.Pending}
	default:
		s.Outcome = broker.Outcome{State: was.known, Err: broker.Errorf(broker.ErrConflict, nil,
			"%s %q in transaction of %s: settled by %s before", s.Action, s.Delivery.ID, x.of.id, was.action)}
	}
	return true
}

func (x *transaction) holds(l *lease) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.leases, l)
}

func (x *transaction) leaseOf(s *broker.Settlement) (*lease, error) {
	if s.Delivery == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle in transaction of %s: no delivery", x.of.id)
	}
	l, ok := leaseBehind(s.Delivery)
	if !ok || own(l.receiver.conn.driver) != own(x.of.conn.driver) {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle %q in transaction of %s: the delivery comes from another connection", s.Delivery.ID, x.of.id)
	}
	switch {
	case s.Action > broker.DeadLetter:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle %q in transaction of %s: %s", s.Delivery.ID, x.of.id, s.Action)
	case s.Action != broker.Ack && s.Action != broker.DeadLetter:
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "%s %q in transaction of %s: that is its receiver's", s.Action, s.Delivery.ID, x.of.id)
	case !x.of.driver.Scope().Settles:
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "%s %q in transaction of %s: this broker's transactions have no settles", s.Action, s.Delivery.ID, x.of.id)
	}
	return l, nil
}

// leaseBehind finds the handle behind those that wrappers of a receiver put before
// it.
func leaseBehind(d *broker.Delivery) (*lease, bool) {
	if l, ok := d.Handle.(*lease); ok {
		return l, true
	}
	var l *lease
	ok := d.Handle != nil && d.Handle.As(&l)
	return l, ok && l != nil
}
