package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// defaultLeases are the leases that brokers give by default.
var defaultLeases = []struct {
	lease  time.Duration
	answer boundary.Answer
}{
	{10 * time.Second, boundary.TenSeconds},
	{30 * time.Second, boundary.HalfMinute},
	{time.Minute, boundary.OneMinute},
	{30 * time.Minute, boundary.HalfHour},
}

// probeLeaseDefault. Anomaly: an application that never thought of leases does its
// work twice, for the broker gives it less time than the work takes. Experiment: a
// subscription without a wish; by a clock that is moved a second receiver shows when
// the lease ends. In real time that would take minutes: there the deadline is read
// that the first delivery names, and whether such a deadline is true is
// deliver.lease.accuracy.
func probeLeaseDefault(ctx context.Context, b *Bench) error {
	const id = boundary.DeliverLeaseDefault
	if b.Target.Lease > 0 && !b.Target.WishLease {
		b.NotVerifiable(id, "the lease of %s is set at this broker itself, and no entity is made without it: what the default would be isn't seen", b.Target.Lease)
		return nil
	}
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Lease = 0 })
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	asked := b.Now()
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	says := d.Lease.Sub(asked).Round(tick)
	switch {
	case b.Target.Lease == 0 && d.Lease.IsZero():
		b.Answer(id, boundary.NoLease, "the delivery has no deadline")
		return nil
	case d.Lease.IsZero():
		return fmt.Errorf("the target says that there is a lease, and %q has none", d.ID)
	case b.Instance.Advance == nil:
		b.Answer(id, nearest(says), "by the delivery's own word, %s, which wasn't waited for", says)
		return nil
	}
	other, err := b.second(ctx)
	if err != nil {
		return err
	}
	for _, c := range defaultLeases {
		last := b.Target.patience() / 2
		if c.answer == b.Target.Boundary.Entries[id].Declared {
			last = b.Target.busy() // what is due may take some round trips
		}
		before, _, err := b.watch(ctx, other, d.ID, asked.Add(c.lease*9/10), c.lease, 50*time.Millisecond)
		if err != nil {
			return err
		}
		if before.ID != "" {
			b.Answer(id, boundary.Other, "another receiver had it after less than %s", c.lease*9/10)
			return b.MustAck(ctx, other, &before)
		}
		due, _, err := b.watch(ctx, other, d.ID, asked.Add(c.lease*11/10), c.lease, last)
		if err != nil {
			return err
		}
		if due.ID != "" {
			b.Answer(id, c.answer, "another receiver had it between %s and %s; the delivery's own word was %s", c.lease*9/10, c.lease*11/10, says)
			return b.MustAck(ctx, other, &due)
		}
	}
	if err := b.witness(ctx, e.pub, other); err != nil {
		return err
	}
	b.Answer(id, boundary.Other, "nobody else had it in %s", b.Now().Sub(asked))
	return nil
}

// nearest is the answer for a lease that a delivery names.
func nearest(lease time.Duration) boundary.Answer {
	for _, c := range defaultLeases {
		if lease > c.lease*9/10 && lease < c.lease*11/10 {
			return c.answer
		}
	}
	return boundary.Other
}

// The longest hold that a probe tries, an hour beyond the only bound that any of the
// brokers documents, and the lease that it extends.
const (
	longestHold = 13 * time.Hour
	heldLease   = 5 * time.Minute
)

// probeLeaseMax. Anomaly: a job of hours extends its lease faithfully, and at some
// hour the broker gives it to another all the same. Experiment, by a clock that is
// moved: extend a lease of five minutes again and again for thirteen hours, with a
// second receiver that looks every hour. In real time no probe waits for hours:
// there only a broker that can't extend at all gives an answer.
func probeLeaseMax(ctx context.Context, b *Bench) error {
	const id = boundary.DeliverLeaseMax
	if b.Target.Lease == 0 {
		b.NotApplicable(id, "deliveries have no lease here")
		return nil
	}
	e, err := b.ends(ctx, func(w *broker.Entity) {
		if b.Instance.Advance != nil && b.Target.WishLease {
			w.Lease = heldLease
		}
	})
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	held := b.Now()
	o := b.Settle(ctx, e.rcv, &d, broker.Extend, 0)
	switch {
	case errors.Is(o.Err, broker.ErrUnsupported):
		b.Answer(id, boundary.FirstLease, "an Extend is refused: %v", o.Err)
		return nil
	case !o.State.OK():
		return fmt.Errorf("extend %q: %s: %w", d.ID, o.State, o.Err)
	case b.Instance.Advance == nil:
		b.NotVerifiable(id, "an Extend is taken; for how many hours, nobody waits here")
		return nil
	}
	other, err := b.second(ctx)
	if err != nil {
		return err
	}
	until, n, taken, err := b.keepExtending(ctx, e.rcv, other, &d, o.Lease)
	if err != nil {
		return err
	}
	switch total := until.Sub(held).Round(time.Second); {
	case total < 2*heldLease:
		b.Answer(id, boundary.FirstLease, "another receiver had it after %s, in spite of %d Extends", total, n)
	case total >= longestHold:
		b.Answer(id, boundary.NoLimit, "held for %s by %d Extends of a lease of %s, and no end was seen", total, n, heldLease)
	case total > 12*time.Hour-heldLease && total <= 12*time.Hour+heldLease && taken:
		b.Answer(id, boundary.HalfDay, "held for %s by %d Extends; then another receiver had it", total, n)
	default:
		b.Answer(id, boundary.Other, "held for %s by %d Extends; had by another receiver then: %t", total, n, taken)
	}
	return nil
}

// keepExtending extends the lease of d until it is lost or the longest hold is over, and
// returns until when it held, and whether other had the message then. The Extends are
// too many for the history; their sum is in the notes.
func (b *Bench) keepExtending(ctx context.Context, r, other broker.Receiver, d *broker.Delivery, until time.Time) (end time.Time, n int, taken bool, err error) {
	start, looked := b.Now(), time.Duration(0)
	for {
		now := b.Now()
		if now.Sub(start) >= longestHold {
			return now, n, false, b.MustAck(ctx, r, d)
		}
		b.Instance.Advance(max(until.Sub(now)*9/10, time.Second))
		s := []broker.Settlement{{Delivery: d, Action: broker.Extend}}
		_ = r.Settle(ctx, s) // the outcome says more
		o := s[0].Outcome
		if n++; !o.State.OK() {
			b.settled(d.ID, broker.Extend, o)
			ds, err := b.Receive(ctx, other, 1, 20*time.Millisecond)
			if err == nil && len(ds) == 0 {
				if err = b.Wait(ctx, slack(heldLease)); err == nil {
					ds, err = b.Receive(ctx, other, 1, b.Target.busy())
				}
			}
			if err != nil {
				return until, n, false, err
			}
			return until, n, len(ds) > 0 && ds[0].ID == d.ID, b.mustAckAll(ctx, other, ds)
		}
		until = o.Lease
		if at := b.Now().Sub(start); n == 2 || at-looked >= time.Hour {
			looked = at
			ds, err := b.Receive(ctx, other, 1, 50*time.Millisecond)
			if err != nil || len(ds) > 0 {
				return b.Now(), n, len(ds) > 0, errors.Join(err, b.mustAckAll(ctx, other, ds))
			}
		}
	}
}

// probePush. Anomaly: an endpoint gets more than it can take, or gets what no ack
// covers. There is no experiment: the contract asks for messages, and a broker that
// calls an endpoint of its own accord needs one that it can reach.
func probePush(_ context.Context, b *Bench) error {
	b.NotVerifiable(boundary.DeliverPush, "the contract asks for messages; what a broker pushes by itself isn't driven here")
	return nil
}
