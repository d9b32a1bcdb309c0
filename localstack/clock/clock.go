// Package clock is time that can be moved ahead: what leases, windows and delays
// of an emulator are counted by, so that no test waits for them.
package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Clock tells a time that runs with the real one and can be moved ahead. All
// methods are safe for concurrent use. Inside testing/synctest the real time is
// the bubble's.
type Clock struct {
	mu     sync.Mutex
	ahead  time.Duration
	due    timers
	next   *time.Timer // for the earliest of due; nil where there is none
	closed bool
}

// New returns a clock that tells the real time until it is moved.
func New() *Clock { return new(Clock) }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time { return time.Now().Add(c.ahead) }

// Timer is a function that waits for its time.
type Timer struct {
	clock *Clock
	at    time.Time
	run   func()
	index int // in the heap; -1 when it isn't there
}

// AfterFunc calls f once, d after now by the clock; soon if d isn't positive. f
// runs in a goroutine of its own or in the one that calls Advance, and may use the
// clock. After Close it is never called.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &Timer{clock: c, at: c.now().Add(d), run: f, index: -1}
	if !c.closed {
		heap.Push(&c.due, t)
		c.arm()
	}
	return t
}

// Stop keeps the function from being called, and reports whether it did: false
// says that it has been called, is being called, or was stopped before.
func (t *Timer) Stop() bool {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.index < 0 {
		return false
	}
	heap.Remove(&c.due, t.index)
	c.arm()
	return true
}

// Advance moves the clock ahead by d, and calls in order of their time the
// functions that become due, each at its own time, also those that are added
// meanwhile. It returns when all of them have returned. A d that isn't positive
// calls what is due and moves nothing.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.now().Add(max(d, 0))
	for !c.closed && len(c.due) > 0 && !c.due[0].at.After(end) {
		t := heap.Pop(&c.due).(*Timer)
		c.ahead += max(t.at.Sub(c.now()), 0)
		c.call(t)
	}
	c.ahead += max(end.Sub(c.now()), 0)
	c.arm()
}

// call calls t's function without the lock.
func (c *Clock) call(t *Timer) {
	c.mu.Unlock()
	defer c.mu.Lock()
	t.run()
}

// Close stops all functions that wait. Now goes on; it doesn't wait for a
// function that is being called.
func (c *Clock) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, t := range c.due {
		t.index = -1
	}
	c.due = nil
	c.arm()
}

// arm sets the real timer for the earliest function.
func (c *Clock) arm() {
	if c.next != nil {
		c.next.Stop()
		c.next = nil
	}
	if len(c.due) > 0 {
		c.next = time.AfterFunc(c.due[0].at.Sub(c.now()), c.ring)
	}
}

// ring calls what is due by now.
func (c *Clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) > 0 && !c.due[0].at.After(c.now()) {
		c.call(heap.Pop(&c.due).(*Timer))
	}
	c.arm()
}

// timers is a heap by time; equal times keep no order.
type timers []*Timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *timers) Push(x any) {
	t := x.(*Timer)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop is part of heap.Interface.
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
