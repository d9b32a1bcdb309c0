package nats

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

var (
	ackBody  = []byte("+ACK")
	nakBody  = []byte("-NAK")
	workBody = []byte("+WPI")
)

// groupSize is how many settles share a reply subject. The server keeps a match
// for each subject that it meets, so that a subject for each settle costs it a
// tenth of its time. Answers are counted by group: where one is lost, the whole
// group is Unknown, and to settle it again asks.
const groupSize = 32

// group is the settles that share a reply subject.
type group struct {
	want   int // settles that belong to it; set before the exchange opens
	sent   int // handed to the SDK; of the caller alone
	got    int // answers; written in answer alone while the exchange is open
	nobody int // those of them that say that no consumer listens: surely not taken
}

// settling is one call of Settle. It is used again by later calls.
type settling struct {
	exchange
	r       *receiver
	ops     []driver.Op
	group   []int // by op: its group
	groups  []group
	left    []bool // by op: handed to the SDK
	moving  []int  // ops that go to the dead-letter stream first, each a group of its own
	sent    int
	replies replies
}

var settlings = sync.Pool{New: func() any {
	s := new(settling)
	s.wake = make(chan struct{}, 1)
	s.to = s
	return s
}}

// Settle sends all ops in one go, each with a reply subject, and waits for the
// answers: the server confirms every kind of settle that asks for it. Ops of the
// dead-letter kind publish their copy first, while the others are under way.
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
	l := r.c.link.Load()
	switch {
	case ctx.Err() != nil:
		r.leave(ops, broker.ErrUnavailable, context.Cause(ctx))
		return
	case l == nil:
		r.leave(ops, broker.ErrUnavailable, errLinkDown)
		return
	}
	s := settlings.Get().(*settling)
	s.r, s.ops, s.sent = r, ops, 0
	s.plan()
	r.c.mux.start(&s.exchange)
	err := s.send(l)
	if err == nil && len(s.moving) > 0 {
		err = s.move(ctx, l)
	}
	if err == nil {
		err = r.c.mux.wait(ctx, &s.exchange, s.sent, l.gone, r.abort)
	}
	r.c.mux.finish(&s.exchange)
	s.conclude(ctx, err)
	s.r, s.ops = nil, nil
	settlings.Put(s)
}

// leave is the outcome of ops of which nothing was sent.
func (r *receiver) leave(ops []driver.Op, kind, cause error) {
	for i := range ops {
		ops[i].Untouched = true
		what, why := kind, cause
		if ops[i].Again {
			what, why = broker.ErrUnknownOutcome, errors.Join(kind, cause)
		}
		ops[i].Settlement.Outcome = broker.Outcome{Err: broker.Errorf(what, why, "%s on %s: not sent", ops[i].Settlement.Action, r.name())}
	}
}

// plan puts the ops into groups.
func (s *settling) plan() {
	n := len(s.ops)
	s.group = slices.Grow(s.group[:0], n)[:n]
	s.left = slices.Grow(s.left[:0], n)[:n]
	clear(s.left)
	s.groups, s.moving = s.groups[:0], s.moving[:0]
	limit := uint64(s.r.settings.Load().maxDeliveries)
	open := 0 // settles in the last group
	for i := range s.ops {
		action := s.ops[i].Settlement.Action
		if action == broker.DeadLetter || (action == broker.Nack && limit > 0 && s.held(i).delivered >= limit) {
			s.moving = append(s.moving, i)
			continue
		}
		if open == 0 {
			s.groups = append(s.groups, group{})
		}
		s.group[i] = len(s.groups) - 1
		s.groups[len(s.groups)-1].want++
		open = (open + 1) % groupSize
	}
	for _, i := range s.moving {
		s.group[i] = len(s.groups)
		s.groups = append(s.groups, group{want: 1})
	}
}

func (s *settling) held(i int) *held { return s.ops[i].Token.Ref.(*held) }

// send sends all ops but those that have to be moved first.
func (s *settling) send(l *link) error {
	last, reply, moved := -1, "", 0
	for i := range s.ops {
		if moved < len(s.moving) && s.moving[moved] == i {
			moved++
			continue
		}
		if g := s.group[i]; g != last {
			last, reply = g, s.replies.of(s.r.c.mux.prefix, &s.exchange, g, 1)[0]
		}
		if err := s.one(l, i, reply, settleBody(s.ops[i].Settlement)); err != nil {
			return err
		}
	}
	return nil
}

// one sends the settle of op i. An error ends the batch.
func (s *settling) one(l *link, i int, reply string, body []byte) error {
	if !l.alive() || !s.r.c.sendable() {
		return errLinkLost
	}
	op, h := &s.ops[i], s.held(i)
	if op.Settlement.Action == broker.Extend {
		// Counted from before the send, as the lease itself.
		op.Settlement.Outcome.Lease = time.Now().Add(s.r.settings.Load().lease)
	} else {
		h.spend()
	}
	err := s.r.c.nc.PublishRequest(h.msg.Reply, reply, body)
	if err == nil || !neverSent(err) {
		s.left[i] = true
		s.groups[s.group[i]].sent++
		s.sent++
	}
	return err
}

// settleBody is the server's word for an action.
func settleBody(s *broker.Settlement) []byte {
	switch {
	case s.Action == broker.Nack && s.Delay > 0:
		b := make([]byte, 0, 40)
		b = append(b, `-NAK {"delay": `...)
		b = strconv.AppendInt(b, s.Delay.Nanoseconds(), 10)
		return append(b, '}')
	case s.Action == broker.Nack:
		return nakBody
	case s.Action == broker.Extend:
		return workBody
	}
	return ackBody
}

// answer implements answers: i is a group.
func (s *settling) answer(i int, m *natsgo.Msg) bool {
	if i >= len(s.groups) || s.groups[i].got == s.groups[i].want {
		return false
	}
	s.groups[i].got++
	if noResponders(m) {
		s.groups[i].nobody++
	}
	return true
}

// conclude sets the outcomes. The exchange is finished: no answer comes any
// more.
func (s *settling) conclude(ctx context.Context, why error) {
	r := s.r
	if why == nil {
		why = errNobody // of a group that some consumer took in part, as while its leader changes
	}
	var gone error // what is said of ops that no consumer took
	asked := false
	for i := range s.ops {
		op := &s.ops[i]
		o := &op.Settlement.Outcome
		h, g := s.held(i), &s.groups[s.group[i]]
		switch {
		case !s.left[i]:
			if o.Err == nil {
				r.untouched(op, h, broker.ErrUnavailable, why)
			}
		case g.got == g.sent && g.nobody == 0:
			o.State = broker.Confirmed
			if op.Settlement.Action == broker.Extend {
				h.slab.extend(o.Lease)
			}
		case g.got < g.sent || g.nobody < g.got:
			*o = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "%s %q on %s", op.Settlement.Action, op.Settlement.Delivery.ID, r.name())}
		default:
			// The answer comes from the server at which the client is, so the
			// settle went nowhere: the consumer was deleted (NATS-F-20), or is
			// without a leader for now.
			if !asked {
				gone, asked = r.gone(ctx), true
			}
			if gone == nil {
				r.untouched(op, h, broker.ErrUnavailable, errNobody)
				continue
			}
			*o = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, gone,
				"%s %q on %s", op.Settlement.Action, op.Settlement.Delivery.ID, r.name())}
		}
	}
}

// untouched is the outcome of an op that surely took no effect.
func (r *receiver) untouched(op *driver.Op, h *held, kind, cause error) {
	op.Untouched = true
	if op.Again {
		kind, cause = broker.ErrUnknownOutcome, errors.Join(kind, cause)
	}
	op.Settlement.Outcome = broker.Outcome{Err: broker.Errorf(kind, cause,
		"%s %q on %s: not done", op.Settlement.Action, op.Settlement.Delivery.ID, r.name())}
	if !op.Again && op.Settlement.Action != broker.Extend {
		h.restore()
	}
}

// gone returns the error if the consumer is known not to exist.
func (r *receiver) gone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ctx, done := r.c.while(ctx)
	defer done()
	if _, err := r.c.js.Consumer(ctx, r.stream, r.consumer); err != nil {
		if wrapped := failure(ctx, err, "subscription %s", r.name()); errors.Is(wrapped, broker.ErrNotFound) {
			return wrapped
		}
	}
	return nil
}
