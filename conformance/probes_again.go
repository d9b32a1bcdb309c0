package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
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
		b.Answer(boundary.DeliverRedeliverNack, boundary.Behind, "at once to another receiver, each time behind the %d messages that waited", nackBatch-1)
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

// probeRedelivered. Anomaly: a message was delivered before, its effect perhaps
// applied, and its next delivery looks like the first. Experiment: make messages come
// again in each way there is, by giving them back, by closing the receiver that holds
// them, by killing its process, by letting a lease end, and look at the number of
// each delivery: it must be over 1 for all of these, and 1 for all others.
func probeRedelivered(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	var f flags
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	f.first(&d)
	if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
		return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
	}
	if d, err = b.MustReceive(ctx, e.rcv); err != nil {
		return err
	}
	f.again("given back", &d)
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	if d, err = b.handOver(ctx, e); err != nil {
		return err
	}
	f.first(&d)
	if err := b.closeHolding(ctx, e.rcv); err != nil {
		return err
	}
	if e.rcv, err = b.Receiver(ctx, e.conn); err != nil {
		return err
	}
	if d, err = b.MustReceive(ctx, e.rcv); err != nil {
		return err
	}
	f.again("held as its receiver was closed", &d)
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	if err := b.abandoned(ctx, e, &f); err != nil {
		return err
	}
	f.answer(b)
	return nil
}

func (b *Bench) closeHolding(ctx context.Context, r broker.Receiver) error {
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := r.Close(end); err != nil {
		return fmt.Errorf("close a receiver: %w", err)
	}
	b.history.Add(report.Consumer, "close", "", "a receiver with what it holds")
	return nil
}

// abandoned lets one message's lease end, where deliveries have one, and kills the
// process that holds another, and looks at how both come again.
func (b *Bench) abandoned(ctx context.Context, e ends, f *flags) error {
	// The keys let both be out at a time where those of one key wait for each other.
	how := map[string]string{}
	if b.Target.Lease > 0 {
		held := b.Message()
		held.Key = "held"
		if _, err := b.MustPublish(ctx, e.pub, held); err != nil {
			return err
		}
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		f.first(&d)
		how[d.ID] = "held past its lease"
	} else if err := b.closeHolding(ctx, e.rcv); err != nil { // or the next one would get nothing
		return err
	}
	if !b.canCrash() {
		b.Note("No consumer's process can be killed here: what comes after a crash isn't seen.")
	} else {
		crashed, err := b.consumer(ctx, "consumer 1", false)
		if err != nil {
			return err
		}
		m := b.Message()
		m.Key = "crashed"
		if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
			return err
		}
		id, err := crashed.receive(ctx)
		if err != nil {
			return err
		}
		crashed.kill()
		how[id] = "held by a process that was killed"
	}
	take := func(r broker.Receiver, d broker.Delivery) error {
		if how[d.ID] == "" {
			return fmt.Errorf("%q came, which was acked before", d.ID)
		}
		f.again(how[d.ID], &d)
		return b.MustAck(ctx, r, &d)
	}
	left := len(how)
	if b.Instance.Advance != nil {
		n, err := b.freedAtOnce(ctx, take)
		if err != nil {
			return err
		}
		left -= n
		if err := b.Wait(ctx, b.Target.Lease+slack(b.Target.Lease)); err != nil {
			return err
		}
	}
	other, err := b.second(ctx)
	if err != nil {
		return err
	}
	for range left {
		d, err := b.MustReceive(ctx, other)
		if err != nil {
			return err
		}
		if err := take(other, d); err != nil {
			return err
		}
	}
	d, err := b.handOver(ctx, ends{pub: e.pub, rcv: other})
	if err != nil {
		return err
	}
	f.first(&d)
	return b.MustAck(ctx, other, &d)
}

// freedAtOnce takes what the end of a connection frees, where it is declared that it
// does, before the clock ends the lease of it: which of the two it was can make the
// difference. Its receiver is closed, so that no ack is on its way as the clock moves.
func (b *Bench) freedAtOnce(ctx context.Context, take func(broker.Receiver, broker.Delivery) error) (n int, err error) {
	if b.Target.Boundary.Entries[boundary.DeliverRedeliverCrash].Declared != boundary.AtOnce || !b.canCrash() {
		return 0, nil
	}
	r, err := b.second(ctx)
	if err != nil {
		return 0, err
	}
	ds, err := b.Receive(ctx, r, 1, b.Target.busy())
	if err != nil {
		return 0, err
	}
	for i := range ds {
		if err := take(r, ds[i]); err != nil {
			return 0, err
		}
	}
	return len(ds), b.closeHolding(ctx, r)
}

// flags collects what deliveries say of themselves.
type flags struct {
	firsts     []int
	agains     []string
	falseFirst []string
	silent     int
	trust      broker.Trust
}

func (f *flags) first(d *broker.Delivery) {
	f.firsts = append(f.firsts, d.Attempt.Number)
	f.see(d)
}

func (f *flags) again(how string, d *broker.Delivery) {
	f.agains = append(f.agains, fmt.Sprintf("%s %d", how, d.Attempt.Number))
	if d.Attempt.Number == 1 {
		f.falseFirst = append(f.falseFirst, how)
	}
	f.see(d)
}

func (f *flags) see(d *broker.Delivery) {
	f.trust = d.Attempt.Trust
	if d.Attempt.Number < 1 {
		f.silent++
	}
}

func (f *flags) answer(b *Bench) {
	const id = boundary.DeliverRedeliveredFlag
	falseAgain := 0
	for _, n := range f.firsts {
		if n > 1 {
			falseAgain++
		}
	}
	seen := fmt.Sprintf("attempts, said to be %s: first deliveries %v; %s", f.trust, f.firsts, strings.Join(f.agains, ", "))
	switch {
	case len(f.falseFirst) > 0:
		b.Answer(id, boundary.FalseFirst, "looks like a first delivery: %s (%s)", strings.Join(f.falseFirst, ", "), seen)
	case f.silent > 0:
		b.Answer(id, boundary.None, "%d of %d deliveries say nothing (%s)", f.silent, len(f.firsts)+len(f.agains), seen)
	case falseAgain > 0:
		b.Answer(id, boundary.FalseAgain, "%d first deliveries are said to be later ones (%s)", falseAgain, seen)
	default:
		b.Answer(id, boundary.Exact, "%s", seen)
	}
}
