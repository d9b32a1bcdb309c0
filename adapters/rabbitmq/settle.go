package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Settle sends the settles of all ops: one ack for all that are the oldest
// unsettled ones of their channel, a frame for each other, in one write. The
// protocol has no answer (RMQ-F-09), so what was written is Sent. What is to come
// later, or to go to the dead-letter topic, is copied first, and acked once the
// copy is confirmed.
func (r *receiver) Settle(ctx context.Context, ops []driver.Op) {
	s := settlings.Get().(*settling)
	s.plan(r, ops)
	if len(s.copies) > 0 {
		s.copy(ctx)
	}
	for len(s.steps) > 0 {
		s.write()
	}
	s.clear()
	settlings.Put(s)
}

var settlings = sync.Pool{New: func() any { return new(settling) }}

// settling is one call of Settle. It is used again by later calls.
type settling struct {
	r      *receiver
	ops    []driver.Op
	copies []letter
	flight flight // of the copies
	steps  []step

	// Of one write.
	rest []step
	sent []int
	acks []uint64
}

// step is a frame to be written for an op: an ack, or a reject that requeues.
type step struct {
	op  int
	ack bool
}

// letter is a message on its way to another queue.
type letter struct {
	op       int
	to       place
	reason   string
	delay    time.Duration // 0: a dead letter
	attempts int
}

func (s *settling) clear() {
	clear(s.copies)
	clear(s.flight.marks)
	s.flight.cargo = nil
	s.ops, s.r, s.copies = nil, nil, s.copies[:0]
	s.steps = s.steps[:0]
}

func (s *settling) held(i int) *held { return s.ops[i].Token.Ref.(*held) }

// plan sorts the ops by what has to be done.
func (s *settling) plan(r *receiver, ops []driver.Op) {
	s.r, s.ops = r, ops
	for i := range ops {
		op := &ops[i]
		x, what := s.held(i), op.Settlement
		if op.Again {
			s.ask(i, x)
			continue
		}
		switch {
		case what.Action == broker.Extend:
			op.Untouched = true
			what.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnsupported, nil,
				"Extend %q on %s: a consumer timeout can't be moved", what.Delivery.ID, r.queue)}
		case what.Action == broker.DeadLetter:
			s.deadLetter(i, x, what.Reason)
		case what.Action == broker.Nack && r.wish.MaxDeliveries > 0 && attemptOf(&x.d).Number >= r.wish.MaxDeliveries:
			s.deadLetter(i, x, fmt.Sprintf("nacked at the last of %d deliveries", r.wish.MaxDeliveries))
		case what.Action == broker.Nack && what.Delay > 0 && r.wish.Ordered:
			s.later(i, x)
		case what.Action == broker.Nack && what.Delay > 0:
			s.copies = append(s.copies, letter{op: i, delay: roundDelay(what.Delay), attempts: attemptOf(&x.d).Number})
		default:
			s.steps = append(s.steps, step{i, what.Action == broker.Ack})
		}
	}
}

// ask answers for an op that was sent before: one whose write failed, or a nack
// that waits here.
func (s *settling) ask(i int, x *held) {
	what := s.ops[i].Settlement
	x.ch.mu.Lock()
	done := x.ch.tags.settled(x.d.DeliveryTag)
	_, waits := x.ch.timers[x]
	x.ch.mu.Unlock()
	switch {
	case waits:
		what.Outcome.State = broker.Pending
	case done && x.ch.alive():
		what.Outcome.State = broker.Sent
	case what.Action == broker.Nack:
		what.Outcome.State = broker.Sent // with its channel it went back
	default:
		what.Outcome.Err = broker.Errorf(broker.ErrUnknownOutcome, errSessionOver, "%s %q on %s", what.Action, what.Delivery.ID, s.r.queue)
	}
}

// later nacks after the delay, from here: order holds only if the message stays
// in hand meanwhile, and blocks those behind it.
func (s *settling) later(i int, x *held) {
	what, c := s.ops[i].Settlement, x.ch
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.alive() {
		what.Outcome = s.r.gone(what)
		return
	}
	if c.timers == nil {
		c.timers = map[*held]*time.Timer{}
	}
	c.timers[x] = time.AfterFunc(what.Delay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, waits := c.timers[x]; !waits {
			return
		}
		delete(c.timers, x)
		if c.alive() && c.tags.mark(x.d.DeliveryTag) {
			_ = c.ch.Reject(x.d.DeliveryTag, true) // an error means that it went back with the channel
		}
	})
	what.Outcome.State = broker.Pending
}

func (s *settling) deadLetter(i int, x *held, reason string) {
	op := &s.ops[i]
	if s.r.wish.DeadLetter == "" {
		op.Untouched = true
		op.Settlement.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnsupported, nil,
			"%s %q on %s: Ensure named no dead-letter topic on this connection", op.Settlement.Action, op.Settlement.Delivery.ID, s.r.queue)}
		return
	}
	to, _ := placeOf(s.r.wish.DeadLetter) // Ensure has read it
	s.copies = append(s.copies, letter{op: i, to: to, reason: reason, attempts: attemptOf(&x.d).Number})
}

// fill implements cargo.
func (s *settling) fill(i int, p *amqp.Publishing) (string, string, error) {
	l := &s.copies[i]
	copyOf(&s.held(l.op).d, p)
	if l.delay > 0 {
		p.Headers[headerAttempts] = strconv.Itoa(l.attempts)
		return l.to.exchange, l.to.key, nil
	}
	delete(p.Headers, headerAttempts)
	p.Headers[driver.HeaderReason] = short(l.reason)
	p.Headers[driver.HeaderSource] = s.r.queue
	p.Headers[driver.HeaderAttempts] = strconv.Itoa(l.attempts)
	return l.to.exchange, l.to.key, nil
}

func (s *settling) field(i int) string { return s.held(s.copies[i].op).d.MessageId }
func (s *settling) keyed(int) bool     { return false } // what is given back has lost its place anyway
func (s *settling) size(i int) int     { return len(s.held(s.copies[i].op).d.Body) }

// maxReason bounds the reason of a dead letter in bytes.
const maxReason = 1024

func short(reason string) string {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	if !utf8.ValidString(reason) {
		reason = strings.ToValidUTF8(reason, "?")
	}
	return reason
}

// copy publishes the copies and leaves the acks of those that are stored to
// write. A crash between the two makes a second copy: never a loss.
func (s *settling) copy(ctx context.Context) {
	var bad error
	for i := range s.copies {
		l := &s.copies[i]
		if l.delay == 0 || bad != nil {
			continue
		}
		var name string
		if name, bad = s.r.c.ensureRetry(ctx, s.r.queue, l.delay); bad == nil {
			l.to = place{key: name, single: true}
		}
	}
	if bad == nil {
		s.flight.reset(s, len(s.copies))
		s.r.c.copies.run(ctx, &s.flight, true)
	}
	for i := range s.copies {
		l := &s.copies[i]
		op := &s.ops[l.op]
		if bad == nil && s.flight.fates[i] == stored {
			s.steps = append(s.steps, step{l.op, true})
			continue
		}
		kind, cause := kindOf(bad), bad
		if bad == nil {
			kind, cause = s.why(i)
			if l.delay > 0 && s.flight.fates[i] == returned {
				s.r.c.forgetRetry(l.to.key) // somebody deleted it
			}
		}
		op.Untouched = true
		op.Settlement.Outcome = broker.Outcome{Err: broker.Errorf(kind, cause, "%s %q on %s: its copy isn't there, and it stays",
			op.Settlement.Action, op.Settlement.Delivery.ID, s.r.queue)}
	}
}

// why is why a copy isn't known to be stored.
func (s *settling) why(i int) (kind, cause error) {
	switch f := &s.flight; f.fates[i] {
	case returned:
		return broker.ErrUnroutable, errNoQueue
	case nacked:
		return broker.ErrBusy, errNacked
	case unsent:
		return kindOf(f.stop), f.stop
	default:
		return broker.ErrUnknownOutcome, errors.Join(f.gave, f.stop)
	}
}

// write writes the settles of the first step's channel: usually all of them.
func (s *settling) write() {
	c := s.held(s.steps[0].op).ch
	s.rest, s.acks, s.sent = s.rest[:0], s.acks[:0], s.sent[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	alive := c.alive()
	c.s.wire.cork()
	var err error
	for _, st := range s.steps {
		op := &s.ops[st.op]
		switch {
		case s.held(st.op).ch != c:
			s.rest = append(s.rest, st)
		case !alive:
			op.Settlement.Outcome = s.r.gone(op.Settlement)
		case !c.tags.mark(op.Token.Tag):
			// With the fence off: once more would close the channel (RMQ-F-10).
			op.Settlement.Outcome.State = broker.Sent
		case st.ack:
			s.sent = append(s.sent, st.op)
			s.acks = append(s.acks, op.Token.Tag)
		default:
			s.sent = append(s.sent, st.op)
			if err == nil {
				// A reject, for from 4.3 on a nack isn't counted (RMQ-F-15).
				err = c.ch.Reject(op.Token.Tag, true)
			}
		}
	}
	if err == nil {
		err = c.ack(s.acks)
	}
	if e := c.s.wire.uncork(); err == nil {
		err = e
	}
	for _, i := range s.sent {
		what := s.ops[i].Settlement
		switch {
		case err == nil:
			what.Outcome.State = broker.Sent
		case lost(err):
			what.Outcome = s.r.gone(what)
		default:
			what.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "%s %q on %s", what.Action, what.Delivery.ID, s.r.queue)}
		}
	}
	s.steps, s.rest = s.rest, s.steps
}

// ack writes the acks of tags, which are marked: one for all of them up to which
// nothing is unsettled, one for each other. The caller holds c.mu, under which
// every other settle was written.
func (c *channel) ack(acks []uint64) error {
	var top uint64
	n := 0
	for _, tag := range acks {
		if tag <= c.tags.low {
			top = max(top, tag)
			n++
		}
	}
	if n > 0 {
		if err := c.ch.Ack(top, n > 1); err != nil {
			return err
		}
	}
	for _, tag := range acks {
		if tag > c.tags.low {
			if err := c.ch.Ack(tag, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// gone is the outcome of a settle whose channel has ended: the broker has given
// the message back.
func (r *receiver) gone(what *broker.Settlement) broker.Outcome {
	return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, errChannelOver, "%s %q on %s", what.Action, what.Delivery.ID, r.queue)}
}
