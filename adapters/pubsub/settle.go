package pubsub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	maxAcks     = 1000 // ack IDs of a request (PS-F-15)
	maxAckBytes = 500_000
	maxLease    = 600 * time.Second // PS-F-09

	// answerTime bounds one request. An answer that hasn't come by then is asked
	// for again, for as long as the caller's context and the leases allow.
	answerTime = 15 * time.Second
)

// acking stands for the seconds of an acknowledgement among those of
// ModifyAckDeadline.
const acking = -1

// Settle sends an Acknowledge for all acks, and a ModifyAckDeadline for each
// length of lease among the rest. Dead letters are published first.
func (r *receiver) Settle(ctx context.Context, ops []driver.Op) {
	r.mu.Lock()
	shut := r.shut
	if !shut {
		r.settles.Add(1)
	}
	r.mu.Unlock()
	if shut {
		r.leave(ops, broker.ErrClosed, nil)
		return
	}
	defer r.settles.Done()
	if ctx.Err() != nil {
		r.leave(ops, broker.ErrUnavailable, context.Cause(ctx))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.abort, cancel)
	defer stop()
	r.send(ctx, r.plan(ctx, ops))
}

// leave is the outcome of ops of which nothing was sent.
func (r *receiver) leave(ops []driver.Op, kind, cause error) {
	for i := range ops {
		r.untouched(&ops[i], kind, cause)
	}
}

// untouched is the outcome of an op that surely took no effect.
func (r *receiver) untouched(op *driver.Op, kind, cause error) {
	op.Untouched = true
	if op.Again {
		kind, cause = broker.ErrUnknownOutcome, errors.Join(kind, cause)
	}
	op.Settlement.Outcome = broker.Outcome{Err: broker.Errorf(kind, cause,
		"%s %q on %s: not done", op.Settlement.Action, op.Settlement.Delivery.ID, r.name)}
	if h := heldOf(op); !op.Again && op.Settlement.Action != broker.Extend && h != nil {
		h.restore()
	}
}

func heldOf(op *driver.Op) *held {
	h, _ := op.Token.Ref.(*held)
	return h
}

// exchange is the ops of one request.
type exchange struct {
	seconds int32
	ops     []*driver.Op
}

// plan sorts ops into requests.
func (r *receiver) plan(ctx context.Context, ops []driver.Op) []exchange {
	var plan []exchange
	var dead []*driver.Op
	at := -1
	for i := range ops {
		op := &ops[i]
		seconds, err := r.seconds(op.Settlement)
		switch {
		case err != nil:
			r.untouched(op, broker.ErrUnsupported, err)
			continue
		case r.moves(op):
			dead = append(dead, op)
			continue
		}
		if op.Settlement.Action != broker.Extend {
			heldOf(op).spend()
		}
		if at < 0 || plan[at].seconds != seconds {
			if at = slices.IndexFunc(plan, func(x exchange) bool { return x.seconds == seconds }); at < 0 {
				at = len(plan)
				plan = append(plan, exchange{seconds: seconds, ops: make([]*driver.Op, 0, len(ops)-i)})
			}
		}
		plan[at].ops = append(plan[at].ops, op)
	}
	if len(dead) > 0 {
		if dead = r.copyOps(ctx, dead); len(dead) > 0 {
			plan = append(plan, exchange{seconds: acking, ops: dead})
		}
	}
	return plan
}

// seconds is what an action means to the service: it counts leases in whole
// seconds, so a delay is rounded up.
func (r *receiver) seconds(s *broker.Settlement) (int32, error) {
	switch s.Action {
	case broker.Nack:
		if s.Delay > maxLease {
			return 0, errLongDelay
		}
		return ceil(s.Delay), nil
	case broker.Extend:
		if s.Delay == 0 {
			return ceil(r.lease), nil
		}
		return ceil(min(s.Delay, maxLease)), nil
	}
	return acking, nil
}

var errLongDelay = errors.New("a delay of over 600 s: the service can't hold a message back for longer")

func ceil(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// send carries out the requests, side by side.
func (r *receiver) send(ctx context.Context, plan []exchange) {
	var wait sync.WaitGroup
	for k := range plan {
		x := &plan[k]
		if r.ordered && r.exactlyOnce && x.seconds == acking && len(x.ops) > 1 {
			// Only in order does the service take acks of one key (PS-F-38).
			slices.SortStableFunc(x.ops, func(a, b *driver.Op) int { return int(a.Token.Tag) - int(b.Token.Tag) })
		}
		for from := 0; from < len(x.ops); {
			to := r.cut(x.ops, from)
			part := exchange{x.seconds, x.ops[from:to]}
			if from = to; to == len(x.ops) && k == len(plan)-1 {
				r.ask(ctx, part)
			} else if r.ordered && x.seconds == acking {
				r.ask(ctx, part)
			} else {
				wait.Go(func() { r.ask(ctx, part) })
			}
		}
	}
	wait.Wait()
}

// cut is where a request that begins at from has to end.
func (r *receiver) cut(ops []*driver.Op, from int) int {
	bytes, to := 0, from
	for to < len(ops) && to-from < maxAcks {
		if bytes += len(heldOf(ops[to]).msg.AckId) + 4; bytes > maxAckBytes && to > from {
			break
		}
		to++
	}
	return to
}

// ask sends one request, and again what heals, until all has its answer, ctx
// ends, or the lease does.
func (r *receiver) ask(ctx context.Context, x exchange) {
	todo := x.ops
	maybe := false // an earlier request of this call may have taken effect
	var last error
	for try := 1; ; try++ {
		asked := r.c.Now()
		sent, err := r.call(ctx, x.seconds, todo)
		if err == nil {
			for _, op := range todo {
				r.settled(op, x.seconds, asked)
			}
			return
		}
		last = err
		why := reasons(err)
		switch {
		case why != nil:
			todo = r.judge(todo, x.seconds, asked, why, maybe)
		case refused(err) && !errors.Is(kindOf(err), broker.ErrBusy):
			for _, op := range todo {
				r.refusal(op, err)
			}
			return
		default:
			maybe = maybe || sent && !refused(err)
		}
		now := r.c.Now()
		todo = r.unexpired(todo, now, maybe, last)
		if len(todo) == 0 {
			return
		}
		if ctx.Err() == nil && r.rest(ctx, try) {
			continue
		}
		for _, op := range todo {
			r.unanswered(ctx, op, maybe || why != nil, last)
		}
		return
	}
}

// call is one RPC. sent says whether it may have reached the service.
func (r *receiver) call(ctx context.Context, seconds int32, ops []*driver.Op) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list := make([]string, len(ops))
	for i, op := range ops {
		list[i] = heldOf(op).msg.AckId
	}
	way := newThrough()
	if seconds == acking {
		err = r.c.subs.Acknowledge(ctx, &pb.AcknowledgeRequest{Subscription: r.name, AckIds: list}, way.opts[:]...)
	} else {
		err = r.c.subs.ModifyAckDeadline(ctx, &pb.ModifyAckDeadlineRequest{Subscription: r.name, AckIds: list, AckDeadlineSeconds: seconds}, way.opts[:]...)
	}
	return way.left(), err
}

// settled is the outcome of an op that the service took. What that is worth
// depends on the subscription: without exactly-once delivery it answers the same
// to an ack that has no effect (PS-F-16).
func (r *receiver) settled(op *driver.Op, seconds int32, asked time.Time) {
	o := broker.Outcome{State: broker.Sent}
	if r.exactlyOnce {
		o.State = broker.Confirmed
	}
	if op.Settlement.Action == broker.Extend {
		o.Lease = asked.Add(time.Duration(seconds) * time.Second)
		heldOf(op).deadline.Store(o.Lease.UnixNano())
	}
	op.Settlement.Outcome = o
}

// judge sets the outcomes of an answer that names ack IDs, and returns the ops to
// ask again. Those that it doesn't name were settled (PS-F-36).
func (r *receiver) judge(ops []*driver.Op, seconds int32, asked time.Time, why map[string]string, maybe bool) []*driver.Op {
	var again []*driver.Op
	for _, op := range ops {
		s := op.Settlement
		switch reason := why[heldOf(op).msg.AckId]; {
		case reason == "":
			r.settled(op, seconds, asked)
		case reason == unordered && !maybe:
			r.untouched(op, broker.ErrConflict, errUnordered)
		case len(reason) >= len(transient) && reason[:len(transient)] == transient && reason != unordered:
			again = append(again, op)
		case maybe:
			// The first request may be what made the ack ID invalid (PS-F-18).
			s.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, errors.New(reason),
				"%s %q on %s: asked again after a lost answer", s.Action, s.Delivery.ID, r.name)}
		default:
			s.Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, errors.New(reason),
				"%s %q on %s", s.Action, s.Delivery.ID, r.name)}
		}
	}
	return again
}

// refusal is the outcome of an op whose request was refused as a whole.
func (r *receiver) refusal(op *driver.Op, err error) {
	kind := kindOf(err)
	if kind == broker.ErrNotFound {
		// The subscription is gone, and the delivery with it.
		s := op.Settlement
		s.Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, err, "%s %q on %s", s.Action, s.Delivery.ID, r.name)}
		return
	}
	r.untouched(op, kind, err)
}

// unexpired returns the ops whose leases still run: to settle the others now
// could take a message from under somebody else.
func (r *receiver) unexpired(ops []*driver.Op, now time.Time, maybe bool, last error) []*driver.Op {
	return slices.DeleteFunc(slices.Clip(ops), func(op *driver.Op) bool {
		if !heldOf(op).expired(now) {
			return false
		}
		s := op.Settlement
		if maybe || op.Again {
			s.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, last, "%s %q on %s: no answer within the lease", s.Action, s.Delivery.ID, r.name)}
		} else {
			s.Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, last, "%s %q on %s: not taken within the lease", s.Action, s.Delivery.ID, r.name)}
		}
		return true
	})
}

// rest waits before the next try, and reports whether there may be one.
func (r *receiver) rest(ctx context.Context, try int) bool {
	t := time.NewTimer(backoff(try))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unanswered is the outcome of an op whose answer can't be waited for any longer.
func (r *receiver) unanswered(ctx context.Context, op *driver.Op, maybe bool, last error) {
	cause := errors.Join(context.Cause(ctx), last)
	if !maybe {
		r.untouched(op, kindOf(last), cause)
		return
	}
	s := op.Settlement
	s.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, cause, "%s %q on %s", s.Action, s.Delivery.ID, r.name)}
}
