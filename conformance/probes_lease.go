package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// second opens a receiver on a connection of its own, as another consumer does.
func (b *Bench) second(ctx context.Context) (broker.Receiver, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return b.Receiver(ctx, c)
}

// tick is the least by which a clock that is moved is held before a deadline.
const tick = time.Millisecond

// watch waits, in the broker's time, until r gets the message or it is stop, and
// returns when it came. By a clock that is moved it looks in steps, so that an
// early redelivery shows when it came; at the end it looks as long as what is due
// may take.
func (b *Bench) watch(ctx context.Context, r broker.Receiver, id string, stop time.Time, step, last time.Duration) (d broker.Delivery, at time.Time, err error) {
	for {
		left := stop.Sub(b.Now())
		patience := max(left, tick)
		if b.Instance.Advance != nil {
			patience = 20 * time.Millisecond
			if left <= 0 {
				patience = last
			}
		}
		ds, err := b.Receive(ctx, r, 1, patience)
		at = b.Now()
		switch {
		case err != nil:
			return d, at, err
		case len(ds) > 0 && ds[0].ID == id:
			return ds[0], at, nil
		case len(ds) > 0:
			if err := b.MustAck(ctx, r, &ds[0]); err != nil {
				return d, at, err
			}
		case left <= 0 || ctx.Err() != nil:
			return d, at, context.Cause(ctx)
		case b.Instance.Advance != nil:
			if err := b.Wait(ctx, min(left, step)); err != nil {
				return d, at, err
			}
		}
	}
}

// untilDue watches r for a message that somebody else may hold until the
// deadline, and then for as long as the broker may take to give it out again. It
// reports whether it came before the deadline, in time after it, or late or never.
// Where the deadline is later than the end of the lease as it began, a clock that is
// moved stands still behind that end for as long as what is due there may take: a
// message that comes while it moves on would seem to have come later.
func (b *Bench) untilDue(ctx context.Context, r broker.Receiver, id string, end, deadline time.Time) (w wait, err error) {
	lease, patience := b.Target.Lease, b.Target.patience()
	if end = end.Add(lease / 8); b.Instance.Advance != nil && end.Before(deadline) {
		w.d, w.at, err = b.watch(ctx, r, id, end, lease/8, 3*patience)
		if err != nil || w.came() {
			w.early = w.came()
			return w, err
		}
	}
	w.d, w.at, err = b.watch(ctx, r, id, deadline.Add(-tick), lease/8, patience/2)
	if err != nil || w.came() {
		w.early = w.came() && w.at.Before(deadline)
		return w, err
	}
	due := deadline.Add(slack(lease))
	if b.Instance.Advance == nil {
		due = due.Add(2 * patience) // a machine that does much else is slow, not wrong
	}
	w.d, w.at, err = b.watch(ctx, r, id, due, slack(lease), b.Target.busy())
	if err != nil || w.came() {
		return w, err
	}
	w.late = true
	w.d, w.at, err = b.watch(ctx, r, id, due.Add(2*lease), lease, patience/2)
	return w, err
}

// wait is how somebody waited for a message of another.
type wait struct {
	d           broker.Delivery
	at          time.Time // when it came, or nobody waited any longer
	early, late bool      // before the deadline; long after it, or not at all
}

func (w wait) came() bool { return w.d.ID != "" }

// probeLease. Anomaly: a delivery says that it is its consumer's for longer than
// the broker gives it, or its lease began to run while it lay in the client's
// buffer. Experiment: two messages are there, and a receiver asks for one; half a
// lease later it asks for the other and holds it, while a second receiver waits for
// that one. If it comes before the deadline which the delivery names, that says too
// much. If it comes half a lease early, it had been fetched along with the first.
func probeLease(ctx context.Context, b *Bench) error {
	lease := b.Target.Lease
	if lease == 0 {
		for _, id := range claims(boundary.DeliverLeaseAccuracy, boundary.DeliverLeaseClock) {
			b.NotApplicable(id, "deliveries have no lease here")
		}
		return nil
	}
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	other, err := b.second(ctx)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, b.Messages(2)...); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	if err := b.Wait(ctx, lease/2); err != nil {
		return err
	}
	asked := b.Now() // its lease began later, unless it was fetched before
	if d, err = b.MustReceive(ctx, e.rcv); err != nil {
		return err
	}
	if d.Lease.IsZero() {
		return fmt.Errorf("the target says that there is a lease of %s, and %q has none", lease, d.ID)
	}
	w, err := b.untilDue(ctx, other, d.ID, asked.Add(lease), d.Lease)
	if err != nil {
		return err
	}
	after, says := w.at.Sub(asked).Round(tick), d.Lease.Sub(asked).Round(tick)
	if !w.came() {
		if err := b.witness(ctx, e.pub, other); err != nil {
			return err
		}
		b.Answer(boundary.DeliverLeaseAccuracy, boundary.Understated, "the delivery said %s, and nobody else had it in %s", says, after)
		b.NotVerifiable(boundary.DeliverLeaseClock, "the message never came again, so what its lease was isn't seen")
		return nil
	}
	if err := b.MustAck(ctx, other, &w.d); err != nil {
		return err
	}
	switch {
	case w.early:
		b.Answer(boundary.DeliverLeaseAccuracy, boundary.Overstated, "the delivery said %s, and another receiver had it %s before", says, d.Lease.Sub(w.at).Round(tick))
	case w.late:
		b.Answer(boundary.DeliverLeaseAccuracy, boundary.Understated, "the delivery said %s, and another receiver had it only after %s", says, after)
	default:
		b.Answer(boundary.DeliverLeaseAccuracy, boundary.Exact, "the delivery said %s; nobody else had it before, and another receiver within %s of it", says, w.at.Sub(d.Lease).Round(tick))
	}
	if after < lease*9/10 {
		b.Answer(boundary.DeliverLeaseClock, boundary.FromHandOver, "asked for half a lease after the first, and another receiver had it %s later already, with a lease of %s: it had run before", after, lease)
	} else {
		b.Answer(boundary.DeliverLeaseClock, boundary.FromArrival, "asked for half a lease after the first, and its consumer's for the whole lease of %s: nothing was fetched ahead", lease)
	}
	return nil
}

// probeExtend. Anomaly: a consumer extends its lease, is told that it has it, and
// another one gets the message meanwhile; or nobody ever gets it again. Experiment:
// hold a message for half a lease, extend, and hold it on, while a second receiver
// waits: it may not come before the deadline that the Extend named, and must come
// after it.
func probeExtend(ctx context.Context, b *Bench) error {
	lease := b.Target.Lease
	if lease == 0 {
		b.NotApplicable(boundary.DeliverLeaseExtend, "deliveries have no lease here")
		return nil
	}
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	other, err := b.second(ctx)
	if err != nil {
		return err
	}
	var d broker.Delivery
	var held time.Time
	var o broker.Outcome
	for tries := 3; tries > 0; tries-- {
		if d, err = b.handOver(ctx, e); err != nil {
			return err
		}
		held = b.Now()
		if err := b.Wait(ctx, lease/2); err != nil {
			return err
		}
		o = b.Settle(ctx, e.rcv, &d, broker.Extend, 0)
		if o.State != broker.LeaseLost || b.Instance.Advance != nil || time.Now().Before(d.Lease) {
			break
		}
		b.Note("This process was too slow for a lease of %s; once more.", lease)
	}
	if errors.Is(o.Err, broker.ErrUnsupported) {
		b.Answer(boundary.DeliverLeaseExtend, boundary.Unsupported, "refused: %v", o.Err)
		return nil
	}
	if !o.State.OK() || o.Lease.IsZero() {
		return fmt.Errorf("extend %q: %s until %s: %w", d.ID, o.State, o.Lease, o.Err)
	}
	w, err := b.untilDue(ctx, other, d.ID, d.Lease, o.Lease)
	if err != nil {
		return err
	}
	after, says := w.at.Sub(held).Round(tick), o.Lease.Sub(held).Round(tick)
	if w.came() {
		if err := b.MustAck(ctx, other, &w.d); err != nil {
			return err
		}
	} else if err := b.witness(ctx, e.pub, other); err != nil {
		return err
	}
	switch {
	case w.early && after < lease*5/4:
		b.Answer(boundary.DeliverLeaseExtend, boundary.Ignored, "the Extend is %s until %s after the hand-over, and another receiver had the message after %s, with a lease of %s", o.State, says, after, lease)
	case w.early:
		b.Answer(boundary.DeliverLeaseExtend, boundary.Overstated, "the Extend is %s until %s after the hand-over, and another receiver had the message after %s", o.State, says, after)
	case o.Lease.Sub(d.Lease) < lease/4:
		b.Answer(boundary.DeliverLeaseExtend, boundary.Ignored, "the Extend is %s, and moves the deadline by %s, half way through a lease of %s", o.State, o.Lease.Sub(d.Lease).Round(tick), lease)
	case w.late:
		b.Answer(boundary.DeliverLeaseExtend, boundary.Late, "the Extend is %s until %s after the hand-over, and nobody else had the message before %s", o.State, says, after)
	default:
		b.Answer(boundary.DeliverLeaseExtend, boundary.Honoured, "extended half way through a lease of %s until %s after the hand-over; nobody else had the message before, and another receiver within %s of it",
			lease, says, w.at.Sub(o.Lease).Round(tick))
	}
	return nil
}
