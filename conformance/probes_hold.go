package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// probeClose. Anomaly: an orderly shutdown keeps what was in hand until its lease
// ends, or for good; or an ack before it has covered older messages, too. Experiment:
// receive three messages, ack the last alone, close the receiver, and wait for the
// other two with another one.
func probeClose(ctx context.Context, b *Bench) error {
	var lease time.Duration
	e, err := b.ends(ctx, func(w *broker.Entity) { lease = b.wishPatience(w) })
	if err != nil {
		return err
	}
	for round := 1; ; round++ {
		after, missing, err := b.closeRound(ctx, e, lease)
		if err != nil {
			return err
		}
		if missing > 0 {
			b.Answer(boundary.DeliverClose, boundary.Never, "%d of 2 messages were not delivered again in %s", missing, after)
			return nil
		}
		answer := b.when(after, lease)
		// In real time a machine that does much else is slow. What waits for a bound
		// is never sooner.
		if b.Instance.Advance == nil && round < 3 && answer != boundary.AtOnce && b.Target.Boundary.Entries[boundary.DeliverClose].Declared == boundary.AtOnce {
			b.Note("round %d: after %s", round, after)
			if e.rcv, err = b.Receiver(ctx, e.conn); err != nil {
				return err
			}
			continue
		}
		b.Answer(boundary.DeliverClose, answer, "both came to another receiver %s after the close; %s", after, b.bounds(lease))
		return nil
	}
}

// closeRound closes e.rcv with two messages in hand and a later one acked, and returns after how long both
// had come to another receiver, or how many had not.
func (b *Bench) closeRound(ctx context.Context, e ends, lease time.Duration) (after time.Duration, left int, err error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	var other broker.Receiver
	if !b.Target.Exclusive {
		if other, err = b.Receiver(ctx, c); err != nil {
			return 0, 0, err
		}
	}
	held, err := b.hold(ctx, e.pub, e.rcv, 3)
	if err != nil {
		return 0, 0, err
	}
	// Where acks go by order it is refused or waits, and the message comes again with the others.
	if o := b.Settle(ctx, e.rcv, &held[2], broker.Ack, 0); !o.State.OK() && !errors.Is(o.Err, broker.ErrConflict) {
		return 0, 0, fmt.Errorf("ack %q: %s: %w", held[2].ID, o.State, o.Err)
	}
	held = held[:2]
	since := b.Now()
	end, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := e.rcv.Close(end); err != nil {
		return 0, 0, fmt.Errorf("close the first receiver: %w", err)
	}
	b.history.Add(report.Consumer, "close", "", "the first receiver, with %s in hand", amount(len(held), "message", "messages"))
	if b.Target.Exclusive {
		if other, err = b.Receiver(ctx, c); err != nil {
			return 0, 0, err
		}
	}
	missing := map[string]bool{}
	for i := range held {
		missing[held[i].ID] = true
	}
	bound := max(lease, b.Target.Session)
	after, err = b.allComeAgain(ctx, other, missing, since, bound, 3*bound, boundary.DeliverClose)
	if err != nil {
		return 0, 0, err
	}
	if len(missing) > 0 {
		err = b.witness(ctx, e.pub, other)
	} else {
		err = other.Close(ctx)
	}
	return after, len(missing), err
}

// hold publishes n messages and receives them, without settling any.
func (b *Bench) hold(ctx context.Context, p broker.Publisher, r broker.Receiver, n int) ([]broker.Delivery, error) {
	if _, err := b.MustPublish(ctx, p, b.Messages(n)...); err != nil {
		return nil, err
	}
	var held []broker.Delivery
	for len(held) < n {
		ds, err := b.Receive(ctx, r, n-len(held), b.Target.busy())
		if err != nil {
			return nil, err
		}
		if len(ds) == 0 {
			return nil, fmt.Errorf("receive: %d of %s never came", n-len(held), amount(n, "message", "messages"))
		}
		held = append(held, ds...)
	}
	return held, nil
}

// holdLease tells at once from after the lease on a busy machine.
const holdLease = 5 * time.Second

// wishPatience wishes for a lease that doesn't end while a probe is slow, where its
// time is real and it can be wished for, and returns the lease that the probe has.
func (b *Bench) wishPatience(w *broker.Entity) time.Duration {
	if b.Target.WishLease && b.Instance.Advance == nil {
		w.Lease = max(w.Lease, holdLease)
		return w.Lease
	}
	return b.Target.Lease
}

// when says by which bound a message came again.
func (b *Bench) when(after, lease time.Duration) boundary.Answer {
	switch session := b.Target.Session; {
	case after < max(lease, session)*3/4:
		return boundary.AtOnce
	case lease > 0 && after <= lease+slack(lease)+b.Target.patience()/2:
		return boundary.AfterLease
	case lease == 0 && after <= session+slack(session)+b.Target.patience():
		return boundary.AfterSession
	}
	return boundary.Late
}

func (b *Bench) bounds(lease time.Duration) string {
	if lease > 0 {
		return fmt.Sprintf("the lease is %s", lease)
	}
	return fmt.Sprintf("there is no lease, the session is %s", b.Target.Session)
}

// allComeAgain waits, in the broker's time, until r got all that is missing, for up to
// limit and the target's patience. It acks what comes and takes it out of missing, and
// returns how long the last one took. What is declared to come at once, or else is due
// at the bound, is waited for longest while a clock that the probe moves stands still:
// the answer is what is seen.
func (b *Bench) allComeAgain(ctx context.Context, r broker.Receiver, missing map[string]bool, since time.Time, bound, limit time.Duration, claim boundary.Claim) (after time.Duration, err error) {
	const steps = 8
	atOnce := b.Target.Boundary.Entries[claim].Declared == boundary.AtOnce
	for started, due := false, false; ; {
		patience := max(time.Millisecond, limit+b.Target.patience()-b.Now().Sub(since))
		if b.Instance.Advance != nil {
			patience = 20 * time.Millisecond
			over := b.Now().Sub(since) >= bound
			if !started || over {
				patience = b.Target.patience() / 2
			}
			if !started && atOnce || over && !due && !atOnce {
				patience = b.Target.busy()
			}
			started, due = true, due || over
		}
		ds, err := b.Receive(ctx, r, len(missing), patience)
		if err != nil {
			return 0, err
		}
		if err := b.mustAckAll(ctx, r, ds); err != nil {
			return 0, err
		}
		after = b.Now().Sub(since).Round(time.Millisecond)
		for i := range ds {
			delete(missing, ds[i].ID)
		}
		switch {
		case len(missing) == 0 || ctx.Err() != nil:
			return after, context.Cause(ctx)
		case len(ds) > 0:
			due = false // so may the rest be
			started = b.Now().Sub(since) >= bound
		case after >= limit:
			return after, nil
		case b.Instance.Advance != nil:
			if err := b.Wait(ctx, bound/steps); err != nil {
				return 0, err
			}
		}
	}
}

// probeReconnect. Anomaly: a connection breaks, and what its consumer held is never
// seen again, or is with a second consumer at once while the first works on.
// Experiment: a consumer holds two messages; the connection is cut, as it acks the
// first where requests can be struck, so that neither is settled; another receiver waits for the second, on a
// connection of its own, or the same one where a message belongs to one as long as it
// lives.
func probeReconnect(ctx context.Context, b *Bench) error {
	var lease time.Duration
	e, err := b.ends(ctx, func(w *broker.Entity) { lease = b.wishPatience(w) })
	if err != nil {
		return err
	}
	own, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	holder, err := b.Receiver(ctx, own)
	if err != nil {
		return err
	}
	other := e.rcv
	if b.Target.Exclusive {
		if err := e.rcv.Close(ctx); err != nil {
			return err
		}
		other = holder
	}
	held, err := b.hold(ctx, e.pub, holder, 2)
	if err != nil {
		return err
	}
	since := b.Now()
	i, err := b.Cut(OnSettle)
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotVerifiable(boundary.DeliverRedeliverReconnect, "the target can't cut a connection: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer i.Remove()
	if i.Hits() == 0 {
		if err := b.ackIntoCut(ctx, holder, &held[0], i); err != nil {
			return err
		}
	}
	missing := map[string]bool{held[1].ID: true}
	bound := max(lease, b.Target.Session)
	limit := 4 * bound
	if lease == 0 {
		limit = 2 * bound // what stays with its holder never comes
	}
	after, err := b.allComeAgain(ctx, other, missing, since, bound, limit, boundary.DeliverRedeliverReconnect)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		b.Answer(boundary.DeliverRedeliverReconnect, b.when(after, lease), "delivered again %s after the cut; %s", after, b.bounds(lease))
		return nil
	}
	late := b.Settle(ctx, holder, &held[1], broker.Ack, 0)
	pub, err := b.another(ctx) // e.pub's connection may have been cut as well
	if err != nil {
		return err
	}
	if err := b.witness(ctx, pub, other); err != nil {
		return err
	}
	if lease == 0 && late.State.OK() {
		b.Answer(boundary.DeliverRedeliverReconnect, boundary.NoLease, "not delivered again in %s: its holder reconnected, has it still, and its ack is %s", after, late.State)
		return nil
	}
	b.Answer(boundary.DeliverRedeliverReconnect, boundary.Never, "not delivered again in %s, and its holder's ack is %s; %s", after, late.State, b.bounds(lease))
	return nil
}

// ackIntoCut acks d, whose connection a fault cuts instead of passing the ack on.
func (b *Bench) ackIntoCut(ctx context.Context, holder broker.Receiver, d *broker.Delivery, i Injection) error {
	try, cancel := context.WithTimeout(ctx, time.Second)
	o := b.Settle(try, holder, d, broker.Ack, 0)
	cancel()
	for end := time.Now().Add(b.Target.busy()); i.Hits() == 0; { // an ack without an answer may be on its way still
		if time.Now().After(end) || !sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("the ack was not struck by the cut, and is %s", o.State)
		}
	}
	b.history.Add(report.Fault, "fault", "", "the connection was cut instead of passing the ack on")
	return nil
}

// probePrefetch. Anomaly: a receiver that works on two messages has fetched twenty,
// which age under its lease while others idle. Experiment: five messages, each with a
// key of its own; a receiver asks for two and settles none; another one must get the
// other three at once.
func probePrefetch(ctx context.Context, b *Bench) error {
	if b.Target.Exclusive {
		b.NotApplicable(boundary.DeliverPrefetch, "a message belongs to one receiver as long as that lives, whatever it asks for")
		return nil
	}
	var lease time.Duration
	e, err := b.ends(ctx, func(w *broker.Entity) { lease = b.wishPatience(w) })
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
	const asked = 2
	ms := b.Messages(5)
	for i := range ms {
		ms[i].Key = "key of " + ms[i].ID
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	held, err := b.Receive(ctx, e.rcv, asked, b.Target.busy())
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return errors.New("receive: nothing came, and the probe can't go on without it")
	}
	if len(held) > asked {
		b.Answer(boundary.DeliverPrefetch, boundary.Hoarded, "%d deliveries came to a Receive of %d", len(held), asked)
		return nil
	}
	within := b.Target.busy()
	if b.Instance.Advance == nil && lease > 0 {
		within = min(within, lease*3/4) // what comes later came by its lease
	}
	start, rest := time.Now(), len(ms)-len(held)
	got := map[string]bool{}
	for len(got) < rest {
		ds, err := b.Receive(ctx, other, rest-len(got), max(time.Millisecond, within-time.Since(start)))
		if err != nil {
			return err
		}
		if len(ds) == 0 {
			break
		}
		for i := range ds {
			if slices.ContainsFunc(held, func(h broker.Delivery) bool { return h.ID == ds[i].ID }) {
				return fmt.Errorf("%q came to another receiver while it was held", ds[i].ID)
			}
			got[ds[i].ID] = true
		}
		if err := b.mustAckAll(ctx, other, ds); err != nil {
			return err
		}
	}
	took := time.Since(start).Round(time.Millisecond)
	if len(got) < rest {
		b.Answer(boundary.DeliverPrefetch, boundary.Hoarded, "a receiver asked for %d and was given %d; of the other %d another receiver got %d in %s", asked, len(held), rest, len(got), took)
		return nil
	}
	b.Answer(boundary.DeliverPrefetch, boundary.Exact, "a receiver asked for %d and was given %d; another one had the other %d in %s", asked, len(held), rest, took)
	return nil
}
