package sqs

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// confirm is the outcome of an entry that the service says it carried out.
func (s *settling) confirm(i int) {
	o := &s.ops[i].Settlement.Outcome
	o.State = broker.Confirmed
	if s.ops[i].Settlement.Action == broker.Extend {
		s.held(i).deadline.Store(o.Lease.UnixNano())
	}
}

// entryFailed sets the outcome of an entry that the service failed and reports
// whether it is to be sent again instead.
func (s *settling) entryFailed(ctx context.Context, i int, f *types.BatchResultErrorEntry, try int) (again bool) {
	op, h := &s.ops[i], s.held(i)
	code, message := entryError(f)
	cause := &entryFailure{code, message}
	kind := kindOfCode(code, message)
	switch {
	case handleLost(code, message):
		if try > 1 && !op.Again {
			// The service's own fault came first: it may have taken that one.
			s.unknown(i, errors.Join(broker.ErrLeaseLost, cause))
			return false
		}
		s.lost(i, cause)
	case kind == broker.ErrNotFound: // the queue is gone, and the message with it
		s.lost(i, cause)
	case kind == broker.ErrUnavailable || (!f.SenderFault && kind == broker.ErrRefused):
		if try < settleTries && ctx.Err() == nil {
			return true
		}
		s.unknown(i, cause)
	default:
		s.r.untouched(op, h, kind, cause)
	}
	return false
}

// failed is the outcome of a request that failed as a whole.
func (s *settling) failed(ctx context.Context, b *batch, f failed, err error) {
	if ctx.Err() != nil && !f.answered {
		err = context.Cause(ctx)
	}
	for _, i := range b.place[:b.n] {
		switch {
		case f.answered && (f.kind == broker.ErrNotFound || handleLost(f.code, f.message)):
			s.lost(i, err)
		case f.surely:
			s.r.untouched(&s.ops[i], s.held(i), f.kind, err)
		default:
			s.unknown(i, err)
		}
	}
}

func (s *settling) lost(i int, cause error) {
	t := s.ops[i].Settlement
	t.Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, cause,
		"%s %q on %s", t.Action, t.Delivery.ID, s.r.q.Name)}
}

func (s *settling) unknown(i int, cause error) {
	t := s.ops[i].Settlement
	t.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, cause, "%s %q on %s", t.Action, t.Delivery.ID, s.r.q.Name)}
}

// untouched is the outcome of an op that surely took no effect.
func (r *receiver) untouched(op *driver.Op, h *held, kind, cause error) {
	op.Untouched = true
	if op.Again {
		kind, cause = broker.ErrUnknownOutcome, errors.Join(kind, cause)
	}
	op.Settlement.Outcome = broker.Outcome{Err: broker.Errorf(kind, cause,
		"%s %q on %s: not done", op.Settlement.Action, op.Settlement.Delivery.ID, r.q.Name)}
	if !op.Again && op.Settlement.Action != broker.Extend {
		h.restore()
	}
}

// leaveAll is the outcome of ops of which nothing was sent.
func (r *receiver) leaveAll(ops []driver.Op, kind, cause error) {
	for i := range ops {
		r.untouched(&ops[i], ops[i].Token.Ref.(*held), kind, errors.Join(errNotSent, cause))
	}
}
