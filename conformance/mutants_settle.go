package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// dropAcks says Confirmed and tells the broker nothing.
func dropAcks(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Ack {
			ops[i].Settlement.Outcome.State = broker.Confirmed
			continue
		}
		next.Settle(ctx, ops[i:i+1])
	}
}

// swallowErrors takes a lost answer for a good one.
func swallowErrors(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		ops[i].Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
	}
}

// ignoreDelay gives a message back at once.
func ignoreDelay(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Nack {
			ops[i].Settlement.Delay = 0
		}
	}
	next.Settle(ctx, ops)
}

// ackNacks settles for good what is given back.
func ackNacks(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Nack {
			ops[i].Settlement.Action = broker.Ack
		}
	}
	next.Settle(ctx, ops)
}

// unknownAsLost says LeaseLost where nothing is known.
func unknownAsLost(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		if o := &ops[i].Settlement.Outcome; o.State == broker.Unknown {
			o.State = broker.LeaseLost
		}
	}
}

// confirmAtEnd takes an ack whose context ended for one that counted.
func confirmAtEnd(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	if ctx.Err() == nil {
		return
	}
	for i := range ops {
		ops[i].Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
	}
}

// smearSettlement fails all that is settled together with a bad one.
func smearSettlement(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		if err := ops[i].Settlement.Outcome.Err; err != nil {
			for j := range ops {
				ops[j].Settlement.Outcome = broker.Outcome{Err: err}
			}
			return
		}
	}
}

// leaveOpen says of a settle that took effect that nothing was done.
func leaveOpen(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		ops[i].Untouched = true
	}
}

// forgetConfirmed leaves the handle open and says of a second ack that it is lost.
func forgetConfirmed(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Token.Ref == nil {
			ops[i].Settlement.Outcome = broker.Outcome{State: broker.LeaseLost}
			continue
		}
		next.Settle(ctx, ops[i:i+1])
		if o := &ops[i].Settlement.Outcome; ops[i].Settlement.Action == broker.Ack && o.State == broker.Confirmed {
			ops[i].Token.Ref, ops[i].Untouched = nil, true
		}
	}
}

// ackLater confirms each ack and sends it with the next Receive.
func ackLater() mutation {
	var mu sync.Mutex
	var owed []driver.Op
	return mutation{
		settle: func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
			for i := range ops {
				s := ops[i].Settlement
				if s.Action != broker.Ack {
					next.Settle(ctx, ops[i:i+1])
					continue
				}
				own, d := *s, *s.Delivery
				own.Delivery = &d
				s.Outcome.State = broker.Confirmed
				mu.Lock()
				owed = append(owed, driver.Op{Settlement: &own, Token: ops[i].Token})
				mu.Unlock()
			}
		},
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			mu.Lock()
			now := owed
			owed = nil
			mu.Unlock()
			next.Settle(ctx, now)
			return next.Receive(ctx, max, out)
		},
	}
}

// longLeases tells that each lease runs for a day.
func longLeases(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		if d := out.At(i); !d.Lease.IsZero() {
			d.Lease = d.Lease.Add(24 * time.Hour)
		}
	}
	return err
}

// lostAsDone says Confirmed where the lease was lost.
func lostAsDone(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		if o := &ops[i].Settlement.Outcome; o.State == broker.LeaseLost {
			*o = broker.Outcome{State: broker.Confirmed}
		}
	}
}

// extendAnything confirms each Extend without asking anybody.
func extendAnything(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Extend {
			ops[i].Settlement.Outcome = broker.Outcome{State: broker.Confirmed, Lease: time.Now().Add(24 * time.Hour)}
			continue
		}
		next.Settle(ctx, ops[i:i+1])
	}
}

// settleUnseen says Confirmed as soon as it has sent.
func settleUnseen(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	own := make([]driver.Op, len(ops))
	for i := range ops {
		s, d, t := *ops[i].Settlement, *ops[i].Settlement.Delivery, *ops[i].Token
		s.Delivery = &d
		own[i] = driver.Op{Settlement: &s, Token: &t, Again: ops[i].Again}
		ops[i].Settlement.Outcome.State = broker.Confirmed
	}
	go next.Settle(context.WithoutCancel(ctx), own)
}

// stateInstead takes one outcome for another.
func stateInstead(is, said broker.State) func(context.Context, driver.Receiver, []driver.Op) {
	return func(ctx context.Context, next driver.Receiver, ops []driver.Op) {
		next.Settle(ctx, ops)
		for i := range ops {
			if o := &ops[i].Settlement.Outcome; o.State == is {
				*o = broker.Outcome{State: said}
			}
		}
	}
}

// nackDeadLetters gives back what is to be dead-lettered.
func nackDeadLetters(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.DeadLetter {
			ops[i].Settlement.Action = broker.Nack
		}
	}
	next.Settle(ctx, ops)
}
