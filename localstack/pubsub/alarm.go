package pubsub

import (
	"container/heap"
	"time"
)

// alarm is the end of a lease, or of a back-off, if the item still has mark by
// then.
type alarm struct {
	at   time.Time
	it   *item
	mark uint64
}

// rings reports whether the alarm still means something.
func (a alarm) rings() bool {
	return a.it.state == held && a.mark == a.it.lease || a.it.state == backing && a.mark == uint64(a.it.attempts)
}

// alarms is a heap by time.
type alarms []alarm

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarms) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *alarms) Push(x any)        { *h = append(*h, x.(alarm)) }
func (h *alarms) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*h = old[:len(old)-1]
	return a
}

// alarm adds an alarm, and now and then drops those that mean nothing any more:
// a message that was acked leaves one behind.
func (q *subscription) alarm(a alarm) {
	if len(q.due) > 1024 && len(q.due) > 4*q.open {
		live := q.due[:0]
		for _, a := range q.due {
			if a.rings() {
				live = append(live, a)
			}
		}
		clear(q.due[len(live):])
		q.due = live
		heap.Init(&q.due)
	}
	heap.Push(&q.due, a)
}

// arm sets the timer for the earliest alarm.
func (q *subscription) arm() {
	if len(q.due) == 0 {
		return
	}
	at := q.due[0].at
	if q.timer != nil && !q.ringAt.After(at) {
		return // it rings before, and looks
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.ringAt = at
	q.timer = q.server.clock.AfterFunc(at.Sub(q.server.clock.Now()), q.ring)
}

// ring ends leases and back-offs.
func (q *subscription) ring() {
	q.server.mu.Lock()
	defer q.server.mu.Unlock()
	q.timer = nil
	now := q.server.clock.Now()
	for len(q.due) > 0 && !q.due[0].at.After(now) {
		a := heap.Pop(&q.due).(alarm)
		it := a.it
		switch {
		case !a.rings() || it.deadline.After(now):
		case it.state == held:
			q.giveUp(it, false)
		default:
			it.state = ready
			if it.lane == nil {
				q.queue(it)
			} else {
				it.lane.activate()
			}
			q.rouse()
		}
	}
	if !q.gone {
		q.arm()
	}
}
