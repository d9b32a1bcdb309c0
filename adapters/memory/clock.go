package memory

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is the time of brokers that were made with [WithClock]. It stands still
// until it is advanced. It is safe for concurrent use; several brokers may share
// one.
type Clock struct {
	start time.Time
	moved atomic.Int64 // nanoseconds since start

	mu      sync.Mutex
	brokers map[*Broker]struct{}
}

// NewClock returns a clock that stands at the present time.
func NewClock() *Clock {
	// Without a monotonic reading, so that times of the clock compare by what
	// they say.
	return &Clock{start: time.Now().Round(0), brokers: map[*Broker]struct{}{}}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.start.Add(time.Duration(c.moved.Load())) }

// Advance moves the clock by d and lets its brokers do what has become due:
// leases end, delays pass, waiting receivers wake. It returns when they have
// done so, without waiting for any receiver. A clock doesn't run backwards: a
// negative d panics.
func (c *Clock) Advance(d time.Duration) {
	if d < 0 {
		panic("memory: a clock can't be advanced by " + d.String())
	}
	c.moved.Add(int64(d))
	c.mu.Lock()
	brokers := make([]*Broker, 0, len(c.brokers))
	for b := range c.brokers {
		brokers = append(brokers, b)
	}
	c.mu.Unlock()
	for _, b := range brokers {
		b.tick()
	}
}

func (c *Clock) join(b *Broker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[b] = struct{}{}
}

func (c *Clock) leave(b *Broker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.brokers, b)
}
