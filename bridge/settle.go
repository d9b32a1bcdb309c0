package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
)

// settleBatch is how many settles go in one call, and settleTries how often one without
// an answer is asked.
const (
	settleBatch = 1000
	settleTries = 5
)

// settle tells the source what became of messages, many at a time: while one call is
// under way the next grows.
func (r *run) settle() {
	for {
		r.mu.Lock()
		for len(r.acks) == 0 && !r.over {
			r.await(context.Background(), -1)
		}
		n := min(len(r.acks), settleBatch)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		s := append([]broker.Settlement(nil), r.acks[:n]...)
		tasks := append([]*task(nil), r.ackers[:n]...)
		r.acks, r.ackers = append(r.acks[:0], r.acks[n:]...), append(r.ackers[:0], r.ackers[n:]...)
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(r.settling, r.o.SettleTimeout)
		err := r.from.Settle(ctx, s)
		cancel()
		if r.settled(s, tasks, err) && !pause(r.settling, r.o.Backoff.Min) {
			r.mu.Lock()
			r.acks, r.ackers = nil, nil // no time left: they come again
			r.mu.Unlock()
		}
	}
}

// settled judges the outcomes, and reports whether some are to be asked again.
func (r *run) settled(s []broker.Settlement, tasks []*task, err error) (again bool) {
	var lost, open int
	var cause error
	r.mu.Lock()
	for i := range s {
		o, t := &s[i].Outcome, tasks[i]
		switch {
		case o.State.OK() && s[i].Action == broker.Nack:
			r.remove(t)
			continue
		case o.State.OK():
			r.stats.settled.Add(1)
			r.closeOne(t)
			continue
		case o.State == broker.Unknown && t.asked < settleTries && unanswered(o.Err):
			t.asked++
			open++
			r.acks, r.ackers = append(r.acks, broker.Settlement{Delivery: t.d, Action: s[i].Action}), append(r.ackers, t)
		default:
			lost++
			r.stats.lost.Add(1)
			r.remove(t)
		}
		if cause == nil {
			if cause = o.Err; cause == nil {
				cause = err
			}
		}
	}
	r.signal()
	r.mu.Unlock()
	if cause != nil {
		r.failed(fmt.Errorf("bridge: settle: %d come again, %d have no answer yet: %w", lost, open, cause))
	}
	return open > 0
}

// unanswered reports whether a settle that is Unknown may be asked again.
func unanswered(err error) bool {
	return !errors.Is(err, broker.ErrInvalid) && !errors.Is(err, broker.ErrUnsupported) && !errors.Is(err, broker.ErrConflict) && !errors.Is(err, broker.ErrClosed)
}

// poison carries out the policy for a message that can't be moved.
func (r *run) poison(t *task, why error, late bool) fate {
	policy := r.o.Refused
	if late {
		policy = r.o.Late
	}
	stopped := &StopError{ID: t.id, Key: t.d.Key, Late: late, Err: why}
	if policy != DeadLetter {
		r.end(stopped)
		return kept
	}
	r.mu.Lock()
	t.settling = true // no more extending
	r.mu.Unlock()
	s := []broker.Settlement{{Delivery: t.d, Action: broker.DeadLetter, Reason: reason(why)}}
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(r.settling, r.o.SettleTimeout)
		err := r.from.Settle(ctx, s)
		cancel()
		switch o := s[0].Outcome; {
		case o.State.OK():
			r.stats.dead.Add(1)
			r.stats.settled.Add(1)
			r.failed(fmt.Errorf("message %q is dead-lettered: %w", t.id, why))
			return gone
		case o.State == broker.LeaseLost:
			r.mu.Lock()
			t.lost = true
			r.mu.Unlock()
			return kept
		case tries < settleTries && unanswered(o.Err) && pause(r.settling, r.o.delay(tries)):
		default:
			if o.Err != nil {
				err = o.Err
			}
			stopped.Err = fmt.Errorf("%w; and it can't be dead-lettered: %w", why, err)
			r.end(stopped)
			return kept
		}
	}
}

// reason is an error as the reason of a dead letter, which brokers keep in a header.
func reason(err error) string {
	s := err.Error()
	if len(s) > 500 {
		s = s[:500]
	}
	return strings.ToValidUTF8(s, "�")
}

// heart keeps the leases of what is in hand, and finds out what the source has taken
// back.
func (r *run) heart() {
	for {
		r.mu.Lock()
		if r.over {
			r.mu.Unlock()
			return
		}
		now := time.Now()
		var next time.Time
		var tasks []*task
		for t := range r.hand {
			switch {
			case t.lost || t.settling:
			case !t.deadline.IsZero() && !now.Before(t.deadline):
				r.lose(t)
			case t.fixed:
			case !now.Before(t.beat):
				tasks = append(tasks, t)
			case next.IsZero() || t.beat.Before(next):
				next = t.beat
			}
		}
		if r.o.Patience > 0 && len(r.hand) > 0 && r.ctx.Err() == nil {
			if end := r.since.Add(r.o.Patience); !now.Before(end) {
				cause := r.cause
				r.mu.Unlock()
				r.end(fmt.Errorf("%w for %v; the last error: %w", ErrStuck, r.o.Patience, cause))
				continue
			} else if next.IsZero() || end.Before(next) {
				next = end
			}
		}
		if len(tasks) == 0 {
			wait := time.Duration(-1)
			if !next.IsZero() {
				wait = max(next.Sub(now), 10*time.Millisecond)
			}
			r.await(context.Background(), wait)
			r.mu.Unlock()
			continue
		}
		r.mu.Unlock()
		r.extend(tasks)
	}
}

// extend asks the source for more time.
func (r *run) extend(tasks []*task) {
	// Not longer than half of what is left of the first lease to end, so that there is
	// time for another try, and a loss is noticed when it happens.
	s := make([]broker.Settlement, len(tasks))
	limit, began := r.o.SettleTimeout, time.Now()
	for i, t := range tasks {
		s[i] = broker.Settlement{Delivery: t.d, Action: broker.Extend}
		if !t.deadline.IsZero() {
			limit = min(limit, max(t.deadline.Sub(began)/2, 50*time.Millisecond))
		}
	}
	ctx, cancel := context.WithTimeout(r.settling, limit)
	err := r.from.Settle(ctx, s)
	cancel()
	now := time.Now()
	var cause error
	r.mu.Lock()
	for i, t := range tasks {
		o := &s[i].Outcome
		switch {
		case t.settling || t.lost || errors.Is(o.Err, broker.ErrConflict): // settled meanwhile
		case o.State.OK():
			t.arm(o.Lease, now)
		case errors.Is(o.Err, broker.ErrUnsupported):
			// It stays ours until the deadline.
			t.fixed = true
			t.beat = now.Add(100 * 365 * 24 * time.Hour)
			if !t.deadline.IsZero() {
				t.beat = t.deadline
			}
		case o.State == broker.LeaseLost, !t.deadline.IsZero() && !now.Before(t.deadline):
			r.lose(t)
		default: // no answer: once more
			t.beat = now
			if cause = o.Err; cause == nil {
				cause = err
			}
		}
	}
	r.signal()
	r.mu.Unlock()
	if cause != nil {
		r.failed(fmt.Errorf("bridge: extend: %w", cause))
		pause(r.settling, min(r.o.Backoff.Min, limit))
	}
}

// lose marks t as taken back by the source. What is in a lane's hands the lane drops;
// mu is held.
func (r *run) lose(t *task) {
	t.lost = true
	if q := t.q; q.air == 0 {
		for i := range q.tasks {
			if q.tasks[i] == t {
				r.drop(q, i)
				break
			}
		}
	}
}
