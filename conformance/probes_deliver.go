package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
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
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	// The broker's lease began no later than now, the delivery's may say less.
	held := b.Now()
	after, came, err := b.comesAgain(ctx, other, d.ID, held, lease)
	if err != nil {
		return err
	}
	switch {
	case !came:
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.Never, "not delivered again in %s, with a lease of %s", after, lease)
	case after > lease+slack(lease)+b.Target.patience():
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.Late, "delivered again after %s, with a lease of %s", after, lease)
	case after < lease-slack(lease):
		return fmt.Errorf("delivered again after %s already, with a lease of %s", after, lease)
	default:
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.AfterLease, "delivered to another receiver after %s, with a lease of %s", after, lease)
	}
	return nil
}

// comesAgain waits, in the broker's time, until r gets the message, for up to
// four leases and the target's patience, and acks it.
func (b *Bench) comesAgain(ctx context.Context, r broker.Receiver, id string, since time.Time, lease time.Duration) (after time.Duration, came bool, err error) {
	const steps = 8
	limit := 4*lease + b.Target.patience()
	for {
		patience := limit - b.Now().Sub(since)
		if b.Instance.Advance != nil {
			// Nothing comes by itself while the clock stands still.
			patience = 20 * time.Millisecond
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
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
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
		b.Answer(boundary.DeliverRedeliverExpiry, boundary.AfterSession, "another receiver got it within twice the session of %s", b.Target.Session)
		return nil
	}
	if !d.Lease.IsZero() {
		return fmt.Errorf("the target says that there is no lease, and the delivery has one until %s", d.Lease)
	}
	if o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0); o.State != broker.Confirmed {
		return fmt.Errorf("ack by the first receiver, which held it all along: %s: %w", o.State, o.Err)
	}
	b.Answer(boundary.DeliverRedeliverExpiry, boundary.NoLease, "held for twice the session of %s by a receiver that lives, and its ack is confirmed", b.Target.Session)
	return nil
}

// probeCrash. Anomaly: a consumer dies with a message in its hands, and it is
// never seen again, or only much later; its effect is applied twice. Experiment:
// a consumer in a process of its own receives, applies the effect, and is killed
// before it acks; a second one waits for the message and applies the effect too.
func probeCrash(ctx context.Context, b *Bench) error {
	e, err := b.sender(ctx)
	if err != nil {
		return err
	}
	m := b.Message()
	first, err := b.consumer(ctx, "consumer 1", false)
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
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	other, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	bound := max(b.Target.Lease, b.Target.Session)
	after, came, err := b.comesAgain(ctx, other, m.ID, held, bound)
	if err != nil {
		return err
	}
	switch lease, session := b.Target.Lease, b.Target.Session; {
	case !came:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.Never, "not delivered again in %s", after)
	case lease > 0 && after < lease/2:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AtOnce, "delivered again after %s, with a lease of %s", after, lease)
	case lease > 0 && after <= lease+slack(lease)+b.Target.patience()/2:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AfterLease, "delivered again after %s, with a lease of %s", after, lease)
	case lease == 0 && after <= session+slack(session)+b.Target.patience():
		b.Answer(boundary.DeliverRedeliverCrash, boundary.AfterSession, "delivered again after %s, with a session of %s", after, session)
	default:
		b.Answer(boundary.DeliverRedeliverCrash, boundary.Late, "delivered again after %s", after)
	}
	if came {
		b.Effect(m.ID, "consumer 2")
	}
	n := CheckEffects(b.history.Events())[m.ID]
	b.Answer(boundary.EffectCrashAfterEffect, times(n), "applied %d times: by the consumer that was killed before its ack, and by the one that got the message next", n)
	return nil
}

// sender is a publisher alone, for probes whose consumers open connections of
// their own.
func (b *Bench) sender(ctx context.Context) (broker.Publisher, error) {
	c, err := b.Ensure(ctx, nil)
	if err != nil {
		return nil, err
	}
	return b.Publisher(ctx, c)
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
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
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
	after, came, err := b.comesAgain(ctx, e.rcv, d.ID, start, delay)
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

// probeAttempt. Anomaly: a poison message is given up too soon, or never, for
// the count is wrong. Experiment: nack twice with one receiver, then close it
// and receive with another; the numbers should be 1, 2, 3, 4, and the delivery
// says how far it trusts its own.
func probeAttempt(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	var seen []int
	var trust broker.Trust
	for range 3 {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		seen, trust = append(seen, d.Attempt.Number), d.Attempt.Trust
		if len(seen) == 3 {
			break // this one is held as the receiver closes
		}
		if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
			return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
		}
	}
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := e.rcv.Close(end); err != nil {
		return fmt.Errorf("close the first receiver: %w", err)
	}
	b.history.Add(report.Consumer, "close", "", "the first receiver, with the message in hand")
	next, err := b.Receiver(ctx, e.conn)
	if err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, next)
	if err != nil {
		return err
	}
	seen = append(seen, d.Attempt.Number)
	if err := b.MustAck(ctx, next, &d); err != nil {
		return err
	}
	inOne := seen[0] == 1 && seen[1] == 2 && seen[2] == 3
	switch {
	case trust == broker.None:
		b.Answer(boundary.DeliverAttempt, boundary.None, "numbers %v, which the deliveries themselves don't trust", seen)
	case inOne && seen[3] == 4 && trust == broker.Exact:
		b.Answer(boundary.DeliverAttempt, boundary.Exact, "numbers %v over a change of the receiver, said to be exact", seen)
	case inOne && seen[3] == 4:
		b.Answer(boundary.DeliverAttempt, boundary.Approximate, "numbers %v over a change of the receiver, said to be %s", seen, trust)
	case inOne && trust == broker.Approximate:
		b.Answer(boundary.DeliverAttempt, boundary.PerReceiver, "numbers %v: counted anew by the next receiver", seen)
	default:
		b.Answer(boundary.DeliverAttempt, boundary.Wrong, "numbers %v, said to be %s", seen, trust)
	}
	return nil
}

// probeOrder. Anomaly: the second change of a record is applied before the
// first. Experiment: publish messages of one key, between those of others,
// receive them one at a time, give the second of the key back once, and hold
// the order of deliveries against that of publishing.
func probeOrder(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Ordered = true })
	if errors.Is(err, broker.ErrUnsupported) {
		b.Note("an ordered subscription is refused (%v); asked without", err)
		e, err = b.ends(ctx, nil)
	}
	if err != nil {
		return err
	}
	ms := b.Messages(12)
	var want []string
	for i := range ms {
		ms[i].Key = "other"
		if i%2 == 0 {
			ms[i].Key = "key"
			want = append(want, ms[i].ID)
		}
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	given := false
	for done := 0; done < len(ms); {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		if d.ID == want[1] && !given {
			given = true
			if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
				return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
			}
			continue
		}
		if err := b.MustAck(ctx, e.rcv, &d); err != nil {
			return err
		}
		done++
	}
	events := b.history.Events()
	late, first := CheckOrder(events, want, false), CheckOrder(events, want, true)
	switch {
	case len(first) > 0:
		b.Answer(boundary.DeliverOrderKey, boundary.None, "out of order at their first delivery: %v", first)
	case len(late) > 0:
		b.Answer(boundary.DeliverOrderKey, boundary.UntilNack, "in order at first; after a nack came late: %v", late)
	case !b.ordered():
		// What is seen once on one receiver is no promise.
		b.Answer(boundary.DeliverOrderKey, boundary.None, "in order in this run, on a subscription that promises none")
	default:
		b.Answer(boundary.DeliverOrderKey, boundary.OverNack, "%d messages of the key in order, one of them given back on the way", len(want))
	}
	return nil
}

// ordered reports whether the probe's subscription was made with the wish for
// order.
func (b *Bench) ordered() bool {
	for _, e := range b.ensured {
		if e.Ordered {
			return true
		}
	}
	return false
}

// probeCancel. Anomaly: a message is handed over to a Receive that nobody waits
// for any more, and stands still until its lease ends. Experiment: many rounds
// of a Receive that is cancelled around the moment at which a message is
// published; whoever is entitled must have it within a second.
func probeCancel(ctx context.Context, b *Bench) error {
	const rounds = 20
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	other := e.rcv
	if !b.Target.Exclusive {
		c, err := b.Conn(ctx)
		if err != nil {
			return err
		}
		if other, err = b.Receiver(ctx, c); err != nil {
			return err
		}
	}
	// The first message makes sure that the receiver is at work.
	if err := b.roundTrip(ctx, e); err != nil {
		return err
	}
	var worst time.Duration
	caught, redelivered := 0, 0
	for range rounds {
		m := b.Message()
		ds, err := b.cancelled(ctx, e, m)
		if err != nil {
			return err
		}
		r, start := e.rcv, time.Now()
		if len(ds) > 0 {
			caught++
		} else {
			r = other
			if ds, err = b.Receive(ctx, other, 1, 1500*time.Millisecond); err != nil {
				return err
			}
			worst = max(worst, time.Since(start))
		}
		if len(ds) == 0 {
			b.Answer(boundary.DeliverCancel, boundary.Stranded, "%q was published as a Receive was cancelled, and nobody could have it within a second", m.ID)
			return nil
		}
		if ds[0].Attempt.Number > 1 {
			redelivered++
		}
		if err := b.MustAck(ctx, r, &ds[0]); err != nil {
			return err
		}
	}
	if worst > time.Second {
		b.Answer(boundary.DeliverCancel, boundary.Stranded, "a message took %s to reach another Receive", worst.Round(time.Millisecond))
		return nil
	}
	b.Answer(boundary.DeliverCancel, boundary.GivenBack, "%d rounds: %d messages came with the cancelled Receive, the others to the next one within %s; %d had cost an attempt",
		rounds, caught, worst.Round(time.Millisecond), redelivered)
	return nil
}

// cancelled publishes m and cancels a Receive at about the same moment, either
// first, and returns what that Receive got.
func (b *Bench) cancelled(ctx context.Context, e ends, m broker.Message) ([]broker.Delivery, error) {
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		ds  []broker.Delivery
		err error
	}
	results := make(chan result, 1)
	go func() {
		ds, err := e.rcv.Receive(try, 1)
		b.arrived("", ds)
		results <- result{ds, err}
	}()
	// The publish is a round trip, so the cancellation gets as much head start
	// as delay.
	publishAfter := time.Duration(b.Rand.IntN(1000)) * time.Microsecond
	cancelAfter := time.Duration(b.Rand.IntN(2000)) * time.Microsecond
	published := make(chan error, 1)
	go func() {
		sleep(ctx, publishAfter)
		_, err := b.MustPublish(ctx, e.pub, m)
		published <- err
	}()
	sleep(ctx, cancelAfter)
	cancel()
	got := <-results
	if err := <-published; err != nil {
		return nil, err
	}
	if len(got.ds) == 0 && !errors.Is(got.err, context.Canceled) {
		return nil, fmt.Errorf("a cancelled Receive returned %w", got.err)
	}
	return got.ds, nil
}

func (b *Bench) roundTrip(ctx context.Context, e ends) error {
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	return b.MustAck(ctx, e.rcv, &d)
}

// probeDeadLetter. Anomaly: a poison message is dropped, or is kept where nobody
// looks. Experiment: a subscription that admits two deliveries and names a
// dead-letter topic; nack until the message stops coming, and read that topic.
func probeDeadLetter(ctx context.Context, b *Bench) error {
	dead := b.Instance.entity(b.Entity.Topic + "dlq")
	wish := func(w *broker.Entity) { w.MaxDeliveries, w.DeadLetter = 2, dead.Topic }
	e, err := b.ends(ctx, wish)
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotApplicable(boundary.DeliverDeadLetter, "no dead-letter entity: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.conn.Ensure(ctx, dead); err != nil {
		return fmt.Errorf("ensure %s: %w", dead.Topic, err)
	}
	b.ensured = append(b.ensured, dead)
	letters, err := e.conn.OpenReceiver(ctx, dead.Subscription)
	if err != nil {
		return err
	}
	poison := b.Message()
	poison.Key, poison.Headers = "k", broker.Headers{{Key: "kept", Value: "header"}}
	if _, err := b.MustPublish(ctx, e.pub, poison); err != nil {
		return err
	}
	for range 2 {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
			return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
		}
	}
	moved, err := b.Receive(ctx, letters, 1, 3*b.Target.patience())
	if err != nil {
		return err
	}
	// What follows must come: the poison may not block the rest.
	if err := b.roundTrip(ctx, e); err != nil {
		return fmt.Errorf("after the poison: %w", err)
	}
	switch {
	case len(moved) == 0:
		b.Answer(boundary.DeliverDeadLetter, boundary.Dropped, "not delivered again, and not in %s; whether the broker keeps it apart can't be seen from outside", dead.Topic)
	case moved[0].ID != poison.ID || moved[0].Headers.Get("kept") != "header" || string(moved[0].Body) != string(poison.Body):
		return fmt.Errorf("what came to %s is not the message: %q %v", dead.Topic, moved[0].ID, moved[0].Headers)
	default:
		if err := b.MustAck(ctx, letters, &moved[0]); err != nil {
			return err
		}
		b.Answer(boundary.DeliverDeadLetter, boundary.Moved, "in %s after 2 deliveries, with ID, headers and body; reason: %q",
			dead.Topic, moved[0].Headers.Get("onceline-dead-letter-reason"))
	}
	return nil
}
