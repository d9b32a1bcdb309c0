package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// The mutants that lose track of which delivery is whose: they keep their own record of
// what is in hand.

// hand is a delivery in hand, with what settles it.
type hand struct {
	d broker.Delivery
	t driver.Token
}

// hands are the deliveries of a batch.
func hands(from *driver.Batch) []hand {
	hs := make([]hand, 0, from.Len())
	for i := range from.Len() {
		hs = append(hs, hand{*from.At(i), *from.TokenAt(i)})
	}
	return hs
}

func (h hand) add(to *driver.Batch) {
	d, t := to.Add()
	*d, *t = h.d, h.t
}

// record is what receivers have received and not settled, in order.
type record struct {
	mu sync.Mutex
	of map[driver.Receiver][]hand
}

func newRecord() *record { return &record{of: map[driver.Receiver][]hand{}} }

// receive takes down what comes.
func (h *record) receive(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[next] = append(h.of[next], hands(out)...)
	return err
}

// take removes those that want admits.
func (h *record) take(r driver.Receiver, want func(hand) bool) []hand {
	h.mu.Lock()
	defer h.mu.Unlock()
	var taken, left []hand
	for _, x := range h.of[r] {
		if want(x) {
			taken = append(taken, x)
		} else {
			left = append(left, x)
		}
	}
	h.of[r] = left
	return taken
}

// drop removes what is being settled.
func (h *record) drop(r driver.Receiver, ops []driver.Op) {
	for i := range ops {
		h.take(r, func(x hand) bool { return x.d.ID == ops[i].Settlement.Delivery.ID })
	}
}

func anything(hand) bool { return true }

// ackHands acks without looking at what is answered.
func ackHands(ctx context.Context, r driver.Receiver, hs []hand) {
	ops := make([]driver.Op, len(hs))
	for i := range hs {
		ops[i] = driver.Op{Settlement: &broker.Settlement{Delivery: &hs[i].d, Action: broker.Ack}, Token: &hs[i].t}
	}
	if len(ops) > 0 {
		r.Settle(ctx, ops)
	}
}

// ackBefore acks what it receives, and confirms whatever is settled.
func ackBefore() mutation {
	return mutation{
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			err := next.Receive(ctx, max, out)
			ackHands(context.WithoutCancel(ctx), next, hands(out))
			return err
		},
		settle: func(_ context.Context, _ driver.Receiver, ops []driver.Op) {
			for i := range ops {
				ops[i].Settlement.Outcome = broker.Outcome{State: broker.Confirmed, Lease: ops[i].Settlement.Delivery.Lease}
			}
		},
	}
}

// ackMultiple acks with each delivery all that the receiver got before it in its
// partition, as a cumulative ack does.
func ackMultiple() mutation {
	h := newRecord()
	return mutation{
		receive: h.receive,
		settle: func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
			for i := range ops {
				d, passed := ops[i].Settlement.Delivery, false
				older := func(x hand) bool {
					passed = passed || x.d.ID == d.ID
					return !passed && x.d.Position.Partition == d.Position.Partition
				}
				if ops[i].Settlement.Action == broker.Ack {
					ackHands(ctx, next, h.take(next, older))
				}
				h.drop(next, ops[i:i+1])
				next.Settle(ctx, ops[i:i+1])
			}
		},
	}
}

// ackOnPoll acks with each Receive all that came with those before it and isn't
// settled.
func ackOnPoll() mutation {
	h := newRecord()
	return mutation{
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			ackHands(ctx, next, h.take(next, anything))
			return h.receive(ctx, next, max, out)
		},
		settle: func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
			h.drop(next, ops)
			next.Settle(ctx, ops)
		},
	}
}

// ackOnClose acks all that is in hand as the receiver closes.
func ackOnClose() mutation {
	h := newRecord()
	return mutation{
		receive: h.receive,
		settle: func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
			h.drop(next, ops)
			next.Settle(ctx, ops)
		},
		close: func(ctx context.Context, next driver.Receiver) error {
			ackHands(ctx, next, h.take(next, anything))
			return next.Close(ctx)
		},
	}
}

// settleByID keeps what settles a message under its ID, for the whole process: a later
// delivery replaces an earlier one's, and no delivery says until when it may be used.
func settleByID() mutation {
	type lock struct {
		r driver.Receiver
		t driver.Token
	}
	var mu sync.Mutex
	locks := map[string]lock{}
	return mutation{
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			err := next.Receive(ctx, max, out)
			mu.Lock()
			defer mu.Unlock()
			for i := range out.Len() {
				d, t := out.At(i), out.TokenAt(i)
				locks[d.ID] = lock{next, *t}
				d.Lease, t.Epoch = time.Time{}, nil
			}
			return err
		},
		settle: func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
			for i := range ops {
				mu.Lock()
				l, known := locks[ops[i].Settlement.Delivery.ID]
				mu.Unlock()
				if !known {
					l = lock{next, *ops[i].Token}
				}
				one := []driver.Op{{Settlement: ops[i].Settlement, Token: &l.t, Again: ops[i].Again}}
				l.r.Settle(ctx, one)
				ops[i].Untouched = one[0].Untouched
			}
		},
	}
}

// settleByTag keeps of a delivery its number on the channel alone: after a reconnect
// the number is another delivery's.
func settleByTag() mutation {
	type place struct {
		r   driver.Receiver
		tag uint64
	}
	var mu sync.Mutex
	last := map[place]driver.Token{}
	return mutation{
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			err := next.Receive(ctx, max, out)
			mu.Lock()
			defer mu.Unlock()
			for i := range out.Len() {
				t := out.TokenAt(i)
				last[place{next, t.Tag}] = *t
				t.Epoch = nil
			}
			return err
		},
		settle: func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
			for i := range ops {
				mu.Lock()
				t := last[place{next, ops[i].Token.Tag}]
				mu.Unlock()
				one := []driver.Op{{Settlement: ops[i].Settlement, Token: &t, Again: ops[i].Again}}
				next.Settle(ctx, one)
				ops[i].Untouched = one[0].Untouched
			}
		},
	}
}

// keepOpen lets handles outlive their assignment, and takes whatever is settled under
// it for done.
func keepOpen() mutation {
	return mutation{
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			err := next.Receive(ctx, max, out)
			for i := range out.Len() {
				out.TokenAt(i).Epoch = nil
			}
			return err
		},
		settle: lostAsDone,
	}
}
