package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeFinal. Anomaly: a confirmed ack, and the message comes again. Experiment:
// ack with the outcome Confirmed, then wait for three leases, open a new
// connection, restart the broker, and look each time. deliver.redeliver.after-confirmed-ack
// asks the same of acks in every way there is: alone, in a batch, of a redelivery,
// after an Extend, and right before the connection or the broker ends, with no
// time to write anything down.
func probeFinal(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	if o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0); o.State != broker.Confirmed {
		if o.State.OK() {
			for _, id := range claims(boundary.SettleFinal, boundary.DeliverRedeliverAfterAck) {
				b.NotApplicable(id, "the broker confirms no ack (%s)", o.State)
			}
			return nil
		}
		return fmt.Errorf("ack %q: %s: %w", d.ID, o.State, o.Err)
	}
	f := &finality{b: b, alone: m.ID, acked: map[string]string{m.ID: "acked alone"}}
	if err := f.ackInEveryWay(ctx, e); err != nil {
		return err
	}
	lease := max(b.Target.Lease, b.Target.Session)
	if err := b.Wait(ctx, 3*lease); err != nil {
		return err
	}
	if err := f.look(ctx, e, "three leases"); err != nil {
		return err
	}
	if err := f.ackLast(ctx, e, "acked right before its connection ended"); err != nil {
		return err
	}
	if e, err = b.reopen(ctx, e); err != nil {
		return err
	}
	if err := f.look(ctx, e, "a reconnect"); err != nil {
		return err
	}
	if err := b.Others(ctx); err != nil {
		return err
	}
	if err := f.ackLast(ctx, e, "acked right before the broker was restarted"); err != nil {
		return err
	}
	if err := b.Restart(ctx); err != nil {
		return err
	}
	e, err = b.reopen(ctx, e)
	restarted := "after a restart"
	switch {
	case errors.Is(err, broker.ErrNotFound):
		restarted = fmt.Sprintf("and a restart leaves nothing, not even the topic (%v)", err)
	case err != nil:
		return err
	default:
		if err := f.look(ctx, e, "a restart of the broker"); err != nil {
			return err
		}
	}
	f.answer(fmt.Sprintf("in three leases of %s, to a new connection, %s", lease, restarted))
	return nil
}

// finality is what is known of messages whose acks were confirmed.
type finality struct {
	b     *Bench
	alone string            // the message that settle.final is about
	acked map[string]string // how each was acked
	again map[string]string // after what each came again
}

// ack acks all of ds in one call until each is Confirmed: what is Pending becomes
// that by asking.
func (f *finality) ack(ctx context.Context, r broker.Receiver, how string, ds ...broker.Delivery) error {
	for try := 0; ; try++ {
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i].Delivery = &ds[i]
		}
		_ = r.Settle(ctx, s) // the outcomes say more
		open := 0
		for i := range s {
			f.b.settled(ds[i].ID, broker.Ack, s[i].Outcome)
			switch o := s[i].Outcome; {
			case o.State == broker.Confirmed:
				f.acked[ds[i].ID] = how
			case o.State == broker.Pending && try < 3:
				open++
			default:
				return fmt.Errorf("ack %q (%s): %s: %w", ds[i].ID, how, o.State, o.Err)
			}
		}
		if open == 0 {
			return nil
		}
	}
}

// ackInEveryWay acks messages in each way but alone.
func (f *finality) ackInEveryWay(ctx context.Context, e ends) error {
	b := f.b
	const batch = 4
	if _, err := b.MustPublish(ctx, e.pub, b.Messages(batch)...); err != nil {
		return err
	}
	for got := 0; got < batch; {
		ds, err := b.Receive(ctx, e.rcv, batch-got, b.Target.busy())
		if err != nil {
			return err
		}
		if len(ds) == 0 {
			return fmt.Errorf("receive: %d of %s came", got, amount(batch, "message", "messages"))
		}
		got += len(ds)
		how := fmt.Sprintf("acked in a batch of %d", len(ds))
		if err := f.ack(ctx, e.rcv, how, ds...); err != nil {
			return err
		}
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
		return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
	}
	if d, err = b.MustReceive(ctx, e.rcv); err != nil {
		return err
	}
	if err := f.ack(ctx, e.rcv, "acked at its second delivery", d); err != nil {
		return err
	}
	if d, err = b.handOver(ctx, e); err != nil {
		return err
	}
	if o := b.Settle(ctx, e.rcv, &d, broker.Extend, 0); !o.State.OK() && !errors.Is(o.Err, broker.ErrUnsupported) {
		return fmt.Errorf("extend %q: %s: %w", d.ID, o.State, o.Err)
	}
	return f.ack(ctx, e.rcv, "acked after an Extend", d)
}

// ackLast acks a new message, after which something ends at once.
func (f *finality) ackLast(ctx context.Context, e ends, how string) error {
	d, err := f.b.handOver(ctx, e)
	if err != nil {
		return err
	}
	return f.ack(ctx, e.rcv, how, d)
}

// look takes all that comes; what was acked before has come again.
func (f *finality) look(ctx context.Context, e ends, after string) error {
	copies, err := f.b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	for id := range copies {
		if _, ok := f.acked[id]; !ok {
			continue
		}
		if f.again == nil {
			f.again = map[string]string{}
		}
		if f.again[id] == "" {
			f.again[id] = after
		}
	}
	return nil
}

func (f *finality) answer(looked string) {
	if after := f.again[f.alone]; after != "" {
		f.b.Answer(boundary.SettleFinal, boundary.Redelivered, "came again after %s", after)
	} else {
		f.b.Answer(boundary.SettleFinal, boundary.Final, "not delivered again: %s", looked)
	}
	if len(f.again) == 0 {
		f.b.Answer(boundary.DeliverRedeliverAfterAck, boundary.Final, "%s, none delivered again: %s", amount(len(f.acked), "message", "messages"), looked)
		return
	}
	var came []string
	for id, after := range f.again {
		came = append(came, fmt.Sprintf("%q, %s, after %s", id, f.acked[id], after))
	}
	slices.Sort(came)
	f.b.Answer(boundary.DeliverRedeliverAfterAck, boundary.Redelivered, "%d of %s came again: %s", len(came), amount(len(f.acked), "message", "messages"), strings.Join(came, "; "))
}
