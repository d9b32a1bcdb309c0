package broker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// arm notes t's lease as it was given, or extended, at now; mu is held. A third
// of it is the margin unless the options name one.
func (c *consumer) arm(t *task, lease time.Time, now time.Time) {
	if t.deadline = lease; lease.IsZero() {
		return
	}
	length := max(lease.Sub(now), 0)
	t.margin = length / 3
	if c.o.LeaseMargin > 0 {
		t.margin = min(c.o.LeaseMargin, length/2)
	}
	t.beat = lease.Add(-t.margin)
	if c.nextBeat.IsZero() || t.beat.Before(c.nextBeat) {
		c.nextBeat = t.beat
		wake(c.wakeHeart)
	}
}

// alive reports whether t's lease is still needed and can still be extended:
// not once its settle is on its way, or the Extend could come after the ack.
func (t *task) alive() bool {
	return !t.deadline.IsZero() && !t.lost && t.stage < settles
}

// heart extends leases, with one timer for all.
func (c *consumer) heart() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var tasks []*task
	var calls []Settlement
	for {
		var next time.Time
		var over bool
		tasks, next, over = c.beats(tasks[:0])
		if over {
			return
		}
		if len(tasks) > 0 {
			calls = c.extend(tasks, calls[:0])
			clear(tasks)
			clear(calls)
			continue
		}
		var alarm <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			alarm = timer.C
		}
		select {
		case <-c.wakeHeart:
		case <-alarm:
		}
	}
}

// beats collects the tasks whose lease is to be extended now and says when the
// next ones will be. Leases that can't be extended end here.
func (c *consumer) beats(tasks []*task) (due []*task, next time.Time, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for t := c.hand.first; t != nil; t = t.behind {
		if !t.alive() {
			continue
		}
		at := t.beat
		if t.fixed {
			at = t.deadline
		}
		switch {
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case t.fixed:
			c.lose(t)
		default:
			t.extending = true
			tasks = append(tasks, t)
		}
	}
	c.nextBeat = next
	return tasks, next, c.over
}

// extend extends the leases of tasks in one go. It takes no longer than half of
// what is left of the first to end, so that the rest is there for a settle which
// waits for the answer.
func (c *consumer) extend(tasks []*task, calls []Settlement) []Settlement {
	now := time.Now()
	limit := c.o.SettleTimeout
	for _, t := range tasks {
		calls = append(calls, Settlement{Delivery: t.d, Action: Extend})
		limit = min(limit, max(t.deadline.Sub(now)/2, t.margin/8))
	}
	ctx, cancel := context.WithTimeout(c.settling, limit)
	err := c.r.Settle(ctx, calls)
	cancel()
	var reports []error
	unsupported := error(nil)
	c.mu.Lock()
	now = time.Now()
	for i, t := range tasks {
		t.extending = false
		o := &calls[i].Outcome
		if o.State == Unknown && o.Err == nil {
			o.Err = Errorf(ErrUnknownOutcome, err, "Extend %q", t.d.ID)
		}
		switch {
		case !t.alive(), errors.Is(o.Err, ErrConflict):
			// It was settled meanwhile, by us or by its handler.
			if t.alive() {
				t.deadline = time.Time{}
			}
		case o.Err == nil && o.State.OK():
			lease := o.Lease
			if lease.IsZero() { // it doesn't say: as long as before
				lease = now.Add(3 * t.margin)
			}
			c.arm(t, lease, now)
		case o.State == LeaseLost, errors.Is(o.Err, ErrLeaseLost):
			c.lose(t)
		case errors.Is(o.Err, ErrUnsupported):
			t.fixed = true
			unsupported = o.Err
		default:
			// Again soon, until the lease is over.
			if t.beat = now.Add(max(t.deadline.Sub(now)/4, 10*time.Millisecond)); now.After(t.deadline) {
				c.lose(t)
			}
			if len(reports) == 0 {
				reports = append(reports, fmt.Errorf("consume: heartbeat: %w", o.Err))
			}
		}
	}
	if unsupported != nil && !c.fixedLeases {
		c.fixedLeases = true // once is enough
		reports = append(reports, fmt.Errorf("consume: handlers must be done within the lease: %w", unsupported))
	}
	c.mu.Unlock()
	wake(c.wakeSettle)
	for _, r := range reports {
		c.report(r)
	}
	return calls
}

// lose marks t's lease as lost and stops its handler; mu is held. Who comes to t
// next, worker or settler, reports it.
func (c *consumer) lose(t *task) {
	t.lost = true
	if w := t.worker; w != nil && w.task == t {
		w.end(Errorf(ErrLeaseLost, nil, "consume %q", t.d.ID))
	}
	if t.stage == held || t.stage == resting {
		wake(c.wakeSettle)
	}
}
