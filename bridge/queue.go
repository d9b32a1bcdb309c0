package bridge

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// task is a delivery in hand.
type task struct {
	d     *broker.Delivery
	id    string
	ident ident
	q     *queue
	first time.Time // of the first attempt that may have reached the far side; zero: none

	deadline time.Time // of the lease; zero: it has none
	beat     time.Time // when the source is to be asked whether it is still ours
	fixed    bool      // the lease can't be extended
	lost     bool      // it isn't ours any more
	settling bool      // its settle is on the way
	asked    int       // settles without an answer
}

// unleased is how often the source is asked about a delivery that has no lease.
const unleased = 5 * time.Second

// arm notes a lease that was given, or extended, at now.
func (t *task) arm(lease, now time.Time) {
	t.deadline = lease
	t.beat = now.Add(unleased)
	if !lease.IsZero() {
		t.beat = lease.Add(-max(lease.Sub(now), 0) / 3)
	}
}

// name is what a queue stands for: a key; or a message without one.
type name struct {
	key, id, copy string
	serial        uint64
}

// queue holds the messages of one key, in the order in which they came.
type queue struct {
	name     name
	tasks    []*task
	air      int // of tasks, from the first: in a lane's hands
	due      time.Time
	failures int // in a row
	dead     bool
}

// ident stands for a message's ID and Copy in this process.
type ident [2]uint64

// memory knows the last messages that were moved.
type memory struct {
	seeds [2]maphash.Seed
	max   int

	mu   sync.Mutex
	set  map[ident]struct{}
	ring []ident
	next int
}

func newMemory(max int) *memory {
	return &memory{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, max: max, set: map[ident]struct{}{}}
}

func (m *memory) ident(id, copied string) (out ident) {
	for i := range out {
		var h maphash.Hash
		h.SetSeed(m.seeds[i])
		_, _ = h.WriteString(id)
		if copied != "" {
			_ = h.WriteByte(0)
			_, _ = h.WriteString(copied)
			maphash.WriteComparable(&h, len(id))
		}
		out[i] = h.Sum64()
	}
	return out
}

func (m *memory) has(x ident) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.set[x]
	return ok
}

func (m *memory) add(x ident) {
	if m.max <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.set[x]; ok {
		return
	}
	if len(m.ring) < m.max {
		m.ring = append(m.ring, x)
	} else {
		delete(m.set, m.ring[m.next])
		m.ring[m.next] = x
		m.next = (m.next + 1) % m.max
	}
	m.set[x] = struct{}{}
}

// remove takes t out of the hand; mu is held.
func (r *run) remove(t *task) {
	delete(r.hand, t)
	r.bytes -= len(t.d.Body)
	r.since = time.Now()
	r.stats.inHand.Store(int64(len(r.hand)))
}

// drop takes the task at i of q, which the source has taken back, and gives back those
// behind it, so that they come again behind it; mu is held, and none from i on is in the
// air.
func (r *run) drop(q *queue, i int) {
	t := q.tasks[i]
	if !t.first.IsZero() {
		r.firsts[t.ident] = t.first
	}
	r.stats.lost.Add(1)
	r.remove(t)
	for _, behind := range q.tasks[i+1:] {
		if !behind.first.IsZero() {
			r.firsts[behind.ident] = behind.first
		}
		if behind.lost {
			r.stats.lost.Add(1)
			r.remove(behind)
			continue
		}
		r.stats.given.Add(1)
		r.done(behind, broker.Nack)
	}
	clear(q.tasks[i:])
	q.tasks = q.tasks[:i]
}

// done hands t to the settler; mu is held.
func (r *run) done(t *task, action broker.Action) {
	t.settling = true
	r.acks = append(r.acks, broker.Settlement{Delivery: t.d, Action: action})
	r.ackers = append(r.ackers, t)
}

// forget removes q if it is empty; mu is held.
func (r *run) forget(q *queue) bool {
	if len(q.tasks) > 0 || q.air > 0 {
		return false
	}
	if !q.dead {
		q.dead = true
		delete(r.queues, q.name)
	}
	return true
}
