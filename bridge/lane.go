package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
)

// fate is what became of a task in a lane.
type fate uint8

const (
	kept  fate = iota // not tried, or to be tried again
	acked             // the far side has it, or has had it: to be acked
	gone              // settled already, by a dead letter
	taken             // the source has taken it back
)

// flight is what a lane has in its hands.
type flight struct {
	tasks []*task
	fates []fate
	msgs  []broker.Message
	at    []int // of msgs: which task
	again int   // how many are to be tried again
	good  int
	cause error
}

// work publishes until the end.
func (r *run) work() {
	var f flight
	for r.pick(&f) {
		r.prepare(&f)
		if len(f.msgs) > 0 {
			r.publish(&f)
		}
		r.land(&f)
	}
}

// pick waits for messages that may go; false is the end.
func (r *run) pick(f *flight) bool {
	clear(f.tasks)
	clear(f.msgs)
	*f = flight{tasks: f.tasks[:0], msgs: f.msgs[:0], at: f.at[:0], fates: f.fates[:0]}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.ctx.Err() == nil {
		now := time.Now()
		wait := time.Duration(-1)
		switch {
		case r.down > 0 && r.probing:
		case r.down > 0 && now.Before(r.resume):
			wait = r.resume.Sub(now)
		default:
			next := r.gather(f, now)
			if len(f.tasks) > 0 {
				r.probing = r.down > 0
				f.fates = append(f.fates, make([]fate, len(f.tasks))...)
				return true
			}
			if !next.IsZero() {
				wait = max(next.Sub(now), time.Millisecond)
			}
		}
		r.await(r.ctx, wait)
	}
	return false
}

// gather takes what may go now, and says when something else may; mu is held.
func (r *run) gather(f *flight, now time.Time) (next time.Time) {
	still := r.waiting[:0]
	for _, q := range r.waiting {
		switch {
		case r.forget(q):
		case q.due.After(now):
			if still = append(still, q); next.IsZero() || q.due.Before(next) {
				next = q.due
			}
		default:
			r.ready = append(r.ready, q)
		}
	}
	clear(r.waiting[len(still):])
	r.waiting = still

	limit := r.o.Batch
	if r.down > 0 {
		limit = 1
	}
	n := 0
	for ; n < len(r.ready) && len(f.tasks) < limit; n++ {
		q := r.ready[n]
		if r.forget(q) {
			continue
		}
		for q.air < len(q.tasks) && len(f.tasks) < limit && (q.air == 0 || r.o.Together && q.failures == 0) {
			t := q.tasks[q.air]
			if !now.Before(t.beat) { // it may have been lost: the source is being asked
				break
			}
			f.tasks = append(f.tasks, t)
			q.air++
		}
		if q.air == 0 {
			q.due = now.Add(20 * time.Millisecond)
			r.waiting = append(r.waiting, q)
			if next.IsZero() || q.due.Before(next) {
				next = q.due
			}
		}
	}
	r.ready = slices.Delete(r.ready, 0, n)
	return next
}

// prepare makes the messages that are to be sent, and judges what needs no sending.
func (r *run) prepare(f *flight) {
	for i, t := range f.tasks {
		var why error
		switch {
		case r.ctx.Err() != nil: // stopped by one before it
		case t.id == "":
			f.fates[i] = r.poison(t, broker.Errorf(broker.ErrInvalid, nil, "bridge: a message without a dedup ID"), false)
		case r.moved.has(t.ident):
			r.stats.again.Add(1)
			f.fates[i] = acked
		default:
			m := t.d.Message
			m.ID = t.id
			if r.o.From != "" && r.o.To != "" {
				way := Route(m.Headers)
				switch {
				case slices.Contains(way, r.o.To) || slices.Contains(way, r.o.From):
					r.stats.looped.Add(1)
					f.fates[i] = acked
					continue
				case len(way) >= r.o.Hops:
					why = broker.Errorf(broker.ErrInvalid, nil, "bridge: it has left %d places already, the last one %q", len(way), way[len(way)-1])
				}
				m.Headers = extend(m.Headers, r.o.From)
			}
			switch {
			case why != nil:
				f.fates[i] = r.poison(t, why, false)
			case r.late(t):
				if f.fates[i] = r.belated(t); f.fates[i] == kept && t.first.IsZero() {
					f.msgs, f.at = append(f.msgs, m), append(f.at, i)
				}
			default:
				f.msgs, f.at = append(f.msgs, m), append(f.at, i)
			}
		}
	}
}

// room is how long t may still be tried.
func (r *run) roomOf(t *task) time.Duration {
	if t.first.IsZero() {
		return r.o.Window - r.o.Margin
	}
	return time.Until(t.first.Add(r.o.Window - r.o.Margin))
}

// late reports whether there is no time for another attempt that would be worth it.
func (r *run) late(t *task) bool {
	return r.o.Window > 0 && !t.first.IsZero() && r.roomOf(t) < min(r.o.Window/20, time.Second)
}

// belated carries out the policy for a message that is late.
func (r *run) belated(t *task) fate {
	why := broker.Errorf(broker.ErrWindowExceeded, nil, "bridge: the far side may have stored it %v ago, and remembers its ID for %v less %v",
		time.Since(t.first).Round(time.Millisecond), r.o.Window, r.o.Margin)
	if r.o.Late == Send {
		r.failed(fmt.Errorf("message %q is sent again, perhaps as a second copy: %w", t.id, why))
		t.first = time.Time{}
		return kept
	}
	return r.poison(t, why, true)
}

// publish sends the messages and judges the receipts.
func (r *run) publish(f *flight) {
	timeout := r.o.PublishTimeout
	if r.o.Window > 0 {
		for _, i := range f.at {
			timeout = min(timeout, r.roomOf(f.tasks[i]))
		}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.publishing, timeout)
	receipts, err := r.to.Publish(ctx, f.msgs...)
	cancel()
	r.stats.publishes.Add(1)
	for j, i := range f.at {
		receipt := broker.Receipt{Err: err}
		if j < len(receipts) {
			receipt = receipts[j]
		}
		f.fates[i] = r.judge(f, f.tasks[i], receipt, began)
	}
}

// judge is what becomes of t by its receipt.
func (r *run) judge(f *flight, t *task, receipt broker.Receipt, began time.Time) fate {
	if !receipt.Verdict.OK() && receipt.Err == nil {
		receipt.Err = broker.ErrUnknownOutcome
	}
	switch {
	case receipt.Verdict.OK():
		r.stats.verdicts[receipt.Verdict].Add(1)
		r.moved.add(t.ident)
		f.good++
		return acked
	case receipt.Verdict == broker.Refused && final(receipt.Err) && t.first.IsZero():
		return r.poison(t, receipt.Err, false)
	case receipt.Verdict == broker.Refused && final(receipt.Err):
		return r.poison(t, fmt.Errorf("an attempt before had no answer: %w", receipt.Err), true)
	case errors.Is(receipt.Err, broker.ErrClosed) && r.ctx.Err() == nil:
		r.end(fmt.Errorf("bridge: publish: %w", receipt.Err))
	}
	r.stats.verdicts[receipt.Verdict].Add(1)
	if receipt.Verdict != broker.Refused && t.first.IsZero() {
		t.first = began
	}
	if f.again++; f.cause == nil {
		f.cause = receipt.Err
	}
	return kept
}

// final reports whether a refusal is the message's own fault, so that it would be
// refused again.
func final(err error) bool {
	for _, passing := range []error{broker.ErrUnavailable, broker.ErrBusy, broker.ErrClosed, broker.ErrUnauthorized, broker.ErrNotFound, broker.ErrUnroutable,
		context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, passing) {
			return false
		}
	}
	for _, own := range []error{broker.ErrInvalid, broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrConflict, broker.ErrRefused, broker.ErrWindowExceeded} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// land puts what is to be tried again back into its queues, and hands the rest to the
// settler.
func (r *run) land(f *flight) {
	r.mu.Lock()
	now := time.Now()
	broken := f.again > 0 && f.good == 0
	switch {
	case broken:
		r.down++
		r.resume = now.Add(r.o.delay(r.down))
	case f.good > 0:
		r.down = 0
	}
	r.probing = false
	if f.cause != nil {
		r.cause = f.cause
	}
	for i := 0; i < len(f.tasks); {
		q := f.tasks[i].q
		i += r.landQueue(q, f, i, now)
	}
	r.signal()
	r.mu.Unlock()
	if f.again > 0 {
		r.failed(fmt.Errorf("bridge: publish: %d of %d messages to be sent again: %w", f.again, len(f.msgs), f.cause))
	}
}

// landQueue does the tasks of q, which begin at f.tasks[from], and returns how many
// there are; mu is held.
func (r *run) landQueue(q *queue, f *flight, from int, now time.Time) int {
	air := q.air
	var left []*task
	failed := false
	for k, t := range q.tasks[:air] {
		switch what := f.fates[from+k]; {
		case what == gone, what == taken:
			r.closeOne(t)
		case what == acked && t.lost: // it comes again, and is known then
			r.stats.lost.Add(1)
			r.remove(t)
		case what == acked:
			r.done(t, broker.Ack)
		default:
			left = append(left, t)
			failed = true
		}
	}
	q.tasks = append(left, q.tasks[air:]...)
	q.air = 0
	for i, t := range q.tasks {
		if t.lost {
			r.drop(q, i)
			break
		}
	}
	switch {
	case r.forget(q):
	case failed:
		q.failures++
		q.due = now.Add(r.o.delay(q.failures))
		r.waiting = append(r.waiting, q)
	default:
		q.failures = 0
		r.ready = append(r.ready, q)
	}
	return air
}

// closeOne ends a task that needs no further settle; mu is held.
func (r *run) closeOne(t *task) {
	r.closed++
	r.remove(t)
}
