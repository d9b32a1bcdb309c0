package broker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// asks is how often a settle without an answer is sent in all.
const asks = 10

// askPause is the pause before a settle without an answer is asked again.
var askPause = Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}

// pendingKept bounds, in multiples of MaxInFlight, how many settles that wait
// for a later commit are asked after. The oldest are dropped beyond that: their
// answer is good, it merely isn't final.
const pendingKept = 16

// settler is the one goroutine that settles. It takes all that has finished
// since its last call.
type settler struct {
	*consumer
	waits   []*task // finished, but their settle is due later
	batch   []*task
	calls   []Settlement
	pending []pending
	asked   []pending
	reports []error
}

// pending is a settle whose answer was Pending. It holds no more of the
// delivery than its handle, for bodies may be large.
type pending struct {
	d      *Delivery
	action Action
}

func (c *consumer) settleAll() {
	s := &settler{consumer: c}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, over := s.take()
		if len(s.batch) > 0 {
			s.settle()
			continue
		}
		if over {
			s.askPending()
			return
		}
		var alarm <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			alarm = timer.C
		}
		select {
		case <-c.wakeSettle:
		case <-alarm:
		}
	}
}

// take moves to the batch what is to be settled now. Otherwise it says when
// something will be, if that is known, and whether it is all over.
func (s *settler) take() (next time.Time, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, s.finished...)
	clear(s.finished)
	s.finished = s.finished[:0]
	now := time.Now()
	keep := s.waits[:0]
	for _, t := range s.waits {
		early := t.due.After(now)
		if t.stage == held || t.stage == resting {
			early = early && !s.draining && !t.lost
		}
		if t.stage == resting && !early {
			if t.due = (time.Time{}); !s.draining {
				t.stage = waiting
				s.ready.push(t)
				s.work.Signal()
				continue
			}
			t.stage, t.action, t.delay = ended, Nack, 0
		}
		switch {
		case t.extending:
			keep = append(keep, t) // the heart will wake the settler
		case early:
			keep = append(keep, t)
			if next.IsZero() || t.due.Before(next) {
				next = t.due
			}
		default:
			t.stage = settles
			s.batch = append(s.batch, t)
		}
	}
	clear(s.waits[len(keep):])
	s.waits = keep
	return next, s.over
}

// settle settles the batch, and asks after as many pending ones.
func (s *settler) settle() {
	s.calls = s.calls[:0]
	for _, t := range s.batch {
		s.calls = append(s.calls, Settlement{Delivery: t.d, Action: t.action, Delay: t.delay, Reason: t.reason})
	}
	s.send(min(len(s.pending), len(s.batch)+8))
	s.mu.Lock()
	for i, t := range s.batch {
		s.conclude(t, &s.calls[i].Outcome)
	}
	s.mu.Unlock()
	s.say()
	clear(s.batch)
	s.batch = s.batch[:0]
	clear(s.calls)
}

// send settles the calls, with the n oldest pending ones behind them.
func (s *settler) send(n int) {
	first := len(s.calls)
	for _, p := range s.pending[:n] {
		s.calls = append(s.calls, Settlement{Delivery: p.d, Action: p.action})
	}
	s.asked = append(s.asked[:0], s.pending[:n]...)
	rest := copy(s.pending, s.pending[n:])
	clear(s.pending[rest:])
	s.pending = s.pending[:rest]

	ctx, cancel := context.WithTimeout(s.settling, s.o.SettleTimeout)
	err := s.r.Settle(ctx, s.calls)
	cancel()
	for i := range s.calls {
		o := &s.calls[i].Outcome
		if o.State == Unknown && o.Err == nil {
			o.Err = Errorf(ErrUnknownOutcome, err, "%s %q", s.calls[i].Action, s.calls[i].Delivery.ID)
		}
	}
	for i, p := range s.asked {
		switch o := &s.calls[first+i].Outcome; {
		case o.Err == nil && o.State == Pending:
			s.pending = append(s.pending, p)
		case o.Err != nil && errors.Is(o.Err, ErrUnknownOutcome) && !errors.Is(o.Err, ErrLeaseLost):
			s.pending = append(s.pending, p)
		case o.Err != nil:
			s.reports = append(s.reports, fmt.Errorf("consume: pending: %w", o.Err))
		}
	}
	clear(s.asked)
}

// conclude takes an answer into its task; mu is held.
func (s *settler) conclude(t *task, o *Outcome) {
	switch {
	case o.Err == nil && o.State == Pending:
		s.pend(t)
		s.release(t)
	case o.Err == nil:
		s.release(t)
	case o.State == LeaseLost, errors.Is(o.Err, ErrLeaseLost), errors.Is(o.Err, ErrConflict):
		s.reports = append(s.reports, fmt.Errorf("consume: %w", o.Err))
		s.release(t)
	case errors.Is(o.Err, ErrUnsupported), t.action == DeadLetter && final(o.Err):
		s.instead(t, o.Err)
	case final(o.Err):
		s.reports = append(s.reports, fmt.Errorf("consume: %w", o.Err))
		s.release(t)
	case t.tries+1 < asks:
		t.tries++
		t.due = time.Now().Add(askPause.pause(t.tries, s.o.Rand))
		t.stage = ended
		s.waits = append(s.waits, t)
	case t.action == DeadLetter:
		s.instead(t, o.Err)
	default:
		s.reports = append(s.reports, fmt.Errorf("consume: asked %d times: %w", asks, o.Err))
		s.release(t)
	}
}

// instead finds another way for what the broker can't do, without a hot loop
// and never by an ack.
func (s *settler) instead(t *task, err error) {
	switch {
	case t.action == DeadLetter:
		s.reports = append(s.reports, fmt.Errorf("consume: given back, for it can't be dead-lettered: %w", err))
		t.action, t.delay, t.reason = Nack, s.o.Backoff.Max, ""
		t.stage, t.due = ended, time.Time{}
	case t.action == Nack && t.delay > 0:
		// The delay passes here, under the lease, which the heart extends.
		t.due = time.Now().Add(t.delay)
		t.delay = 0
		t.stage = held
		wake(s.wakeHeart)
	default:
		s.reports = append(s.reports, fmt.Errorf("consume: %w", err))
		s.release(t)
		return
	}
	t.tries = 0
	s.waits = append(s.waits, t)
}

// pend keeps t's handle to ask again.
func (s *settler) pend(t *task) {
	if n := pendingKept * s.o.MaxInFlight; len(s.pending) >= n {
		rest := copy(s.pending, s.pending[len(s.pending)-n+1:])
		clear(s.pending[rest:])
		s.pending = s.pending[:rest]
	}
	d := &Delivery{Handle: t.d.Handle, Position: t.d.Position}
	d.ID = t.d.ID
	s.pending = append(s.pending, pending{d, t.action})
}

// askPending asks after all that is pending as Consume ends, as long as that
// brings answers.
func (s *settler) askPending() {
	for n := 1; len(s.pending) > 0 && s.settling.Err() == nil; n++ {
		before := len(s.pending)
		s.calls = s.calls[:0]
		s.send(before)
		s.say()
		if len(s.pending) == before {
			break
		}
	}
	if n := len(s.pending); n > 0 {
		s.o.ErrorHook(Errorf(ErrUnknownOutcome, nil, "consume ends: not committed behind earlier messages: %s, from %q on; what wasn't may come again",
			amount(n, "settle"), s.pending[0].d.ID))
	}
}

// say tells the hook, without a lock.
func (s *settler) say() {
	for _, err := range s.reports {
		s.report(err)
	}
	clear(s.reports)
	s.reports = s.reports[:0]
}

// ackFirst settles ds before they are handled, for AtMostOnce, and returns
// those that may be.
func (c *consumer) ackFirst(ds []Delivery) []Delivery {
	ctx, cancel := context.WithTimeout(c.settling, c.o.SettleTimeout)
	defer cancel()
	calls := make([]Settlement, len(ds))
	place := make([]int, len(ds))
	good := make([]bool, len(ds))
	for i := range ds {
		calls[i], place[i] = Settlement{Delivery: &ds[i]}, i
	}
	for n := 1; ; n++ {
		err := c.r.Settle(ctx, calls)
		open := 0
		var last error
		for i := range calls {
			o := &calls[i].Outcome
			switch {
			case o.Err == nil && (o.State == Confirmed || o.State == Sent):
				good[place[i]] = true
			case o.Err != nil && (o.State == LeaseLost || final(o.Err) || errors.Is(o.Err, ErrLeaseLost)):
				c.report(fmt.Errorf("consume: not handled: %w", o.Err))
			default:
				if last = o.Err; last == nil {
					last = Errorf(ErrUnknownOutcome, err, "Ack %q: %s", calls[i].Delivery.ID, o.State)
				}
				calls[open], place[open] = Settlement{Delivery: calls[i].Delivery}, place[i]
				open++
			}
		}
		calls, place = calls[:open], place[:open]
		if open == 0 {
			break
		}
		if n >= asks || !sleep(ctx, askPause.pause(n, c.o.Rand), nil) {
			c.report(fmt.Errorf("consume: %s not handled, for want of a confirmed ack: %w", amount(open, "message"), last))
			break
		}
	}
	n := 0
	for i := range ds {
		if good[i] {
			if n != i {
				ds[n] = ds[i]
			}
			n++
		}
	}
	return ds[:n]
}
