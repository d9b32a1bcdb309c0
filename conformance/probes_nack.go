package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeNack. Anomaly: a consumer that can't do the work gives it back, and nobody
// gets it before a time-out; or it comes behind all that waits. Experiment, twice
// over: messages of one key wait, one receiver takes the first and gives it back
// without a delay, and another takes all; when the one given back comes, and in which
// place, is the answer. Where a message is bound to one receiver, that one takes them.
func probeNack(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, func(w *broker.Entity) {
		if b.Target.WishLease { // a nack that is dropped must not look like one that is slow
			w.Lease = max(b.Target.Lease, 10*time.Second)
		}
	})
	if err != nil {
		return err
	}
	// Those who take part are at work before anything is measured.
	if err := b.roundTrip(ctx, e); err != nil {
		return err
	}
	taker := e
	if !b.Target.Exclusive {
		if taker.rcv, err = b.second(ctx); err != nil {
			return err
		}
		if err := b.roundTrip(ctx, taker); err != nil {
			return err
		}
	}
	const rounds = 2
	var places []int
	behind := 0
	for range rounds {
		r, err := b.nackRound(ctx, e, taker.rcv)
		if err != nil {
			return err
		}
		switch {
		case r.refused != nil:
			b.Answer(boundary.DeliverRedeliverNack, boundary.Unsupported, "refused: %v", r.refused)
			return nil
		case r.place == 0:
			b.Answer(boundary.DeliverRedeliverNack, boundary.Never, "given back, and not delivered again in %s, while what was behind it was", r.after)
			return nil
		case r.after > r.bound:
			b.Answer(boundary.DeliverRedeliverNack, boundary.Late, "given back, and delivered again only after %s", r.after)
			return nil
		}
		places = append(places, r.place)
		if r.place == nackBatch {
			behind++
		}
	}
	switch {
	case b.Target.Exclusive:
		b.Answer(boundary.DeliverRedeliverNack, boundary.SameReceiver, "at once to the receiver that gave it back, which others can't take it from; places among %d: %v", nackBatch, places)
	case behind == rounds:
		b.Answer(boundary.DeliverRedeliverNack, boundary.Behind, "at once to another receiver, each time behind the %s that waited", amount(nackBatch-1, "message", "messages"))
	default:
		b.Answer(boundary.DeliverRedeliverNack, boundary.AtOnce, "at once to another receiver; places among %d: %v", nackBatch, places)
	}
	return nil
}

// nackBatch is enough for a nack that nobody answers to be on its way for a few round
// trips, and yet not to look as if it came behind all others.
const nackBatch = 5

// nackRound is one round of probeNack.
type nackRound struct {
	place   int           // from 1, in which the message given back came; 0: it didn't
	after   time.Duration // in the broker's time
	bound   time.Duration // up to which that is at once
	refused error         // the broker has no nack
}

func (b *Bench) nackRound(ctx context.Context, e ends, taker broker.Receiver) (n nackRound, err error) {
	ms := b.Messages(nackBatch)
	for i := range ms {
		ms[i].Key = "one" // where keys have an order, that is a place to keep
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return n, err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return n, err
	}
	start := b.Now()
	if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
		n.refused = o.Err
		if errors.Is(o.Err, broker.ErrUnsupported) {
			return n, nil
		}
		return n, fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
	}
	lease := b.Target.Lease
	if b.Target.WishLease {
		lease = max(lease, 10*time.Second)
	}
	n.bound = 2 * b.Target.patience()
	if lease > 0 {
		n.bound = min(n.bound, lease*3/4)
	}
	patience := b.Target.busy()
	for got := 1; got <= nackBatch; {
		ds, err := b.Receive(ctx, taker, 1, patience)
		n.after = b.Now().Sub(start).Round(tick)
		if err != nil {
			return n, err
		}
		if len(ds) == 0 && b.Instance.Advance != nil && n.after < 2*lease {
			if err := b.Wait(ctx, lease); err != nil { // the others came, or nothing does
				return n, err
			}
			continue
		}
		if len(ds) == 0 {
			return n, nil
		}
		if err := b.MustAck(ctx, taker, &ds[0]); err != nil {
			return n, err
		}
		if ds[0].ID == d.ID {
			n.place = got
			return n, b.take(ctx, taker, nackBatch-got)
		}
		if got++; got == nackBatch && b.Instance.Advance != nil {
			patience = b.Target.patience() // nothing else is on its way by now
		}
	}
	return n, nil
}

// take receives and acks n messages.
func (b *Bench) take(ctx context.Context, r broker.Receiver, n int) error {
	for range n {
		d, err := b.MustReceive(ctx, r)
		if err != nil {
			return err
		}
		if err := b.MustAck(ctx, r, &d); err != nil {
			return err
		}
	}
	return nil
}
