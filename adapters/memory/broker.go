package memory

import (
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Broker is a message broker in this process: topics, subscriptions and what
// they hold. It is safe for concurrent use; one lock guards its state, and no
// call holds it while it waits. It has no goroutine of its own.
type Broker struct {
	clock    *Clock    // nil: real time
	start    time.Time // of real time
	name     string    // of a named one
	defaults defaults
	broken   broken
	faults   faults

	mu      sync.Mutex
	closed  bool
	topics  map[string]*topic
	subs    map[string]*subscription
	conns   map[*conn]struct{}
	holders map[string]*holder // of transactor IDs
	due     due
	turn    uint64 // counts deliveries and delays
	clients int    // counts publishers
	timer   *time.Timer
	timerAt int64 // when the timer fires; 0: it doesn't
}

// New makes an empty broker. Close it when done: it may hold a timer or a place
// at a clock.
func New(opts ...Option) *Broker {
	b := &Broker{
		start:    time.Now(),
		defaults: defaults{window: 2 * time.Minute, lease: 30 * time.Second, maxBody: 1 << 20},
		topics:   map[string]*topic{},
		subs:     map[string]*subscription{},
		conns:    map[*conn]struct{}{},
		holders:  map[string]*holder{},
	}
	for _, opt := range opts {
		opt(b)
	}
	if b.clock != nil {
		b.clock.join(b)
	}
	return b
}

// Conn returns a new connection. Closing it gives back what its receivers hold
// and ends their handles. On a closed broker each of its calls returns
// broker.ErrClosed.
func (b *Broker) Conn() broker.Conn {
	c := &conn{b: b, link: newLink(), receivers: map[*receiver]struct{}{}}
	b.mu.Lock()
	b.conns[c] = struct{}{}
	b.mu.Unlock()
	return driver.New(c)
}

// Close ends all connections and everything that blocks on them, and forgets
// what the broker holds. It doesn't block and is idempotent.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.clock != nil {
		b.clock.leave(b)
	}
	unname(b)
	b.faults.disarm() // or a Receive could wait for a fault to pass, and nothing behind it
	for c := range b.conns {
		c.cut()
	}
	for _, s := range b.subs {
		s.wakeAll()
	}
	b.topics, b.subs, b.due = nil, nil, nil
}

// Restart ends all connections, as a broker does that goes down cleanly, and
// goes on. The handles of deliveries are fenced from then on; calls that wait
// for an answer end with an unknown outcome; a Receive that waits goes on
// waiting, on a new connection. With keepState the broker still has messages,
// IDs and leases, and what was in a consumer's hands comes again after its
// lease. Without it topics and subscriptions are there, but empty and with no
// memory of an ID, and offsets begin at 1.
func (b *Broker) Restart(keepState bool) {
	b.goDown(func(t *topic) {
		switch {
		case !keepState || b.broken.durableState:
			t.lose(0, true)
			t.next = 1
		case b.broken.dedupAfterRestart:
			t.seen, t.oldest, t.head = map[string]sighting{}, nil, 0
		}
		t.synced = t.next
	})
}

// Kill ends all connections, as a crash does, and goes on with what is durable:
// everything that was answered. Calls that wait for an answer end with an
// unknown outcome, and a request that a fault delays is gone.
func (b *Broker) Kill() {
	b.goDown(func(t *topic) {
		if b.broken.durableAck {
			t.lose(t.synced, true)
			t.next = t.synced
		}
	})
}

func (b *Broker) goDown(each func(*topic)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	now := b.begin()
	for c := range b.conns {
		c.cut()
	}
	for _, t := range b.topics {
		each(t)
	}
	b.arm(now)
}

// Stats is what a subscription holds.
type Stats struct {
	Ready    int // to be delivered
	Waiting  int // Ordered: behind an earlier message of their key
	Delayed  int // by a Nack
	InFlight int // in a consumer's hands
	Parked   int // delivered MaxDeliveries times, and no dead-letter topic to go to: never delivered again
}

// Stats returns what a subscription holds at present, or broker.ErrNotFound.
func (b *Broker) Stats(subscription string) (Stats, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.begin()
	defer b.arm(now)
	s := b.subs[subscription]
	if s == nil {
		return Stats{}, broker.Errorf(broker.ErrNotFound, nil, "subscription %s", subscription)
	}
	return Stats{Ready: s.ready.n, Waiting: s.stats.waiting, Delayed: s.stats.delayed, InFlight: s.stats.inFlight, Parked: s.parked.n}, nil
}

// now is the broker's time. In real time it follows the monotonic clock, so that
// a step of the wall clock ends no lease.
func (b *Broker) now() time.Time {
	if b.clock != nil {
		return b.clock.Now()
	}
	return b.start.Add(time.Since(b.start))
}

func (b *Broker) nano() int64 { return b.now().UnixNano() }

// begin starts an operation, with the lock held: what is due comes first.
func (b *Broker) begin() int64 {
	now := b.nano()
	for len(b.due) > 0 && b.due[0].at <= now {
		it := b.due[0]
		s := it.sub
		if it.state == inFlight {
			// As of when the lease ended, not of when it is noticed: a clock
			// may have been advanced by hours.
			if b.broken.expiryCount {
				it.attempts--
			}
			if b.broken.keyOrderOverExpiry {
				s.nextOf(it)
			}
			s.release(it, 0, it.at)
			continue
		}
		s.withdraw(it)
		s.offer(it)
	}
	return now
}

// arm ends an operation, with the lock held: it sees to it that tick runs when
// the next item is due. A timer that fires too early, for its item was settled,
// is cheaper than to set it anew at each settle.
func (b *Broker) arm(now int64) {
	if b.clock != nil || b.closed || len(b.due) == 0 {
		return
	}
	at := b.due[0].at
	if b.timerAt != 0 && b.timerAt <= at {
		return
	}
	b.timerAt = at
	if wait := time.Duration(at - now); b.timer == nil {
		b.timer = time.AfterFunc(wait, b.tick)
	} else {
		b.timer.Reset(wait)
	}
}

func (b *Broker) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.timerAt = 0
	b.arm(b.begin())
}
