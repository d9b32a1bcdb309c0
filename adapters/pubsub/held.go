package pubsub

import (
	"sync/atomic"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// held is one delivery in the application's hands, as Close and Settle need it.
// It lies in the slab of the Receive that made it: no allocation, map entry or
// lock for a message.
type held struct {
	msg      *pb.ReceivedMessage
	slab     *slab
	deadline atomic.Int64 // unix nanoseconds: the end of its lease
	spent    atomic.Bool  // a terminal settle was sent
	copied   atomic.Bool  // its copy is in the dead-letter topic
}

// slab is what one Receive handed out.
type slab struct {
	items []held // of fixed capacity, for tokens point into it
	left  atomic.Int32
}

func newSlab(n int) *slab { return &slab{items: make([]held, 0, n)} }

// add returns the place of a delivery; there is one for each message that the
// slab was made for.
func (s *slab) add(m *pb.ReceivedMessage, lease time.Time) *held {
	n := len(s.items)
	s.items = s.items[:n+1]
	h := &s.items[n]
	h.msg, h.slab = m, s
	h.deadline.Store(lease.UnixNano())
	s.left.Add(1)
	return h
}

// open reports whether something is left to give back.
func (s *slab) open(now time.Time) bool {
	if s.left.Load() <= 0 {
		return false
	}
	nano := now.UnixNano()
	for i := range s.items {
		if h := &s.items[i]; !h.spent.Load() && h.deadline.Load() > nano {
			return true
		}
	}
	return false
}

// spend marks the delivery as settled, restore as held again.
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

// expired reports whether the lease has ended, so that a settle might hit
// somebody else's delivery.
func (h *held) expired(now time.Time) bool { return h.deadline.Load() <= now.UnixNano() }
