package sqs

import (
	"time"

	"github.com/onceline/onceline/localstack/clock"
)

// queue is one queue with its messages. All of it is guarded by the server's lock.
type queue struct {
	server *Server
	uid    uint64
	name   string
	arn    string
	fifo   bool
	settings
	tags    map[string]string
	created int64
	changed int64
	purged  int64
	deleted bool

	uids      uint64
	first     *message // in order of arrival
	last      *message
	total     int
	nInFlight int
	nDelayed  int
	received  map[uint64]*message // those that handles were given out for, by uid
	hidden    messageHeap         // in flight and delayed, by the time when they show again

	// Of a standard queue: what may be received, in order of arrival. Whatever was
	// hidden once is in returned, the rest in fresh.
	fresh    fifo
	returned messageHeap

	// Of a FIFO queue.
	groups   map[string]*group
	ready    groupList
	horizon  *message // the last that a receive looks at (SQS-F-32)
	memory   dedupMemory
	attempts attemptMemory
	tombs    tombstones

	waiters []*waiter
	alarm   *clock.Timer
	alarmAt int64

	task *moveTask   // the latest that was started
	past []*moveTask // those before it, a few
}

// fifo is a queue of messages from which those that are gone are left out when it
// is their turn.
type fifo struct {
	items []*message
	head  int
}

func (f *fifo) push(m *message) { f.items = append(f.items, m) }

// top returns the first message that isn't gone, or nil.
func (f *fifo) top() *message {
	for f.head < len(f.items) {
		if m := f.items[f.head]; m.state != gone {
			return m
		}
		f.pop()
	}
	return nil
}

func (f *fifo) pop() {
	f.items[f.head] = nil
	f.head++
	switch {
	case f.head == len(f.items):
		f.items, f.head = f.items[:0], 0
	case f.head >= 1024 && f.head*2 >= len(f.items):
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
}

// clear drops all messages and what is known of them, as a purge does (SQS-F-10).
func (q *queue) clear() {
	for m := q.first; m != nil; m = m.next {
		m.state = gone
	}
	q.first, q.last, q.horizon = nil, nil, nil
	q.total, q.nInFlight, q.nDelayed = 0, 0, 0
	q.received = map[uint64]*message{}
	q.hidden = messageHeap{before: byVisibleAt}
	q.fresh, q.returned = fifo{}, messageHeap{before: byUID}
	q.groups, q.ready = map[string]*group{}, groupList{}
	q.memory, q.attempts, q.tombs = dedupMemory{}, attemptMemory{}, tombstones{}
}

// tick brings the queue up to now: what is due shows again, and what is past its
// retention is dropped (SQS-F-17), in flight or not (SQS-F-70).
func (q *queue) tick(now int64) {
	for m := q.first; m != nil && q.expired(m, now); m = q.first {
		q.drop(m)
	}
	for m := q.hidden.top(); m != nil && m.visibleAt <= now; m = q.hidden.top() {
		q.show(m)
	}
}

func (q *queue) expired(m *message, now int64) bool {
	return m.enqueuedAt+int64(q.retention) <= now
}

// add takes a new message in; visibleAt says when it may be received.
func (q *queue) add(m *message, now int64) {
	q.uids++
	m.uid = q.uids
	m.prev, m.next = q.last, nil
	if q.last == nil {
		q.first = m
	} else {
		q.last.next = m
	}
	q.last = m
	q.total++
	if q.fifo {
		q.enlist(m)
	}
	if m.visibleAt > now {
		m.state = delayed
		q.nDelayed++
		q.hidden.push(m)
		return
	}
	m.state = ready
	if q.fifo {
		q.review(m.inGroup)
	} else {
		q.fresh.push(m)
	}
}

// hide takes a message that may be received out of sight until visibleAt.
func (q *queue) hide(m *message) {
	if m.heapIndex >= 0 {
		q.returned.remove(m)
	}
	m.state = inFlight
	q.nInFlight++
	q.hidden.push(m)
}

// show makes a hidden message receivable again: in its old place (SQS-F-28).
func (q *queue) show(m *message) {
	q.hidden.remove(m)
	if m.state == inFlight {
		q.nInFlight--
	} else {
		q.nDelayed--
	}
	m.state = ready
	if q.fifo {
		q.review(m.inGroup)
	} else {
		q.returned.push(m)
	}
}

// drop removes a message for good.
func (q *queue) drop(m *message) {
	switch m.state {
	case inFlight:
		q.nInFlight--
		q.hidden.remove(m)
	case delayed:
		q.nDelayed--
		q.hidden.remove(m)
	case ready:
		if m.heapIndex >= 0 {
			q.returned.remove(m)
		}
	}
	m.state = gone
	q.total--
	if m.receives > 0 {
		delete(q.received, m.uid)
	}
	if q.fifo {
		q.delist(m)
	}
	if m.prev == nil {
		q.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
}

// available says whether a receive might get something now.
func (q *queue) available() bool {
	if q.nInFlight >= q.server.inFlightLimit {
		return false
	}
	if q.fifo {
		return q.ready.first != nil
	}
	return q.fresh.top() != nil || q.returned.top() != nil
}

// visible is ApproximateNumberOfMessages: all that is neither in flight nor
// delayed, also what its group blocks.
func (q *queue) visible() int { return q.total - q.nInFlight - q.nDelayed }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
