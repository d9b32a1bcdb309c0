package conformance

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// soakWitness begins the IDs of the last messages, each of which is to show that
// nothing is left.
const soakWitness = "witness-"

// soakQueue is what a soak has to publish, and what came of it so far.
type soakQueue struct {
	messages []broker.Message
	place    map[string]int // by ID

	mu      sync.Mutex
	next    int
	good    []bool
	came    []bool
	goods   int
	missing int // good and not come
	moved   chan struct{}
}

// soakIDs are the IDs of the messages but the last.
func soakIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("s%06d", i)
	}
	return ids
}

func newSoakQueue(ids []string, body int) *soakQueue {
	n := len(ids)
	q := &soakQueue{messages: make([]broker.Message, n), place: make(map[string]int, n),
		good: make([]bool, n), came: make([]bool, n), moved: make(chan struct{}, 1)}
	bytes := bytes.Repeat([]byte{'x'}, body)
	for i, id := range ids {
		q.messages[i] = broker.Message{ID: id, Body: bytes}
		q.place[id] = i
	}
	return q
}

func (q *soakQueue) batches(size int) int { return (len(q.messages) + size - 1) / size }

// take returns the next batch, nil after the last.
func (q *soakQueue) take(n int) []broker.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.messages)-q.next)
	if n == 0 {
		return nil
	}
	q.next += n
	return q.messages[q.next-n : q.next : q.next]
}

// accept notes that messages have a good receipt.
func (q *soakQueue) accept(ms []broker.Message, rs []broker.Receipt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range ms {
		at := q.place[ms[i].ID]
		if !rs[i].Verdict.OK() || q.good[at] {
			continue
		}
		q.good[at] = true
		q.goods++
		if !q.came[at] {
			q.missing++
		}
	}
}

// accepted is how many have a good receipt.
func (q *soakQueue) accepted() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.goods
}

// deliver notes that messages came.
func (q *soakQueue) deliver(ds []broker.Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range ds {
		at, ok := q.place[ds[i].ID]
		if !ok || q.came[at] {
			continue
		}
		q.came[at] = true
		if q.good[at] {
			q.missing--
		}
		select {
		case q.moved <- struct{}{}:
		default:
		}
	}
}

// complete reports whether all with a good receipt came.
func (q *soakQueue) complete() bool { return q.left() == 0 }

// left is how many with a good receipt have not come.
func (q *soakQueue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.missing
}

// drained waits until all with a good receipt came, or nothing new did for the
// time, or ctx ends. Nobody publishes any more.
func (q *soakQueue) drained(ctx context.Context, quiet time.Duration) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for !q.complete() {
		select {
		case <-q.moved:
			timer.Reset(quiet)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// soakPace spreads the batches over the disturbance: a quarter of them goes before
// it, and a tenth is kept for its end.
type soakPace struct {
	batches int
	every   time.Duration
	begun   chan struct{} // closed when it is time for the disturbance
	freed   chan struct{} // closed when it is over
	once    sync.Once

	mu    sync.Mutex
	taken int
	next  time.Time
}

// soakLead is how long the load goes before the disturbance, beside its own length.
const soakLead = time.Second

func newSoakPace(batches int, lasts time.Duration) *soakPace {
	return &soakPace{batches: batches, every: (lasts + soakLead) / time.Duration(max(1, batches)),
		begun: make(chan struct{}), freed: make(chan struct{})}
}

// open lets the rest go as fast as it can.
func (p *soakPace) open() { p.once.Do(func() { close(p.freed) }) }

// wait waits for the time of the next batch, and reports whether ctx lasted so long.
func (p *soakPace) wait(ctx context.Context) bool {
	p.mu.Lock()
	p.taken++
	if p.taken == p.batches/4+1 {
		close(p.begun)
	}
	every := p.every
	if p.taken > p.batches*9/10 {
		every *= 4
	}
	now := time.Now()
	at := p.next
	if at.Before(now) {
		at = now
	}
	p.next = at.Add(every)
	p.mu.Unlock()
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.freed:
	case <-ctx.Done():
		return false
	}
	return true
}
