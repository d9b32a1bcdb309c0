package rabbitmq

import (
	"container/heap"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// streamPart is the stream for as long as it is this receiver's turn.
type streamPart struct {
	link    *streamLink
	session int    // the receiver's count when it began
	start   uint64 // the first offset that is ours to deliver
	ended   bool
	// queue has all messages that came and that the stored offset hasn't passed,
	// in order. The offsets have gaps (RMS-F-08), so what may be stored follows
	// from what came.
	queue     []*streamEntry
	watermark uint64 // the first offset that isn't settled; 0: nothing was
	committed uint64 // the same as the broker has it
	lines     map[string]*streamLine
	waiting   int // in lines
}

// streamEntry is one message, from its arrival to the commit.
type streamEntry struct {
	raw     []byte
	offset  uint64
	part    *streamPart
	key     string
	due     time.Time // when a nacked one goes out again
	gives   int       // how often it was handed out
	handle  uint64    // moves with each hand-out and nack: an older handle is stale
	epoch   driver.Epoch
	keyed   bool // key is read
	settled bool
	inHeap  bool
}

func (e *streamEntry) keyOf() string {
	if !e.keyed {
		e.key, e.keyed = keyOf(e.raw), true
	}
	return e.key
}

// streamLine is a key whose messages wait for one of them: active is in the
// caller's hands, or nacked and not yet out again.
type streamLine struct {
	active *streamEntry
	queue  []*streamEntry // by offset
}

// grow makes room for n more entries, over what has been passed.
func (p *streamPart) grow(n int) {
	if cap(p.queue)-len(p.queue) >= n {
		return
	}
	q := make([]*streamEntry, len(p.queue), 2*(len(p.queue)+n))
	copy(q, p.queue)
	p.queue = q
}

// settle marks e as done and moves the watermark over all that is done.
func (p *streamPart) settle(e *streamEntry) {
	e.settled = true
	i := 0
	for i < len(p.queue) && p.queue[i].settled {
		i++
	}
	if i == 0 {
		return
	}
	p.watermark = p.queue[i-1].offset + 1
	clear(p.queue[:i])
	p.queue = p.queue[i:]
}

// handOut moves messages from the queues to the caller. r.mu is held.
func (r *streamReceiver) handOut(max int, out *driver.Batch) {
	if n := r.urgent.len() + r.ready.len(); n > 0 {
		out.Grow(min(max, n))
	}
	for out.Len() < max {
		e, ok := r.urgent.pop()
		if !ok {
			if e, ok = r.ready.pop(); !ok {
				return
			}
		}
		if e.part.ended || e.settled || !r.mayGo(e) {
			continue
		}
		e.gives++
		e.handle++
		d, t := out.Add()
		readMessage(&d.Message, e.raw)
		d.Attempt = broker.Attempt{Number: e.gives, Trust: broker.Approximate}
		d.Position = broker.Position{Partition: r.stream, Offset: e.offset}
		t.Epoch, t.Tag, t.Ref = &e.epoch, e.handle, e
	}
}

// mayGo reports whether no earlier message of e's key is unsettled; otherwise e
// joins the line. Without Ordered that matters only once a message of the key was
// nacked.
func (r *streamReceiver) mayGo(e *streamEntry) bool {
	p := e.part
	if !r.wishes.ordered && len(p.lines) == 0 {
		return true
	}
	key := e.keyOf()
	if key == "" {
		return true
	}
	l := p.lines[key]
	switch {
	case l == nil && r.wishes.ordered:
		r.newLine(e)
		return true
	case l == nil || l.active == e:
		return true
	}
	r.queueUp(l, e)
	return false
}

func (r *streamReceiver) newLine(e *streamEntry) {
	if e.part.lines == nil {
		e.part.lines = map[string]*streamLine{}
	}
	e.part.lines[e.keyOf()] = &streamLine{active: e}
}

func (r *streamReceiver) queueUp(l *streamLine, e *streamEntry) {
	at := len(l.queue)
	for at > 0 && l.queue[at-1].offset > e.offset {
		at--
	}
	l.queue = append(l.queue, nil)
	copy(l.queue[at+1:], l.queue[at:])
	l.queue[at] = e
	e.part.waiting++
	r.waiting++
}

// settledOne takes a settled message out of its line and lets the next one go.
func (r *streamReceiver) settledOne(e *streamEntry) {
	p := e.part
	if len(p.lines) == 0 || e.keyOf() == "" {
		return
	}
	l := p.lines[e.key]
	if l == nil || l.active != e {
		return
	}
	if len(l.queue) == 0 {
		delete(p.lines, e.key)
		return
	}
	r.signal()
	if !r.wishes.ordered && !givenBack(l.queue) {
		// The key is in order again, and all may go.
		for _, e := range l.queue {
			r.urgent.push(e)
		}
		p.waiting -= len(l.queue)
		r.waiting -= len(l.queue)
		delete(p.lines, e.key)
		return
	}
	l.active = l.queue[0]
	l.queue = l.queue[1:]
	p.waiting--
	r.waiting--
	r.again(l.active)
}

// givenBack reports whether one of es was nacked.
func givenBack(es []*streamEntry) bool {
	for _, e := range es {
		if !e.due.IsZero() {
			return true
		}
	}
	return false
}

// again hands e out when it is due.
func (r *streamReceiver) again(e *streamEntry) {
	switch {
	case e.inHeap: // from before it had to stand in line
	case e.due.After(r.conn.s.now()):
		e.inHeap = true
		heap.Push(&r.delayed, e)
	default:
		r.urgent.push(e)
	}
}

// back takes a nacked message: it goes out again after the delay, and no later
// one of its key before it.
func (r *streamReceiver) back(e *streamEntry, delay time.Duration) {
	e.due = r.conn.s.now().Add(delay)
	r.signal()
	if e.keyOf() == "" {
		r.again(e)
		return
	}
	l := e.part.lines[e.key]
	switch {
	case l == nil:
		r.newLine(e)
	case l.active == e:
	case e.offset < l.active.offset && !l.active.due.IsZero() && l.active.due.After(r.conn.s.now()):
		// The earlier one first; the other is still in the heap, where promote
		// finds that it isn't active any more.
		was := l.active
		l.active = e
		r.queueUp(l, was)
	default:
		r.queueUp(l, e)
		return
	}
	r.again(e)
}

// promote moves what is due to the urgent queue and returns the time until the
// next one, 0 if there is none.
func (r *streamReceiver) promote(now time.Time) time.Duration {
	for len(r.delayed) > 0 {
		e := r.delayed[0]
		if wait := e.due.Sub(now); wait > 0 && !e.part.ended && !e.settled {
			return wait
		}
		heap.Pop(&r.delayed)
		e.inHeap = false
		if e.part.ended || e.settled {
			continue
		}
		if len(e.part.lines) > 0 {
			if l := e.part.lines[e.keyOf()]; l != nil && l.active != e {
				continue // it stands in the line
			}
		}
		r.urgent.push(e)
	}
	return 0
}

// streamQueue is a queue of messages.
type streamQueue struct {
	head int
	list []*streamEntry
}

func (q *streamQueue) len() int { return len(q.list) - q.head }

func (q *streamQueue) grow(n int) {
	if q.head == len(q.list) {
		q.head, q.list = 0, q.list[:0]
	}
	if cap(q.list)-len(q.list) < n {
		list := make([]*streamEntry, q.len(), 2*(q.len()+n))
		copy(list, q.list[q.head:])
		q.head, q.list = 0, list
	}
}

func (q *streamQueue) push(e *streamEntry) {
	q.grow(1)
	q.list = append(q.list, e)
}

func (q *streamQueue) pop() (*streamEntry, bool) {
	if q.head == len(q.list) {
		return nil, false
	}
	e := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	return e, true
}

// streamHeap has the next one due at index 0.
type streamHeap []*streamEntry

func (h streamHeap) Len() int           { return len(h) }
func (h streamHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h streamHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *streamHeap) Push(x any) { *h = append(*h, x.(*streamEntry)) }

// Pop is part of heap.Interface.
func (h *streamHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
