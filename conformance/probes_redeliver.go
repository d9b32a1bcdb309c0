package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// slack is by how much a time may be missed: a lease is counted from before the
// hand-over, and a broker looks for expired ones in intervals.
func slack(d time.Duration) time.Duration { return d/4 + 250*time.Millisecond }

// probeExpiry. Anomaly: a stuck handler blocks its message for ever, or the
// message is given out while the handler has every right to it. Experiment: one
// receiver holds a message and does nothing; a second one waits for it.
func probeExpiry(ctx context.Context, b *Bench) error {
	lease := b.Target.Lease
	if lease == 0 {
		return b.probeNoLease(ctx)
	}
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	other, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	// The broker's lease began no later than now, and no earlier than the delivery's
	// lease, which is counted from when it was asked for.
	held := b.Now()
	after, came, err := b.comesAgain(ctx, other, d.ID, held, lease, boundary.DeliverRedeliverExpiry)
	if err != nil {
		return err
	}
	if !came {
		if err := b.witness(ctx, e.pub, other); err != nil {
			return err
		}
	}
	switch {
	case !came:
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.Never, "not delivered again in %s, with a lease of %s", after, lease)
	case after > lease+slack(lease)+b.Target.patience():
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.Late, "delivered again after %s, with a lease of %s", after, lease)
	case after < lease*9/10 && held.Add(after).Before(d.Lease):
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.Early, "delivered again after %s already, with a lease of %s", after, lease)
	default:
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.AfterLease, "delivered to another receiver after %s, with a lease of %s", after, lease)
	}
	return nil
}

// busy is how long a probe waits in real time for what a model whose clock stands
// still should do now: a machine that does much else is slow, not wrong.
func (t *Target) busy() time.Duration { return 10 * t.patience() }

// comesAgain waits, in the broker's time, until r gets the message, for up to
// four leases and the target's patience, and acks it. What the claim's declared
// answer says is due, at once or after the lease, is waited for longest where the
// broker's clock moves by the probe's hand alone: the answer is what is seen.
func (b *Bench) comesAgain(ctx context.Context, r broker.Receiver, id string, since time.Time, lease time.Duration, claim boundary.Claim) (after time.Duration, came bool, err error) {
	const steps = 8
	limit := 4*lease + b.Target.patience()
	atOnce := b.Target.Boundary.Entries[claim].Declared == boundary.AtOnce
	for first, due := true, false; ; first = false {
		patience := limit - b.Now().Sub(since)
		if b.Instance.Advance != nil {
			// Nothing comes by itself while the clock stands still, but what is due
			// takes some round trips.
			patience = 20 * time.Millisecond
			over := b.Now().Sub(since) >= lease
			if first || over {
				patience = b.Target.patience() / 2
			}
			if first && atOnce || over && !due && !atOnce {
				patience = b.Target.busy()
			}
			due = due || over
		}
		ds, err := b.Receive(ctx, r, 1, patience)
		if err != nil {
			return 0, false, err
		}
		after = b.Now().Sub(since).Round(time.Millisecond)
		for i := range ds {
			if err := b.MustAck(ctx, r, &ds[i]); err != nil {
				return 0, false, err
			}
			if ds[i].ID == id {
				return after, true, nil
			}
		}
		if after >= limit || ctx.Err() != nil {
			return after, false, context.Cause(ctx)
		}
		if b.Instance.Advance != nil {
			if err := b.Wait(ctx, lease/steps); err != nil {
				return 0, false, err
			}
		}
	}
}

// probeNoLease is probeExpiry where the adapter says that deliveries have no
// lease: then the broker must not give the message to another receiver while
// the first one lives.
func (b *Bench) probeNoLease(ctx context.Context) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	other, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	ds, err := b.Receive(ctx, other, 1, 2*b.Target.Session)
	if err != nil {
		return err
	}
	if len(ds) > 0 && ds[0].ID == d.ID {
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.Early, "another receiver got it while the first lives, within twice the session of %s", b.Target.Session)
		return nil
	}
	if !d.Lease.IsZero() {
		return fmt.Errorf("the target says that there is no lease, and the delivery has one until %s", d.Lease)
	}
	o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0)
	if !o.State.OK() {
		return fmt.Errorf("ack by the first receiver, which held it all along: %s: %w", o.State, o.Err)
	}
	b.Answer(boundary.DeliverRedeliverExpiry, boundary.NoLease, "held for twice the session of %s by a receiver that lives, and its ack is %s", b.Target.Session, o.State)
	return nil
}

// probeCrash. Anomaly: a consumer dies with a message in its hands, and it is
// never seen again, or only much later; its effect is applied twice. Experiment:
// a consumer in a process of its own receives, applies the effect, and is killed
// before it acks; a second one waits for the message and applies the effect too.
func probeCrash(ctx context.Context, b *Bench) error {
	e, err := b.sender(ctx, b.longer)
	if err != nil {
		return err
	}
	m := b.Message()
	if !b.canCrash() {
		b.unverifiable("consumers can't be killed here: the instance has no URL, or the program doesn't call RunIfWorker",
			boundary.DeliverRedeliverCrash, boundary.EffectCrashAfterEffect)
		return nil
	}
	first, err := b.consumer(ctx, "consumer 1", false)
	if err != nil {
		return err
	}
	// A busy machine takes its time to connect: not from what is measured.
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e, m); err != nil {
		return err
	}
	if _, err := first.receive(ctx); err != nil {
		return err
	}
	if err := first.effect(ctx); err != nil {
		return err
	}
	held := b.Now()
	first.kill()
	other, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	lease, session := b.askingLease(), b.Target.Session
	after, came, err := b.comesAgain(ctx, other, m.ID, held, max(lease, session), boundary.DeliverRedeliverCrash)
	if err != nil {
		return err
	}
	if !came {
		if err := b.witness(ctx, e, other); err != nil {
			return err
		}
	}
	switch {
	case !came:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.Never, "not delivered again in %s", after)
	case lease > 0 && after < lease*3/4:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AtOnce, "delivered again after %s, with a lease of %s", after, lease)
	case lease > 0 && after <= lease+slack(lease)+b.Target.patience()/2:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AfterLease, "delivered again after %s, with a lease of %s", after, lease)
	case lease == 0 && after < session/2:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AtOnce, "delivered again after %s, with a session of %s", after, session)
	case lease == 0 && after <= session+slack(session)+b.Target.patience():
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AfterSession, "delivered again after %s, with a session of %s", after, session)
	default:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.Late, "delivered again after %s", after)
	}
	if !came {
		b.Answer(boundary.EffectCrashAfterEffect, times(CheckEffects(b.history.Events())[m.ID]), "applied by the consumer that was killed before its ack, and nobody got the message again")
		return nil
	}
	b.Effect(m.ID, "consumer 2")
	n := CheckEffects(b.history.Events())[m.ID]
	b.Answer(boundary.EffectCrashAfterEffect, times(n), "applied %d times: by the consumer that was killed before its ack, and by the one that got the message next", n)
	return nil
}

// probeNackDelay. Anomaly: a message given back with a delay comes again at
// once, and a failing handler spins. Experiment: nack with a delay and measure
// when the message comes again.
func probeNackDelay(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	delay := time.Second
	if lease := b.Target.Lease; lease > 0 && lease < 2*delay {
		delay = 3 * lease // or a nack that was dropped would look the same
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	start := b.Now()
	o := b.Settle(ctx, e.rcv, &d, broker.Nack, delay)
	if errors.Is(o.Err, broker.ErrUnsupported) {
		b.Answer(boundary.DeliverRedeliverNackDelay, boundary.Unsupported, "refused: %v", o.Err)
		return nil
	}
	if !o.State.OK() {
		return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
	}
	after, came, err := b.comesAgain(ctx, e.rcv, d.ID, start, delay, boundary.DeliverRedeliverNackDelay)
	if err != nil {
		return err
	}
	// A tenth is for the broker's own granularity.
	switch {
	case !came:
		return fmt.Errorf("not delivered again in %s after a nack", after)
	case after < delay/4 && b.Instance.Advance == nil, after == 0:
		b.Answer(boundary.DeliverRedeliverNackDelay, boundary.Ignored, "came again after %s, with a delay of %s", after, delay)
	case after < delay*9/10:
		b.Answer(boundary.DeliverRedeliverNackDelay, boundary.Early, "came again after %s, with a delay of %s", after, delay)
	default:
		b.Answer(boundary.DeliverRedeliverNackDelay, boundary.Honoured, "came again after %s, with a delay of %s", after, delay)
	}
	return nil
}
