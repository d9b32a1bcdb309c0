package servicebus

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// settleWorkers is how many settles of one call are under way at a time. The SDK
// settles one message a call and waits for its answer, so a batch is as fast as
// its calls overlap; more would only queue for the one link.
const settleWorkers = 16

// maxReason is how long a dead-letter reason or description may be.
const maxReason = 4096

// Settle sends ops by a few workers, each of which takes the next op as it has
// the answer to its last. It waits for no more than SettleTimeout.
func (r *receiver) Settle(ctx context.Context, ops []driver.Op) {
	r.mu.Lock()
	if r.shut {
		r.mu.Unlock()
		for i := range ops {
			r.unanswered(&ops[i], broker.ErrClosed)
		}
		return
	}
	r.settles.Add(1)
	defer r.settles.Done()
	ctx, cancel := context.WithTimeout(ctx, r.c.opts.settleTimeout)
	defer cancel()
	o := &outer{soft: ctx, life: r.life}
	r.calls[o] = cancel
	r.mu.Unlock()
	r.settleAll(o, ops)
	r.mu.Lock()
	delete(r.calls, o)
	r.mu.Unlock()
}

func (r *receiver) settleAll(o *outer, ops []driver.Op) {
	defer o.end()
	var renewed renewals
	if len(ops) == 1 {
		r.settleOne(o.soft, &attempts{soft: o.soft, outer: o}, &ops[0], &renewed)
		return
	}
	var next, worker atomic.Int64
	first := make([]attempt, min(len(ops), settleWorkers)) // one for each worker
	work := func() {
		a := &first[worker.Add(1)-1]
		a.Context, a.outer = o.soft, o
		as := attempts{soft: o.soft, outer: o, last: a, clean: true}
		for {
			i := int(next.Add(1)) - 1
			if i >= len(ops) {
				return
			}
			r.settleOne(o.soft, &as, &ops[i], &renewed)
		}
	}
	var wait sync.WaitGroup
	for range len(first) - 1 {
		wait.Go(work)
	}
	work()
	wait.Wait()
}

func (r *receiver) settleOne(ctx context.Context, as *attempts, op *driver.Op, renewed *renewals) {
	h := op.Token.Ref.(*held)
	s := op.Settlement
	switch {
	case s.Action == broker.Extend:
		r.extend(ctx, as, op, h, renewed)
		return
	case s.Action == broker.Nack && s.Delay > 0:
		r.untouched(op, broker.ErrUnsupported, nil, "a delay: the broker gives a message back at once (SB-F-21)")
		return
	case s.Action == broker.DeadLetter && r.src.dead:
		r.untouched(op, broker.ErrUnsupported, nil, "it is a dead letter already")
		return
	}
	if ctx.Err() != nil {
		r.conclude(op, op.Again, broker.ErrUnavailable, context.Cause(ctx))
		return
	}
	h.spend()
	r.terminal(ctx, as, op, h)
	if op.Untouched {
		h.restore()
	}
}

// terminal acks, nacks or dead-letters one delivery: over the link that brought
// it, and where that is gone, by its lock token over another one (SB-F-15).
func (r *receiver) terminal(ctx context.Context, as *attempts, op *driver.Op, h *held) {
	// Once sent, the SDK answers for the same message object from its own memory,
	// with a success that may have been none. The token alone makes it ask.
	doubtful := op.Again
	if !op.Again || h.box.session != nil {
		m := h.msg
		if op.Again {
			m = bare(h.msg)
		}
		a, err := as.call(func(ctx context.Context) error { return r.send(ctx, h.box.in, m, op) })
		switch {
		case err == nil:
			if op.Settlement.Action == broker.Nack && h.box.session != nil {
				h.box.gave(h.msg)
			}
			op.Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
			return
		case kindOf(err) == broker.ErrLeaseLost && a.has(disposing) && a.has(asking):
			// The first was sent and had no answer, the second one says lost, as it
			// does if the first was taken (SB-F-16).
			r.unanswered(op, err)
			return
		case kindOf(err) == broker.ErrLeaseLost:
			r.lost(op, err)
			return
		}
		doubtful = doubtful || a.has(disposing) || a.has(asking)
		if ctx.Err() != nil {
			r.conclude(op, doubtful, broker.ErrUnavailable, context.Cause(ctx))
			return
		}
		if h.box.session != nil {
			r.examine(ctx, op, h, doubtful, err)
			return
		}
	}
	sent, err := r.byToken(ctx, as, func(ctx context.Context, in *azservicebus.Receiver) error {
		return r.send(ctx, in, bare(h.msg), op)
	})
	switch {
	case err == nil:
		op.Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
	case kindOf(err) == broker.ErrLeaseLost && !doubtful && !sent:
		r.lost(op, err)
	case kindOf(err) == broker.ErrLeaseLost:
		r.unanswered(op, err)
	default:
		r.conclude(op, doubtful || sent, kindOf(err), err)
	}
}

// bare is a message of which only the lock token is known: such one the SDK
// settles over the management link.
func bare(m *azservicebus.ReceivedMessage) *azservicebus.ReceivedMessage {
	return &azservicebus.ReceivedMessage{LockToken: m.LockToken}
}

func (r *receiver) send(ctx context.Context, in puller, m *azservicebus.ReceivedMessage, op *driver.Op) error {
	switch s := op.Settlement; s.Action {
	case broker.Nack:
		return in.AbandonMessage(ctx, m, nil)
	case broker.DeadLetter:
		reason := cut(s.Reason, maxReason)
		description := "dead-lettered by a consumer of " + r.name
		o := &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &description,
			PropertiesToModify: map[string]any{driver.HeaderSource: text(r.name)}}
		if n := s.Delivery.Attempt.Number; n > 0 {
			o.PropertiesToModify[driver.HeaderAttempts] = strconv.Itoa(n)
		}
		return in.DeadLetterMessage(ctx, m, o)
	}
	return in.CompleteMessage(ctx, m, nil)
}

// cut makes s valid text of at most n bytes.
func cut(s string, n int) string {
	if !utf8.ValidString(s) {
		s = text(s)
	}
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s[:n+1])
		if s = s[:n+1-size]; len(s) <= n {
			break
		}
	}
	return s
}

// byToken makes a call with a receiver whose management link works: one that
// takes no messages, made anew where its connection is gone. sent says that a
// call before the last may have taken effect.
func (r *receiver) byToken(ctx context.Context, as *attempts, call func(context.Context, *azservicebus.Receiver) error) (sent bool, err error) {
	for try := range reopenTries {
		if try > 0 && !pause(ctx, reopenWait) {
			break
		}
		in, opened := r.sideways(ctx)
		if opened != nil {
			if err = opened; kindOf(err) != broker.ErrUnavailable {
				return sent, err
			}
			continue
		}
		var a *attempt
		a, err = as.call(func(ctx context.Context) error { return call(ctx, in) })
		if err == nil || kindOf(err) != broker.ErrUnavailable {
			return sent, err
		}
		sent = sent || a.has(asking)
		if ctx.Err() != nil {
			break
		}
		r.mu.Lock()
		if r.aside == in {
			r.aside = nil
			r.discard(in)
		}
		r.mu.Unlock()
	}
	return sent, err
}

// sideways returns the receiver for settling by token, attached.
func (r *receiver) sideways(ctx context.Context) (*azservicebus.Receiver, error) {
	r.mu.Lock()
	in := r.aside
	r.mu.Unlock()
	if in != nil {
		return in, nil
	}
	in, err := r.src.open(r.c.client)
	if err != nil {
		return nil, err
	}
	err = within(ctx, r.life, func(ctx context.Context) error {
		_, err := in.PeekMessages(ctx, 1, nil)
		return err
	})
	if err != nil {
		r.discard(in)
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aside != nil { // another worker was faster
		r.discard(in)
		return r.aside, nil
	}
	r.aside = in
	return in, nil
}

// examine finds out what became of a settle in a session whose answer the SDK
// keeps to itself: it takes the loss of a session for something to be repaired,
// and would take the session back. Whether the session is still held says a
// renewal.
func (r *receiver) examine(ctx context.Context, op *driver.Op, h *held, doubtful bool, why error) {
	err := r.renew(ctx, h.box)
	switch {
	case err == nil || ctx.Err() != nil:
		r.conclude(op, doubtful, broker.ErrUnavailable, why)
	case kindOf(err) == broker.ErrUnavailable && doubtful && !op.Again && lostConnection(err):
		// The connection died with the settle on its way.
		r.unanswered(op, err)
	default:
		r.lost(op, errSessionLost)
	}
}

// renewals are the sessions whose lock one Settle has renewed already.
type renewals struct {
	mu   sync.Mutex
	done []renewal
}

type renewal struct {
	box *inbox
	err error
}

// of renews the session's lock once.
func (rs *renewals) of(b *inbox, renew func() error) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for i := range rs.done {
		if rs.done[i].box == b {
			return rs.done[i].err
		}
	}
	err := renew()
	rs.done = append(rs.done, renewal{b, err})
	return err
}

// extend renews a lock by the entity's own duration: the protocol has no other.
func (r *receiver) extend(ctx context.Context, as *attempts, op *driver.Op, h *held, renewed *renewals) {
	var until time.Time
	var err error
	if b := h.box; b.session != nil {
		if err = renewed.of(b, func() error { return r.renew(ctx, b) }); err == nil {
			until = b.lockEnd()
		} else if b.epoch.Ended() {
			r.lost(op, errSessionLost)
			return
		}
	} else {
		asked := r.c.Now()
		m := bare(h.msg)
		_, err = as.call(func(ctx context.Context) error { return h.box.plain.RenewMessageLock(ctx, m, nil) })
		if err != nil && kindOf(err) == broker.ErrUnavailable && ctx.Err() == nil {
			_, err = r.byToken(ctx, as, func(ctx context.Context, in *azservicebus.Receiver) error {
				return in.RenewMessageLock(ctx, m, nil)
			})
		}
		if err == nil {
			until = deadline(m.LockedUntil, r.lease, asked, r.c.Now())
		}
	}
	switch {
	case err == nil:
		h.slab.extend(until)
		op.Settlement.Outcome = broker.Outcome{State: broker.Confirmed, Lease: until}
	case kindOf(err) == broker.ErrLeaseLost:
		r.lost(op, err)
	default:
		r.unanswered(op, err)
	}
}

// The four ends of a settle that isn't confirmed.

func (r *receiver) lost(op *driver.Op, cause error) {
	op.Settlement.Outcome = broker.Outcome{State: broker.LeaseLost,
		Err: broker.Errorf(broker.ErrLeaseLost, cause, "%s %q on %s", op.Settlement.Action, op.Settlement.Delivery.ID, r.name)}
}

func (r *receiver) unanswered(op *driver.Op, cause error) {
	if cause == nil || cause == errAttemptOver {
		cause = errNoAnswer
	}
	op.Settlement.Outcome = broker.Outcome{
		Err: broker.Errorf(broker.ErrUnknownOutcome, cause, "%s %q on %s", op.Settlement.Action, op.Settlement.Delivery.ID, r.name)}
}

func (r *receiver) untouched(op *driver.Op, kind, cause error, why string) {
	op.Untouched = true
	op.Settlement.Outcome = broker.Outcome{
		Err: broker.Errorf(kind, cause, "%s %q on %s: %s", op.Settlement.Action, op.Settlement.Delivery.ID, r.name, why)}
}

// conclude is the end of a settle that got no answer: unanswered if it may have
// left, untouched if it surely didn't.
func (r *receiver) conclude(op *driver.Op, doubtful bool, kind, cause error) {
	if doubtful {
		r.unanswered(op, cause)
		return
	}
	r.untouched(op, kind, cause, "not sent")
}
