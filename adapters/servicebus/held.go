package servicebus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker/driver"
)

// puller is what the SDK's two kinds of receivers have in common.
type puller interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

// inbox is one receiver of the SDK: the receiver's only one, or a session that it
// holds.
type inbox struct {
	in      puller
	plain   *azservicebus.Receiver        // either this
	session *azservicebus.SessionReceiver // or this
	epoch   *driver.Epoch                 // of a session: the end of its lock or link
	held    atomic.Int32                  // deliveries in the application's hands

	// Of the one caller of Receive, or of Close after it.
	ask     int // how many messages the next pull asks for at most
	credits int // at most so many were asked for and haven't come
	stand   standing
	trip    time.Duration // how long a session's first message took to come; 0: it hasn't yet

	renewing sync.Mutex // held over a renewal of the session's lock

	mu    sync.Mutex
	until time.Time // when that ends, by this process's clock
	lock  time.Duration
	back  []int64 // sequence numbers of what was given back and hasn't come again
}

// firstAsk is how many messages the first pull without sessions asks for. What a pull leaves over
// stays open on its link: the SDK can't take it back, and gives the messages that
// come for it back to the broker until the next pull, each as often as there is
// credit. So a pull asks for twice of what came last time where all of it came,
// and for no more than that where less came.
const firstAsk = 8

// learn takes the answer to a pull for n into account.
func (b *inbox) learn(n, got int) {
	b.credits = max(b.credits, n) - got
	switch {
	case got < n:
		b.ask = max(1, got)
	case n == b.ask:
		b.ask = min(2*b.ask, maxCredits)
	}
}

// held is one delivery in the application's hands, as Close and Settle need it.
// It lies in the slab of the Receive that made it: no allocation, map entry or
// lock for a message.
type held struct {
	msg   *azservicebus.ReceivedMessage
	box   *inbox
	slab  *slab
	spent atomic.Bool // a terminal settle was sent
}

// slab is what one Receive handed out.
type slab struct {
	items    []held // of fixed length, for tokens point into it
	left     atomic.Int32
	deadline atomic.Int64 // unix nanoseconds: the latest lease of all items
}

// newSlab holds ms, which came to b.
func newSlab(ms []*azservicebus.ReceivedMessage, b *inbox) *slab {
	s := &slab{items: make([]held, len(ms))}
	for i, m := range ms {
		h := &s.items[i]
		h.msg, h.box, h.slab = m, b, s
	}
	s.left.Store(int32(len(ms)))
	b.held.Add(int32(len(ms)))
	return s
}

// done reports that nothing is left to give back.
func (s *slab) done(now time.Time) bool {
	return s.left.Load() <= 0 || s.deadline.Load() <= now.UnixNano()
}

// spend marks the delivery as settled, restore as held again.
func (h *held) spend() {
	if h.spent.CompareAndSwap(false, true) {
		h.slab.left.Add(-1)
		h.box.held.Add(-1)
	}
}

func (h *held) restore() {
	if h.spent.CompareAndSwap(true, false) {
		h.slab.left.Add(1)
		h.box.held.Add(1)
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
