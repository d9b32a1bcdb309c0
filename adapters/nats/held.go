package nats

import (
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// held is one delivery in the application's hands, as Close and Settle need it.
// It lies in the slab of the Receive that made it: no allocation, map entry or
// lock for a message.
type held struct {
	msg       *natsgo.Msg
	slab      *slab
	delivered uint64
	spent     atomic.Bool // a terminal settle was sent
}

// slab is what one Receive handed out.
type slab struct {
	items    []held // of fixed capacity, for tokens point into it
	left     atomic.Int32
	deadline atomic.Int64 // unix nanoseconds: the latest lease of all items
}

func newSlab(n int, deadline time.Time) *slab {
	s := &slab{items: make([]held, 0, n)}
	s.deadline.Store(deadline.UnixNano())
	return s
}

// add returns the place of a delivery, or nil if the slab is full.
func (s *slab) add(m *natsgo.Msg, delivered uint64) *held {
	n := len(s.items)
	if n == cap(s.items) {
		return nil
	}
	s.items = s.items[:n+1]
	h := &s.items[n]
	h.msg, h.slab, h.delivered = m, s, delivered
	s.left.Add(1)
	return h
}

// done reports that nothing is left to give back.
func (s *slab) done(now time.Time) bool {
	return s.left.Load() <= 0 || s.deadline.Load() <= now.UnixNano()
}

// spend marks the delivery as settled, back as held again.
func (h *held) spend() {
	if h.spent.CompareAndSwap(false, true) {
		h.slab.left.Add(-1)
	}
}

func (h *held) restore() {
	if h.spent.CompareAndSwap(true, false) {
		h.slab.left.Add(1)
	}
}

// extend moves the slab's deadline to t if that is later.
func (s *slab) extend(t time.Time) {
	for nano := t.UnixNano(); ; {
		was := s.deadline.Load()
		if was >= nano || s.deadline.CompareAndSwap(was, nano) {
			return
		}
	}
}
