package sqs

import (
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// held is one delivery in the application's hands, as Settle and Close need it.
// It lies in the slab of the Receive that made it: no allocation, map entry or
// lock for a message.
type held struct {
	msg      *types.Message
	slab     *slab
	deadline atomic.Int64 // unix nanoseconds: the end of its lease, conservative
	attempt  int32        // how often it was delivered
	spent    atomic.Bool  // a terminal settle was sent
	moved    atomic.Bool  // its copy is in the dead-letter queue
}

// slab is what one Receive handed out.
type slab struct {
	items []held // of fixed capacity, for tokens point into it
	left  atomic.Int32
	asked time.Time // when its receive was sent: no lease can have begun earlier
}

func newSlab(n int, asked time.Time) *slab { return &slab{items: make([]held, 0, n), asked: asked} }

// add returns the place of a delivery. The caller made enough of them.
func (s *slab) add(m *types.Message, deadline time.Time) *held {
	n := len(s.items)
	s.items = s.items[:n+1]
	h := &s.items[n]
	h.msg, h.slab = m, s
	h.deadline.Store(deadline.UnixNano())
	s.left.Add(1)
	return h
}

// done reports that nothing is left to give back.
func (s *slab) done(now int64) bool {
	if s.left.Load() <= 0 {
		return true
	}
	for i := range s.items {
		if h := &s.items[i]; !h.spent.Load() && h.deadline.Load() > now {
			return false
		}
	}
	return true
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
