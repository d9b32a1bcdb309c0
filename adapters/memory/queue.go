package memory

import (
	"math"

	"github.com/onceline/onceline/broker"
)

// cell is a message as the topic keeps it, shared by the copies of all
// subscriptions. The copy of the first subscription lies in it, so that a topic
// with one subscription costs one allocation per chunk of messages.
type cell struct {
	msg    broker.Message
	offset uint64
	refs   int // copies not done with
	first  item
}

// item is one subscription's copy of a message.
type item struct {
	link     node[*item] // in ready, a lane, parked, a receiver's held, or a topic's unread
	cell     *cell
	sub      *subscription
	lane     *lane  // of its key, while it is the one that the key waits for or waits itself
	grant    *grant // who holds it
	at       int64  // on the agenda: end of lease or delay, unix nanoseconds
	turn     uint64 // order on the agenda among equal times
	place    int    // on the agenda
	attempts int    // how often it was handed out
	state    state
}

type state uint8

const (
	adrift   state = iota // between two others
	waiting               // for an earlier message of its key
	ready                 // to be handed out
	inFlight              // under a lease
	delayed               // by a nack
	parked                // delivered MaxDeliveries times, and no dead-letter topic
	done
)

// grant is one delivery of an item: what a handle stands for. It outlives the
// delivery, so that a settle that is asked again gets its answer.
type grant struct {
	item    *item
	number  uint64 // the lease number: no two deliveries of a broker share one
	attempt int
	at      int64 // end of the lease as the consumer was told
	settled bool
	joined  bool // settled in a transaction that is open
	action  broker.Action
}

// lane holds back the messages of a key behind the one that is ready, in flight
// or delayed.
type lane struct {
	key     string
	waiting list[*item]
}

// subscription is a queue of copies. Its broker's lock guards it.
type subscription struct {
	b             *Broker
	topic         *topic
	name          string
	lease         int64 // nanoseconds
	maxDeliveries int   // 0: no limit
	deadLetter    string
	ordered       bool
	deleted       bool

	ready   list[*item]
	parked  list[*item]
	lanes   map[string]*lane
	spare   []*lane
	waiters list[*receiver]
	stats   struct{ waiting, inFlight, delayed int }
	ghosts  int // WithoutCancelGiveBack: messages that cancelled receives will swallow
}

// enqueue takes a new copy of c.
func (s *subscription) enqueue(c *cell, it *item) {
	it.cell, it.sub, it.place = c, s, nowhere
	it.link.of = it
	c.refs++
	if s.ordered && c.msg.Key != "" && !s.b.broken.keyOrderOverRedelivery && !s.b.broken.keyOrder {
		if l := s.lanes[c.msg.Key]; l != nil {
			it.lane, it.state = l, waiting
			l.waiting.push(&it.link)
			s.stats.waiting++
			return
		}
		it.lane = s.newLane(c.msg.Key)
	}
	s.offer(it)
}

func (s *subscription) newLane(key string) *lane {
	var l *lane
	if n := len(s.spare); n > 0 {
		l, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		l = new(lane)
	}
	l.key = key
	s.lanes[key] = l
	return l
}

// offer makes an item ready that is in no list and not on the agenda.
func (s *subscription) offer(it *item) {
	if s.ghosts > 0 {
		s.ghosts--
		s.hand(it, new(grant), nil, s.b.nano())
		return
	}
	it.state = ready
	if s.b.broken.keyOrder {
		s.ready.pushFront(&it.link)
	} else {
		s.ready.push(&it.link)
	}
	s.signal()
}

// signal wakes the longest waiting receiver if there is something for it. Each
// offer does, so a waiter can be left asleep beside a ready message only by one
// that was woken and goes away; that one signals again.
func (s *subscription) signal() {
	if s.ready.n > 0 && s.waiters.n > 0 {
		s.waiters.pop().wake <- struct{}{}
	}
}

// hand gives an item that is in no list to a receiver, nil for nobody.
func (s *subscription) hand(it *item, g *grant, r *receiver, now int64) {
	s.b.turn++
	it.attempts++
	it.turn, it.grant, it.state = s.b.turn, g, inFlight
	*g = grant{item: it, number: s.b.turn, attempt: it.attempts, at: later(now, s.lease)}
	s.stats.inFlight++
	if r != nil {
		r.held.push(&it.link)
	}
	s.runLease(it, g.at, now)
}

// runLease puts the end of an item's lease on the agenda.
func (s *subscription) runLease(it *item, at, now int64) {
	switch {
	case s.b.broken.leaseExpiry:
		return
	case s.b.broken.lateLeaseExpiry:
		at = later(at, 2*(at-now))
	}
	if it.place == nowhere {
		s.b.due.add(it, at)
	} else {
		s.b.due.move(it, at)
	}
}

// take hands up to n ready items to r.
func (s *subscription) take(r *receiver, n int, now int64) []grant {
	if n = min(n, s.ready.n); n == 0 {
		return nil
	}
	grants := make([]grant, n)
	for i := range grants {
		s.hand(s.ready.pop(), &grants[i], r, now)
	}
	return grants
}

// withdraw takes an item out of its list and off the agenda; whoever held it
// holds it no more.
func (s *subscription) withdraw(it *item) {
	switch it.state {
	case waiting:
		s.stats.waiting--
	case inFlight:
		s.stats.inFlight--
	case delayed:
		s.stats.delayed--
	}
	it.state, it.grant = adrift, nil
	it.link.leave()
	s.b.due.remove(it)
}

// release gives an item back that is in flight or delayed, to be ready after
// delay. One that was delivered often enough goes to the dead letters instead.
func (s *subscription) release(it *item, delay, now int64) {
	s.withdraw(it)
	switch {
	case s.maxDeliveries > 0 && it.attempts >= s.maxDeliveries:
		s.exhaust(it, now)
	case delay > 0:
		s.b.turn++
		it.turn, it.state = s.b.turn, delayed
		s.stats.delayed++
		s.b.due.add(it, later(now, delay))
	default:
		s.offer(it)
	}
}

// ReasonMaxDeliveries is the dead-letter reason of a message that was delivered
// Entity.MaxDeliveries times without an ack.
const ReasonMaxDeliveries = "max-deliveries"

// exhaust does with a withdrawn item what MaxDeliveries asks for.
func (s *subscription) exhaust(it *item, now int64) {
	if s.b.broken.deadLetterKept || s.bury(it, ReasonMaxDeliveries, now) != nil {
		it.state = parked
		s.parked.push(&it.link)
		s.nextOf(it)
		return
	}
	s.finish(it)
}

// bury stores the dead-letter copy of an item. It leaves the item itself alone.
func (s *subscription) bury(it *item, reason string, now int64) error {
	if s.deadLetter == "" {
		return broker.Errorf(broker.ErrUnsupported, nil, "subscription %s has no dead-letter topic", s.name)
	}
	t := s.b.topics[s.deadLetter]
	if t == nil {
		return broker.Errorf(broker.ErrNotFound, nil, "dead-letter topic %s of subscription %s", s.deadLetter, s.name)
	}
	if !s.b.broken.deadLetter {
		t.bury(s, it, reason, now)
	}
	return nil
}

// finish is the end of an item, wherever it was.
func (s *subscription) finish(it *item) {
	wasWaiting := it.state == waiting
	s.withdraw(it)
	it.state = done
	if wasWaiting {
		it.lane = nil
	} else {
		s.nextOf(it)
	}
	c := it.cell
	if c.refs--; c.refs == 0 {
		if s.b.broken.dedupAfterAck {
			delete(s.topic.seen, s.topic.key(&c.msg, ""))
		}
		// The handle of a delivery may keep the cell, and the cells of its
		// chunk, for long; the bodies must not stay with it.
		c.msg = broker.Message{}
	}
}

// nextOf lets the next message of its key come forward.
func (s *subscription) nextOf(it *item) {
	l := it.lane
	if l == nil {
		return
	}
	it.lane = nil
	if l.waiting.n > 0 {
		s.stats.waiting--
		s.offer(l.waiting.pop())
		return
	}
	delete(s.lanes, l.key)
	if len(s.spare) < 64 {
		s.spare = append(s.spare, l)
	}
}

// discard ends all items that lose says are lost, as a crash or a deletion does.
func (s *subscription) discard(lose func(*item) bool) {
	var gone []*item
	collect := func(l *list[*item]) {
		for e := l.head; e != nil; e = e.next {
			if lose(e.of) {
				gone = append(gone, e.of)
			}
		}
	}
	// Those who wait go first, so that none of them comes forward.
	for _, l := range s.lanes {
		collect(&l.waiting)
	}
	collect(&s.ready)
	collect(&s.parked)
	for _, it := range s.b.due {
		if it.sub == s && lose(it) {
			gone = append(gone, it)
		}
	}
	if s.b.broken.leaseExpiry {
		for c := range s.b.conns {
			for r := range c.receivers {
				if r.sub == s {
					collect(&r.held)
				}
			}
		}
	}
	for _, it := range gone {
		s.finish(it)
	}
}

// later is t + d without overflow, for d >= 0.
func later(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}
