package kafka

import (
	"container/heap"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// part is one partition for as long as it is assigned to this member.
type part struct {
	epoch driver.Epoch
	id    int32
	name  string
	ended bool
	// fenced is when the broker refused a commit of a member that it doesn't
	// know any more.
	fenced time.Time
	// queue has all polled records that the commit hasn't passed, in order of
	// their offsets. The offsets have gaps: compaction, transaction markers,
	// aborted transactions. So what may be committed follows from what came.
	queue     []*entry
	room      []*entry        // what queue was cut from, empty
	watermark kgo.EpochOffset // the next offset, were all settled ones committed; Offset -1: none
	committed int64           // the next offset as the broker has it; -1: none of this epoch
	first     int64           // the first offset that was polled; -1: none
	lines     map[string]*line
	waiting   int          // in lines
	hold      *transaction // has sent an offset and not ended: no other commit may pass it
}

// entry is one record, from poll to commit.
type entry struct {
	rec     *kgo.Record
	part    *part
	due     time.Time // when a nacked one goes out again
	gives   int       // how often it was handed out
	handle  uint64    // moves with each hand-out and nack: an older handle is stale
	settled bool
	inHeap  bool
	txn     *transaction // settled in it, as far as it goes
}

// line is a key whose records wait for one of them: active is in the caller's
// hands, or nacked and not yet out again.
type line struct {
	active *entry
	queue  []*entry // by offset
}

func newPart(id int32) *part {
	return &part{id: id, name: partName(id), watermark: kgo.EpochOffset{Epoch: -1, Offset: -1}, committed: -1, first: -1}
}

func partName(id int32) string { return strconv.Itoa(int(id)) }

// grow makes room for n more entries, over what has been passed.
func (p *part) grow(n int) {
	if cap(p.queue)-len(p.queue) >= n {
		return
	}
	if len(p.queue) > 0 || cap(p.room) < n {
		p.room = make([]*entry, 0, 2*(len(p.queue)+n))
	}
	p.queue = append(p.room, p.queue...) // what it has passed of room is cleared
}

// advance moves the watermark over all that is done.
func (p *part) advance() {
	i := 0
	for i < len(p.queue) && p.queue[i].settled {
		i++
	}
	if i == 0 {
		return
	}
	last := p.queue[i-1].rec
	p.watermark = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
	clear(p.queue[:i])
	p.queue = p.queue[i:]
}

// handOut moves records from the queues to the caller. r.mu is held.
func (r *groupReceiver) handOut(max int, out *driver.Batch) {
	n := r.urgent.len() + r.ready.len()
	if n == 0 {
		return
	}
	out.Grow(min(max, n))
	var strings text
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
		decode(&d.Message, e.rec, &strings, max-out.Len())
		d.Attempt = broker.Attempt{Number: e.gives, Trust: broker.Approximate}
		d.Position = broker.Position{Partition: e.part.name, Offset: uint64(e.rec.Offset)}
		t.Epoch, t.Tag, t.Sub, t.Ref = &e.part.epoch, e.handle, uint64(e.part.id), e
	}
}

// mayGo reports whether no earlier record of e's key is unsettled; otherwise e
// joins the line. Without Ordered that matters only once a record of the key
// was nacked.
func (r *groupReceiver) mayGo(e *entry) bool {
	p := e.part
	if len(e.rec.Key) == 0 || !r.wishes.ordered && len(p.lines) == 0 {
		return true
	}
	l := p.lines[string(e.rec.Key)]
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

func (r *groupReceiver) newLine(e *entry) {
	if e.part.lines == nil {
		e.part.lines = map[string]*line{}
	}
	e.part.lines[string(e.rec.Key)] = &line{active: e}
}

func (r *groupReceiver) queueUp(l *line, e *entry) {
	at := len(l.queue)
	for at > 0 && l.queue[at-1].rec.Offset > e.rec.Offset {
		at--
	}
	l.queue = append(l.queue, nil)
	copy(l.queue[at+1:], l.queue[at:])
	l.queue[at] = e
	e.part.waiting++
	r.waiting++
}

// done takes a settled record out of its line and lets the next one go.
func (r *groupReceiver) done(e *entry) {
	p := e.part
	if len(p.lines) == 0 || len(e.rec.Key) == 0 {
		return
	}
	l := p.lines[string(e.rec.Key)]
	if l == nil || l.active != e {
		return
	}
	if len(l.queue) == 0 {
		delete(p.lines, string(e.rec.Key))
		return
	}
	r.signal()
	if !r.wishes.ordered && !nacked(l.queue) {
		// The key is in order again, and all may go.
		for _, e := range l.queue {
			r.urgent.push(e)
		}
		p.waiting -= len(l.queue)
		r.waiting -= len(l.queue)
		delete(p.lines, string(e.rec.Key))
		return
	}
	l.active = l.queue[0]
	l.queue = l.queue[1:]
	p.waiting--
	r.waiting--
	r.again(l.active)
}

// nacked reports whether one of es was given back.
func nacked(es []*entry) bool {
	for _, e := range es {
		if !e.due.IsZero() {
			return true
		}
	}
	return false
}

// again hands e out when it is due.
func (r *groupReceiver) again(e *entry) {
	switch {
	case e.inHeap: // from before it had to stand in line
	case e.due.After(time.Now()):
		e.inHeap = true
		heap.Push(&r.delayed, e)
	default:
		r.urgent.push(e)
	}
}

// back takes a nacked record: it goes out again after the delay, and no later
// one of its key before it.
func (r *groupReceiver) back(e *entry, delay time.Duration) {
	e.due = time.Now().Add(delay)
	r.signal()
	if len(e.rec.Key) == 0 {
		r.again(e)
		return
	}
	l := e.part.lines[string(e.rec.Key)]
	switch {
	case l == nil:
		r.newLine(e)
	case l.active == e:
	case e.rec.Offset < l.active.rec.Offset && !l.active.due.IsZero() && l.active.due.After(time.Now()):
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
func (r *groupReceiver) promote(now time.Time) time.Duration {
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
		if l := e.part.lines[string(e.rec.Key)]; l != nil && l.active != e {
			continue // it stands in the line
		}
		r.urgent.push(e)
	}
	return 0
}

// fifo is a queue of entries.
type fifo struct {
	head int
	list []*entry
}

func (f *fifo) len() int { return len(f.list) - f.head }

func (f *fifo) grow(n int) {
	if f.head == len(f.list) {
		f.head, f.list = 0, f.list[:0]
	}
	if cap(f.list)-len(f.list) < n {
		list := make([]*entry, f.len(), 2*(f.len()+n))
		copy(list, f.list[f.head:])
		f.head, f.list = 0, list
	}
}

func (f *fifo) push(e *entry) {
	f.grow(1)
	f.list = append(f.list, e)
}

func (f *fifo) pop() (*entry, bool) {
	if f.head == len(f.list) {
		return nil, false
	}
	e := f.list[f.head]
	f.list[f.head] = nil
	f.head++
	return e, true
}

// dueHeap has the next one due at index 0.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*entry)) }
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
