package rabbitmq

import (
	"math/bits"
	"slices"
	"sort"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// queue holds messages until they are settled. The server's lock guards it.
type queue struct {
	v          *vhost
	name       string
	quorum     bool
	durable    bool
	autoDelete bool
	owner      *conn // of an exclusive queue
	args       amqp.Table
	limits
	reply   bool // holds answers for one consumer
	deleted bool

	levels  []deque[item] // by priority, the lowest first
	filled  uint64        // a bit for each level that isn't empty
	returns deque[item]   // of a quorum queue: what came back, delivered first (RMQ-F-19)
	count   int           // of messages that are ready
	bytes   int64         // of their bodies
	seq     uint64
	full    bool // a quorum queue that told its publishers so

	consumers []*consumer // those of the highest priority first, in the order of their turns
	active    *consumer   // of a single active consumer

	hasTTL   bool
	expiry   *clock.Timer // of the first message that will expire
	expiryAt int64
	idle     *clock.Timer // deletes a queue that isn't used
	usedAt   time.Time
	lease    *clock.Timer // ends the lease of a quorum queue's late consumers
	leaseAt  int64
}

// push adds a new message behind those of its priority.
func (q *queue) push(it item) {
	q.seq++
	it.seq = q.seq
	q.level(it.message).pushBack(it)
	q.count++
	q.bytes += it.size()
}

// level returns where a message of this priority waits, and notes that it is in
// use.
func (q *queue) level(m *message) *deque[item] {
	i := 0
	if len(q.levels) > 1 {
		i = min(int(m.priority), len(q.levels)-1)
		if q.quorum {
			i = quorumLevel(m)
		}
	}
	q.filled |= 1 << i
	return &q.levels[i]
}

// head returns the next message, nil where there is none.
func (q *queue) head() *item {
	if q.returns.n > 0 {
		return q.returns.at(0)
	}
	if q.filled == 0 {
		return nil
	}
	return q.levels[bits.Len64(q.filled)-1].at(0)
}

// take removes the next message; there must be one.
func (q *queue) take() item {
	q.count--
	if q.returns.n > 0 {
		it := q.returns.popFront()
		q.bytes -= it.size()
		return it
	}
	i := bits.Len64(q.filled) - 1
	it := q.levels[i].popFront()
	if q.levels[i].n == 0 {
		q.filled &^= 1 << i
	}
	q.bytes -= it.size()
	return it
}

// putBack makes a message ready again that came back unsettled: in a quorum queue
// behind what came back before it, in a classic one at its old place (RMQ-F-19).
func (q *queue) putBack(it item) {
	q.count++
	q.bytes += it.size()
	if q.quorum {
		q.returns.pushBack(it)
		return
	}
	l := q.level(it.message)
	if l.n == 0 || l.at(0).seq > it.seq { // nearly always
		l.pushFront(it)
		return
	}
	l.insert(sort.Search(l.n, func(i int) bool { return l.at(i).seq > it.seq }), it)
}

// purge drops all ready messages and returns how many there were.
func (q *queue) purge() int {
	n := q.count
	q.count, q.bytes, q.filled = 0, 0, 0
	q.returns.clear()
	for i := range q.levels {
		q.levels[i].clear()
	}
	q.full = false
	q.armExpiry()
	return n
}

// pump hands out messages for as long as there are some and a consumer that can
// take one.
func (q *queue) pump() {
	for q.count > 0 && len(q.consumers) > 0 && !q.deleted {
		c := q.next()
		if c == nil {
			break
		}
		if q.hasTTL && q.dropExpired() {
			continue
		}
		c.deliver(q.take())
	}
	q.settleDown()
}

// settleDown keeps limits and timers after messages came or went.
func (q *queue) settleDown() {
	if q.hasTTL {
		q.dropExpired()
		q.armExpiry()
	}
	if q.full && q.belowLimits() {
		q.full = false
	}
}

// next returns the consumer whose turn it is, nil where none can take a message.
// Consumers of the highest priority that can take it have their turns (RMQ-F-33).
func (q *queue) next() *consumer {
	if q.singleActive {
		if q.active != nil && q.active.ready() {
			return q.active
		}
		return nil
	}
	for i, c := range q.consumers {
		if !c.ready() {
			continue
		}
		last := i
		for last+1 < len(q.consumers) && q.consumers[last+1].priority == c.priority {
			last++
		}
		if last > i {
			copy(q.consumers[i:], q.consumers[i+1:last+1])
			q.consumers[last] = c
		}
		return c
	}
	return nil
}

// addConsumer gives c its place behind those of its priority.
func (q *queue) addConsumer(c *consumer) {
	i := slices.IndexFunc(q.consumers, func(o *consumer) bool { return o.priority < c.priority })
	if i < 0 {
		i = len(q.consumers)
	}
	q.consumers = slices.Insert(q.consumers, i, c)
	q.activate()
}

// activate chooses the single active consumer where there is none: the one that
// came first of the highest priority (RMQ-F-21). A quorum queue lets a consumer of
// a higher priority take over.
func (q *queue) activate() {
	if !q.singleActive {
		return
	}
	if q.active != nil && q.quorum && len(q.consumers) > 0 && q.consumers[0].priority > q.active.priority && q.active.inflight == 0 {
		q.active = nil
	}
	if q.active == nil && len(q.consumers) > 0 {
		i := max(slices.IndexFunc(q.consumers, func(c *consumer) bool { return c.late == 0 }), 0)
		q.active = q.consumers[i]
	}
}

// removeConsumer takes c from the queue.
func (q *queue) removeConsumer(c *consumer) {
	q.consumers = slices.DeleteFunc(q.consumers, func(o *consumer) bool { return o == c })
	c.removed = true
	if q.active == c {
		q.active = nil
		q.activate()
	}
}

// consumerGone does what follows when a consumer has been removed and its
// deliveries have been given back.
func (q *queue) consumerGone() {
	if q.deleted {
		return
	}
	if q.autoDelete && len(q.consumers) == 0 {
		q.delete()
		return
	}
	q.touch()
	if q.v.s.release == V3 && q.singleActive && !q.quorum {
		return // the next consumer has its turn when something else happens
	}
	q.pump()
}

// delete removes the queue with its bindings and messages, and tells its
// consumers.
func (q *queue) delete() {
	if q.deleted {
		return
	}
	q.deleted = true
	q.stopTimers()
	delete(q.v.queues, q.name)
	if q.owner != nil {
		delete(q.owner.exclusive, q)
	}
	q.v.topology++
	for _, x := range q.v.sortedExchanges() {
		x.drop(func(b *binding) bool { return b.queue == q })
	}
	for _, c := range slices.Clone(q.consumers) {
		c.ch.forget(c)
		c.removed = true
		c.notifyCancel()
	}
	q.consumers, q.active = nil, nil
	q.purge()
}

func (q *queue) stopTimers() {
	for _, t := range []*clock.Timer{q.expiry, q.idle, q.lease} {
		if t != nil {
			t.Stop()
		}
	}
	q.expiry, q.idle, q.lease = nil, nil, nil
}

// now is the time of this turn in ms since 1970.
func (q *queue) now() int64 { return q.v.s.now() }

// text names the queue as RabbitMQ does.
func (q *queue) text() string { return "queue '" + q.name + "' in vhost '" + q.v.name + "'" }
