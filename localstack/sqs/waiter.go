package sqs

import "time"

// waiter is a long poll that found nothing yet. Its fields are guarded by the
// server's lock.
type waiter struct {
	wake    chan struct{} // holds one wake-up
	woken   bool
	expired bool // its time is over
}

func (w *waiter) rouse() {
	if !w.woken {
		w.woken = true
		w.wake <- struct{}{}
	}
}

// join lines a long poll up.
func (q *queue) join() *waiter {
	w := &waiter{wake: make(chan struct{}, 1)}
	q.waiters = append(q.waiters, w)
	return w
}

// rest lines a poll that was woken in vain up again, in its old place.
func (w *waiter) rest() { w.woken = false }

// leave takes a long poll out. Whoever was woken for messages and leaves without
// them must call after, which wakes the next.
func (q *queue) leave(w *waiter) {
	for i, o := range q.waiters {
		if o == w {
			copy(q.waiters[i:], q.waiters[i+1:])
			q.waiters[len(q.waiters)-1] = nil
			q.waiters = q.waiters[:len(q.waiters)-1]
			break
		}
	}
}

// after is called at the end of whatever changed the queue: it wakes the first
// long poll if there is something for it, and has the clock ring when the next
// hidden message shows (SQS-F-42).
func (q *queue) after(now int64) {
	if len(q.waiters) == 0 {
		if q.alarm != nil {
			q.alarm.Stop()
			q.alarm = nil
		}
		return
	}
	if q.available() {
		for _, w := range q.waiters {
			if !w.woken {
				w.rouse()
				break
			}
		}
	}
	next := q.hidden.top()
	switch {
	case next == nil:
		return
	case q.alarm != nil && q.alarmAt <= next.visibleAt:
		return // it rings early, and is set again then
	case q.alarm != nil:
		q.alarm.Stop()
	}
	q.alarmAt = next.visibleAt
	q.alarm = q.server.clock.AfterFunc(time.Duration(next.visibleAt-now), q.ring)
}

// ring is the clock's call.
func (q *queue) ring() {
	s := q.server
	s.mu.Lock()
	defer s.mu.Unlock()
	q.alarm = nil
	now := s.now()
	q.tick(now)
	q.after(now)
}
