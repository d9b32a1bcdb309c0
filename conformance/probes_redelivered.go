package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

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

// left is what consumers left behind: how each message was held, and the ID of one
// that nobody had.
type left struct {
	how   map[string]string
	fresh string
}

// leave lets a receiver hold one message, where deliveries have a lease, and kills the
// process that holds another.
func (b *Bench) leave(ctx context.Context, e ends, f *flags) (l left, err error) {
	// The keys let both be out at a time where those of one key wait for each other.
	held, crashed := b.Message(), b.Message()
	held.Key, crashed.Key = "held", "crashed"
	l.how = map[string]string{}
	if b.Target.Lease == 0 { // or the next one would get nothing
		if err := b.closeHolding(ctx, e.rcv); err != nil {
			return l, err
		}
	}
	var victim consumer
	if b.canCrash() {
		if victim, err = b.consumer(ctx, "consumer 1", false); err != nil {
			return l, err
		}
	} else {
		b.Note("No consumer's process can be killed here: what comes after a crash isn't seen.")
	}
	if b.Target.Lease > 0 {
		if _, err := b.MustPublish(ctx, e.pub, held); err != nil {
			return l, err
		}
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return l, err
		}
		f.first(&d)
		l.how[d.ID] = "held past its lease"
	}
	if victim == nil {
		return l, nil
	}
	if _, err := b.MustPublish(ctx, e.pub, crashed); err != nil {
		return l, err
	}
	id, err := victim.receive(ctx)
	if err != nil {
		return l, err
	}
	victim.kill()
	l.how[id] = "held by a process that was killed"
	if id != crashed.ID { // the other one's lease was over by then
		l.fresh = crashed.ID
	}
	return l, nil
}

// abandoned looks at how messages come again that nobody gave back.
func (b *Bench) abandoned(ctx context.Context, e ends, f *flags) error {
	l, err := b.leave(ctx, e, f)
	if err != nil {
		return err
	}
	take := func(r broker.Receiver, d broker.Delivery) error {
		switch {
		case l.how[d.ID] != "":
			f.again(l.how[d.ID], &d)
			delete(l.how, d.ID)
		case d.ID == l.fresh:
			f.first(&d)
			l.fresh = ""
		default:
			return fmt.Errorf("%q came, which was acked before", d.ID)
		}
		return b.MustAck(ctx, r, &d)
	}
	if b.Instance.Advance != nil {
		if err := b.freedAtOnce(ctx, take); err != nil {
			return err
		}
		if err := b.Wait(ctx, b.Target.Lease+slack(b.Target.Lease)); err != nil {
			return err
		}
	}
	other, err := b.second(ctx)
	if err != nil {
		return err
	}
	for len(l.how) > 0 || l.fresh != "" {
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
func (b *Bench) freedAtOnce(ctx context.Context, take func(broker.Receiver, broker.Delivery) error) error {
	if b.Target.Boundary.Entries[boundary.DeliverRedeliverCrash].Declared != boundary.AtOnce || !b.canCrash() {
		return nil
	}
	r, err := b.second(ctx)
	if err != nil {
		return err
	}
	ds, err := b.Receive(ctx, r, 1, b.Target.busy())
	if err != nil {
		return err
	}
	for i := range ds {
		if err := take(r, ds[i]); err != nil {
			return err
		}
	}
	return b.closeHolding(ctx, r)
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
