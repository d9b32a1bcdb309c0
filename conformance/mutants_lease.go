package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// The mutants that lie about leases and about what they gave back.

// lie is by how much a deadline is made to look later than it is.
const lie = 10 * time.Second

// overstateLease says that a delivery is its consumer's for longer than it is.
func overstateLease(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		out.At(i).Lease = out.At(i).Lease.Add(lie)
	}
	return err
}

// extendNothing confirms an Extend, names a later deadline and tells the broker
// nothing.
func extendNothing(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		s := ops[i].Settlement
		if s.Action != broker.Extend {
			next.Settle(ctx, ops[i:i+1])
			continue
		}
		s.Outcome = broker.Outcome{State: broker.Confirmed, Lease: s.Delivery.Lease.Add(lie)}
	}
}

// overstateExtend extends, and names a deadline that is later than the broker's.
func overstateExtend(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		if s := ops[i].Settlement; s.Action == broker.Extend {
			s.Outcome.Lease = s.Outcome.Lease.Add(lie)
		}
	}
}

// extendOnce passes the first Extend of each delivery on, and confirms the others.
func extendOnce() func(context.Context, driver.Receiver, []driver.Op) {
	var mu sync.Mutex
	told := map[*broker.Delivery]time.Time{}
	return func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
		mu.Lock()
		defer mu.Unlock()
		for i := range ops {
			s := ops[i].Settlement
			if at, again := told[s.Delivery]; again && s.Action == broker.Extend {
				at = at.Add(heldLease)
				told[s.Delivery], s.Outcome = at, broker.Outcome{State: broker.Confirmed, Lease: at}
				continue
			}
			next.Settle(ctx, ops[i:i+1])
			if s.Action == broker.Extend {
				told[s.Delivery] = s.Outcome.Lease
			}
		}
	}
}

// prefetch asks for one message more than its caller wants and keeps it for the next
// call, with what is left of its lease.
func prefetch() func(context.Context, driver.Receiver, int, *driver.Batch) error {
	var mu sync.Mutex
	ahead := map[driver.Receiver][]hand{}
	return func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
		mu.Lock()
		have := ahead[next]
		mu.Unlock()
		if len(have) == 0 {
			var all driver.Batch
			all.Grow(max + 1)
			if err := next.Receive(ctx, max+1, &all); err != nil {
				return err
			}
			have = hands(&all)
		}
		n := min(max, len(have))
		for _, h := range have[:n] {
			h.add(out)
		}
		mu.Lock()
		defer mu.Unlock()
		ahead[next] = have[n:]
		return nil
	}
}

// dropNacks confirms a nack and tells the broker nothing.
func dropNacks(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if s := ops[i].Settlement; s.Action == broker.Nack {
			s.Outcome.State = broker.Confirmed
			continue
		}
		next.Settle(ctx, ops[i:i+1])
	}
}

// ackFirst confirms all acks of a batch and sends the first.
func ackFirst(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	sent := false
	for i := range ops {
		if s := ops[i].Settlement; s.Action == broker.Ack && sent {
			s.Outcome.State = broker.Confirmed
			continue
		} else if s.Action == broker.Ack {
			sent = true
		}
		next.Settle(ctx, ops[i:i+1])
	}
}
