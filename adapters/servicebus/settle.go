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

// settling is one call of Settle: all that its workers share, in one allocation.
type settling struct {
	r       *receiver
	cancel  context.CancelFunc
	at      int // its place in r.calls
	outer   outer
	ops     []driver.Op
	renewed renewals

	next    atomic.Int64 // op to be taken
	worker  atomic.Int64 // to start
	workers sync.WaitGroup
	first   []attempt // one for each worker
}

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
	s := &settling{r: r, cancel: cancel, at: len(r.calls), outer: outer{soft: ctx, life: r.life}, ops: ops}
	r.calls = append(r.calls, s)
	r.mu.Unlock()
	s.all()
	r.mu.Lock()
	last := len(r.calls) - 1
	r.calls[s.at] = r.calls[last]
	r.calls[s.at].at = s.at
	r.calls[last] = nil
	r.calls = r.calls[:last]
	r.mu.Unlock()
}

// all settles the ops.
func (s *settling) all() {
	defer s.outer.end()
	s.first = make([]attempt, min(len(s.ops), settleWorkers))
	more := len(s.first) - 1
	s.workers.Add(more)
	for range more {
		select {
		case s.r.spare <- s:
		default:
			s.r.hands.Go(func() { s.r.serve(s) })
		}
	}
	s.work()
	s.workers.Wait()
}

// serve is a worker: for s, and then for the Settles to come, for its stack has
// grown to what the SDK needs, and to grow one for each message costs more than to
// keep a few. It ends with the receiver, or where enough others wait.
func (r *receiver) serve(s *settling) {
	for s != nil {
		s.work()
		s.workers.Done()
		if r.waiting.Add(1) < settleWorkers {
			s = <-r.spare
		} else {
			s = nil
		}
		r.waiting.Add(-1)
	}
}

// dismiss ends the workers that wait. r.mu is held.
func (r *receiver) dismiss() {
	for !r.shut { // Close does it otherwise
		select {
		case r.spare <- nil:
		default:
			return
		}
	}
}

// work settles one op after the other. An ack is sent from here: a stack grows within
// the SDK's call, and each frame above that is one more to be copied.
func (s *settling) work() {
	a := &s.first[s.worker.Add(1)-1]
	a.Context, a.outer = s.outer.soft, &s.outer
	as := attempts{soft: s.outer.soft, outer: &s.outer, last: a, clean: true}
	for {
		i := int(s.next.Add(1)) - 1
		if i >= len(s.ops) {
			return
		}
		op := &s.ops[i]
		if op.Settlement.Action != broker.Ack || op.Again || s.outer.soft.Err() != nil {
			s.r.settleOne(s.outer.soft, &as, op, &s.renewed)
			continue
		}
		h := op.Token.Ref.(*held)
		h.spend()
		a := as.next()
		err := h.box.in.CompleteMessage(a, h.msg, nil)
		as.clean = err == nil
		if err == nil {
			op.Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
			continue
		}
		s.r.failed(s.outer.soft, &as, op, h, a, err)
		if op.Untouched {
			h.restore()
		}
	}
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
	if op.Again && h.box.session == nil {
		r.tell(ctx, as, op, h, true)
		return
	}
	m := h.msg
	if op.Again {
		m = bare(h.msg)
	}
	a, err := as.call(func(ctx context.Context) error { return r.send(ctx, h.box.in, m, op) })
	if err != nil {
		r.failed(ctx, as, op, h, a, err)
		return
	}
	if op.Settlement.Action == broker.Nack && h.box.session != nil {
		h.box.gave(h.msg)
	}
	op.Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
}

// failed is what comes after a settle over the link failed.
func (r *receiver) failed(ctx context.Context, as *attempts, op *driver.Op, h *held, a *attempt, err error) {
	switch {
	case kindOf(err) == broker.ErrLeaseLost && a.has(disposing) && a.has(asking):
		// The first was sent and had no answer, the second one says lost, as it
		// does if the first was taken (SB-F-16).
		r.unanswered(op, err)
		return
	case kindOf(err) == broker.ErrLeaseLost:
		r.lost(op, err)
		return
	}
	doubtful := op.Again || a.has(disposing) || a.has(asking)
	switch {
	case ctx.Err() != nil:
		r.conclude(op, doubtful, broker.ErrUnavailable, context.Cause(ctx))
	case h.box.session != nil:
		r.examine(ctx, op, h, doubtful, err)
	default:
		r.tell(ctx, as, op, h, doubtful)
	}
}

// tell settles by the lock token. doubtful says that the settle may have been taken
// before.
func (r *receiver) tell(ctx context.Context, as *attempts, op *driver.Op, h *held, doubtful bool) {
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
