package localstack

import (
	"sync/atomic"
	"time"
)

// Slowness is how slow a network is; the zero value is as fast as it can be.
type Slowness struct {
	// Delay is how long each piece of data is on its way, in each direction. Pieces of
	// one connection and direction don't overtake each other, and the next one sets
	// out when the last has arrived, as on a line without a window.
	Delay time.Duration
	// BytesPerSecond bounds what each connection carries in each direction. Zero is no
	// bound.
	BytesPerSecond int
}

// wait is how long n bytes are on their way.
func (s *Slowness) wait(n int) time.Duration {
	d := s.Delay
	if s.BytesPerSecond > 0 {
		d += time.Duration(float64(n) / float64(s.BytesPerSecond) * float64(time.Second))
	}
	return d
}

// gate holds back the bytes of all connections while it is shut.
type gate struct {
	slow atomic.Pointer[Slowness]
	shut atomic.Pointer[chan struct{}] // nil = open, else closed on opening
}

// close shuts the gate; it is false when it was shut already.
func (g *gate) close() bool {
	c := make(chan struct{})
	return g.shut.CompareAndSwap(nil, &c)
}

func (g *gate) open() {
	if c := g.shut.Swap(nil); c != nil {
		close(*c)
	}
}

// pass blocks while the gate is shut; it is false when the link ended meanwhile.
func (g *gate) pass(done <-chan struct{}) bool {
	for {
		c := g.shut.Load()
		if c == nil {
			return true
		}
		select {
		case <-*c:
		case <-done:
			return false
		}
	}
}

// slowDown makes what passes from now on take its time.
func (g *gate) slowDown(s Slowness) { g.slow.Store(&s) }

// carry is pass for n bytes, which take their time.
func (g *gate) carry(n int, done <-chan struct{}) bool {
	if s := g.slow.Load(); s != nil {
		if d := s.wait(n); d > 0 {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-t.C:
			case <-done:
				return false
			}
		}
	}
	return g.pass(done)
}
