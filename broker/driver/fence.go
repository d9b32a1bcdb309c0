package driver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// The fence makes handles single-use. Most brokers take a stale ack: NATS and
// share groups settle whatever holds the message now, SQS standard answers 200,
// RabbitMQ numbers its tags anew after a reconnect (NATS-F-16, KAF-F-47,
// SQS-F-21, RMQ-F-11). So whether a handle may still speak for its message is
// decided here, before a frame is sent.

// lease is one handle: its place in the life of a delivery and what the
// adapter needs to settle it. All copies of a delivery share it.
type lease struct {
	state    atomic.Uint32 // a status, packed
	deadline atomic.Int64  // unix nanoseconds; 0: none
	token    Token
	receiver *receiver
}

// status is where a handle stands: held; settling by an action, with the answer
// known before; or settled by it, with the answer.
type status struct {
	phase  uint8
	action broker.Action
	known  broker.State
}

const (
	held uint8 = iota
	settling
	settled
)

func (s status) pack() uint32 {
	return uint32(s.phase)<<16 | uint32(s.action)<<8 | uint32(s.known)
}

func (l *lease) status() status {
	v := l.state.Load()
	return status{uint8(v >> 16), broker.Action(v >> 8), broker.State(v)}
}

func (l *lease) swap(from, to status) bool {
	return l.state.CompareAndSwap(from.pack(), to.pack())
}

// Settle is broker.Handle's.
func (l *lease) Settle(ctx context.Context, s []broker.Settlement) error {
	return l.receiver.Settle(ctx, s)
}

// As is broker.Handle's. A transaction finds the handle itself this way.
func (l *lease) As(target any) bool {
	if self, ok := target.(**lease); ok {
		*self = l
		return true
	}
	return l.receiver.driver.AsDelivery(&l.token, target)
}

func (l *lease) expired(now int64) bool {
	d := l.deadline.Load()
	return d != 0 && now >= d
}

// admit decides what becomes of a settlement: pass is true if it goes to the
// broker, with again set where it was sent before; otherwise the outcome is
// set. An Extend passes without changing the status, for an ack may come while
// a heartbeat is under way.
func (l *lease) admit(s *broker.Settlement, now int64, fenced bool) (pass, again bool) {
	for {
		was := l.status()
		stale := l.expired(now) || l.token.Epoch.Ended()
		begin := status{settling, s.Action, was.known}
		switch {
		case !fenced && s.Action == broker.Extend:
			return true, false
		case !fenced:
			// The vendor's own answer is wanted: a spent handle is sent again.
			if l.swap(was, begin) {
				return true, was.phase != held
			}
			continue
		case was.phase == held && stale:
			s.Outcome = lost(s, "its lease or connection has ended")
			return false, false
		case was.phase == held && s.Action == broker.Extend:
			return true, false
		case was.phase == held:
			if l.swap(was, begin) {
				return true, false
			}
			continue
		case was.action != s.Action:
			s.Outcome = broker.Outcome{State: was.known, Err: broker.Errorf(broker.ErrConflict, nil,
				"%s %q: settled by %s before", s.Action, s.Delivery.ID, was.action)}
			return false, false
		case was.phase == settling:
			s.Outcome = broker.Outcome{Err: broker.Errorf(errUnderWay, broker.ErrUnknownOutcome, "%s %q", s.Action, s.Delivery.ID)}
			return false, false
		case was.known == broker.Unknown && stale:
			// To ask now could settle somebody else's delivery.
			s.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, broker.ErrLeaseLost,
				"%s %q: asked again too late", s.Action, s.Delivery.ID)}
			return false, false
		case was.known == broker.LeaseLost:
			s.Outcome = lost(s, "as answered before")
			return false, false
		case was.known != broker.Unknown && was.known != broker.Pending:
			s.Outcome = broker.Outcome{State: was.known}
			return false, false
		}
		// Unknown is tried again. Pending asks the adapter, which knows what was
		// committed, also of a partition that is gone: its epoch may have ended.
		if l.swap(was, begin) {
			return true, true
		}
	}
}

// errUnderWay is the conflict of two equal settles at the same time.
var errUnderWay = fmt.Errorf("%w: the same settle is under way", broker.ErrConflict)

// conclude takes the adapter's answer into the handle.
func (l *lease) conclude(op *Op, fenced bool) {
	o := &op.Settlement.Outcome
	if o.Err == nil && !o.State.OK() {
		// Nothing that is not a success may look like one.
		kind := broker.ErrUnknownOutcome
		if o.State == broker.LeaseLost {
			kind = broker.ErrLeaseLost
		}
		o.Err = broker.Errorf(kind, nil, "%s %q: no reason given", op.Settlement.Action, op.Settlement.Delivery.ID)
	}
	if op.Settlement.Action == broker.Extend {
		switch {
		case o.State.OK() && !o.Lease.IsZero():
			l.deadline.Store(o.Lease.UnixNano())
		case o.State == broker.LeaseLost:
			l.deadline.Store(longAgo)
		}
		return
	}
	was := l.status()
	switch {
	case op.Untouched && !op.Again:
		l.state.Store(status{}.pack())
	case op.Untouched:
		l.state.Store(status{settled, was.action, was.known}.pack())
	case op.Again && fenced && o.State == broker.LeaseLost && was.known == broker.Unknown:
		// A refusal of one's own second ask may mean that the first was taken
		// (KAF-F-48, SB-F-16, PS-F-18).
		o.State = broker.Unknown
		o.Err = broker.Errorf(broker.ErrUnknownOutcome, o.Err, "%s %q: asked again after a lost answer",
			op.Settlement.Action, op.Settlement.Delivery.ID)
		l.state.Store(status{settled, was.action, broker.Unknown}.pack())
	default:
		l.state.Store(status{settled, was.action, o.State}.pack())
	}
}

const longAgo = 1 // a deadline that has passed; 0 means none

func lost(s *broker.Settlement, why string) broker.Outcome {
	return broker.Outcome{State: broker.LeaseLost,
		Err: broker.Errorf(broker.ErrLeaseLost, nil, "%s %q: %s", s.Action, s.Delivery.ID, why)}
}

// Batch is where an adapter's Receive puts deliveries: one slab for the
// deliveries, one for the handles, both sized by the first Add. The pointers
// that Add returns are good until the next Add.
type Batch struct {
	receiver   *receiver
	max        int
	deliveries []broker.Delivery
	leases     []lease
}

// newBatch makes room at once for a Receive of one, so that it costs a single
// allocation.
func newBatch(r *receiver, max int) *Batch {
	if max > 1 {
		return &Batch{receiver: r, max: max}
	}
	one := &struct {
		Batch
		delivery [1]broker.Delivery
		lease    [1]lease
	}{}
	one.Batch = Batch{receiver: r, max: max, deliveries: one.delivery[:0], leases: one.lease[:0]}
	return &one.Batch
}

// Add makes room for one delivery. The caller fills in the message, Attempt,
// Lease and Position, and the token.
func (b *Batch) Add() (*broker.Delivery, *Token) {
	if b.deliveries == nil {
		b.Grow(min(b.max, 8))
	}
	if n := cap(b.deliveries); len(b.deliveries) == n {
		if n < b.max {
			b.Grow(min(b.max, 2*n))
		} else { // more than was asked for: better handed out than stranded
			b.Grow(2 * n)
		}
	}
	n := len(b.deliveries)
	b.deliveries = b.deliveries[:n+1]
	b.leases = b.leases[:n+1]
	return &b.deliveries[n], &b.leases[n].token
}

// Grow makes room for n deliveries in all, for an adapter that knows how many
// come.
func (b *Batch) Grow(n int) {
	if n <= cap(b.deliveries) {
		return
	}
	deliveries := make([]broker.Delivery, len(b.deliveries), n)
	copy(deliveries, b.deliveries)
	leases := make([]lease, len(b.leases), n)
	for i := range b.leases {
		leases[i].token = b.leases[i].token
	}
	b.deliveries, b.leases = deliveries, leases
}

// Len is how many deliveries were added.
func (b *Batch) Len() int { return len(b.deliveries) }

// At returns the i-th delivery that was added, for what lies between an adapter
// and New to look at or change.
func (b *Batch) At(i int) *broker.Delivery { return &b.deliveries[i] }

// TokenAt returns the token of the i-th delivery, for the same use.
func (b *Batch) TokenAt(i int) *Token { return &b.leases[i].token }

// Keep takes out what was added behind the first n, for what lies between an adapter
// and New to hold back. The adapter has handed it out all the same.
func (b *Batch) Keep(n int) {
	if n < len(b.deliveries) {
		clear(b.deliveries[n:])
		b.deliveries, b.leases = b.deliveries[:n], b.leases[:n]
	}
}

// seal arms the handles and drops what is expired already, for a delivery that
// was born dead only makes trouble: its message is somebody else's by now.
func (b *Batch) seal(now time.Time, fenced bool) []broker.Delivery {
	nano := now.UnixNano()
	keep := 0
	for i := range b.deliveries {
		d, l := &b.deliveries[i], &b.leases[i]
		l.receiver = b.receiver
		if !d.Lease.IsZero() {
			l.deadline.Store(d.Lease.UnixNano())
		}
		if fenced && (l.expired(nano) || l.token.Epoch.Ended()) {
			continue
		}
		if keep != i {
			b.deliveries[keep] = *d
		}
		b.deliveries[keep].Handle = l
		keep++
	}
	clear(b.deliveries[keep:])
	return b.deliveries[:keep]
}

// ops is reused between settles: a batch costs no allocation here.
var ops = sync.Pool{New: func() any { return new([]Op) }}
