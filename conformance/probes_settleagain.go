package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeSettleAgain. Anomalies: a consumer that acks twice is told that its message
// is lost; one that gives back what it has acked makes it come again; one bad
// settlement of a batch takes the good ones with it, or their outcomes. Experiment:
// ack a delivery twice; ack another and nack it; settle four in a call, of which two
// are bad: that nack once more, and a dead letter where there is no place for one, or
// else, in another call, a nack by a delay that no broker has. Then a new connection
// shows what comes again.
func probeSettleAgain(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	if err := b.reack(ctx, e); err != nil {
		return err
	}
	double, second, err := b.ackThenNack(ctx, e)
	if err != nil {
		return err
	}
	batch, err := b.partBad(ctx, e, &double)
	if err != nil {
		return err
	}
	again, err := b.afterAll(ctx, e, b.Target.Lease)
	if err != nil {
		return err
	}
	b.answerDouble(second, again[double.ID])
	b.answerPartBad(batch, again)
	return nil
}

// reack acks twice.
func (b *Bench) reack(ctx context.Context, e ends) error {
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	first := b.Settle(ctx, e.rcv, &d, broker.Ack, 0)
	o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0)
	switch {
	case o.State == broker.Confirmed && o.Err == nil:
		b.Answer(boundary.SettleReack, boundary.Confirmed, "the first ack is %s, the second Confirmed", first.State)
	case o.State == broker.Sent && o.Err == nil:
		b.Answer(boundary.SettleReack, boundary.Sent, "both acks are Sent")
	case o.State == broker.LeaseLost, errors.Is(o.Err, broker.ErrConflict):
		b.Answer(boundary.SettleReack, boundary.ClaimedLost, "the first ack is %s, the second %s: %v", first.State, o.State, o.Err)
	default:
		b.Answer(boundary.SettleReack, boundary.StaysUnknown, "the first ack is %s, the second %s: %v", first.State, o.State, o.Err)
	}
	return nil
}

// ackThenNack returns a delivery that was acked, and the outcome of giving it back
// afterwards.
func (b *Bench) ackThenNack(ctx context.Context, e ends) (broker.Delivery, broker.Outcome, error) {
	d, err := b.handOver(ctx, e)
	if err != nil {
		return d, broker.Outcome{}, err
	}
	b.Settle(ctx, e.rcv, &d, broker.Ack, 0)
	return d, b.Settle(ctx, e.rcv, &d, broker.Nack, 0), nil
}

func (b *Bench) answerDouble(o broker.Outcome, again int) {
	switch {
	case again > 0:
		b.Answer(boundary.SettleDouble, boundary.TakesEffect, "the nack is answered %s (%v), and the message came again though it was acked", o.State, o.Err)
	case errors.Is(o.Err, broker.ErrConflict):
		b.Answer(boundary.SettleDouble, boundary.Refused, "the nack is refused (%v), and the message didn't come again", o.Err)
	case o.State == broker.LeaseLost:
		b.Answer(boundary.SettleDouble, boundary.ClaimedLost, "the nack is answered LeaseLost (%v) for a delivery that was acked", o.Err)
	default:
		b.Answer(boundary.SettleDouble, boundary.ClaimedDone, "the nack is answered %s (%v), and the message didn't come again", o.State, o.Err)
	}
}

// partBad settles two good ones and two bad ones in a call. spent is a delivery that
// was acked before. Where the broker has dead letters without being asked for them,
// another call has a nack whose delay is beyond all brokers.
func (b *Bench) partBad(ctx context.Context, e ends, spent *broker.Delivery) ([]broker.Settlement, error) {
	ds, err := b.three(ctx, e)
	if err != nil {
		return nil, err
	}
	// The one that stays open comes last: where order counts, it holds up none.
	s, err := b.settleWithBad(ctx, e, []broker.Settlement{
		{Delivery: &ds[0], Action: broker.Ack},
		{Delivery: spent, Action: broker.Nack},
		{Delivery: &ds[2], Action: broker.DeadLetter, Reason: "asked for by the probe"},
		{Delivery: &ds[1], Action: broker.Ack},
	})
	if err != nil || s[2].Outcome.Err != nil {
		return s, err
	}
	if ds, err = b.three(ctx, e); err != nil {
		return nil, err
	}
	more, err := b.settleWithBad(ctx, e, []broker.Settlement{
		{Delivery: &ds[0], Action: broker.Ack},
		{Delivery: &ds[2], Action: broker.Nack, Delay: farAway},
		{Delivery: &ds[1], Action: broker.Ack},
	})
	if err == nil && more[1].Outcome.Err == nil {
		b.Note("This broker took both, a dead letter and a nack by %s: one settlement was bad, which the fence refuses.", farAway)
	}
	return append(s, more...), err
}

// farAway is a delay that no broker has.
const farAway = 1000 * time.Hour

// three are deliveries in hand.
func (b *Bench) three(ctx context.Context, e ends) ([]broker.Delivery, error) {
	if _, err := b.MustPublish(ctx, e.pub, b.Messages(3)...); err != nil {
		return nil, err
	}
	var ds []broker.Delivery
	for len(ds) < 3 {
		more, err := b.Receive(ctx, e.rcv, 3-len(ds), b.Target.busy())
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			return nil, fmt.Errorf("receive: only %d of 3 messages came", len(ds))
		}
		ds = append(ds, more...)
	}
	return ds, nil
}

// settleWithBad settles in one call. What is refused is acked afterwards: it is refused
// there alone, and the delivery is still in hand.
func (b *Bench) settleWithBad(ctx context.Context, e ends, s []broker.Settlement) ([]broker.Settlement, error) {
	_ = e.rcv.Settle(ctx, s) // the outcomes say more
	for i := range s {
		b.settled(s[i].Delivery.ID, s[i].Action, s[i].Outcome)
	}
	for i := range s {
		if why := s[i].Outcome.Err; why != nil && s[i].Action != broker.Ack && !errors.Is(why, broker.ErrConflict) {
			if err := b.MustAck(ctx, e.rcv, s[i].Delivery); err != nil {
				return nil, fmt.Errorf("after its %s was refused (%w): %w", s[i].Action, why, err)
			}
		}
	}
	return s, nil
}

// answerPartBad judges what partBad settled: the acks are good, the second one of all is
// bad, and others may be.
func (b *Bench) answerPartBad(s []broker.Settlement, again map[string]int) {
	answer := func(a boundary.Answer, format string, args ...any) {
		b.Answer(boundary.SettleBatchPartial, a, format, args...)
	}
	var undone, smeared *broker.Settlement
	acks := 0
	for i := range s {
		good := &s[i]
		if good.Action != broker.Ack {
			continue
		}
		acks++
		switch came := again[good.Delivery.ID] > 0; {
		case came && good.Outcome.State.OK():
			answer(boundary.ClaimedDone, "the good ack of %q is answered %s, and the message came again", good.Delivery.ID, good.Outcome.State)
			return
		case came:
			undone = good
		case good.Outcome.Err != nil || !good.Outcome.State.OK():
			smeared = good
		}
	}
	bad := s[1].Outcome
	switch {
	case undone != nil:
		answer(boundary.BatchLost, "the good ack of %q is answered %s (%v), and the message came again", undone.Delivery.ID, undone.Outcome.State, undone.Outcome.Err)
	case smeared != nil:
		answer(boundary.Smeared, "the good ack of %q took effect and is answered %s (%v)", smeared.Delivery.ID, smeared.Outcome.State, smeared.Outcome.Err)
	case !errors.Is(bad.Err, broker.ErrConflict):
		answer(boundary.Smeared, "the nack of a delivery that was acked before is answered %s (%v) beside good ones", bad.State, bad.Err)
	case len(s) == 4:
		answer(boundary.Exact, "%d acks took effect and are %s; the nack of a delivery that was acked before is refused, and a dead letter is %s",
			acks, s[0].Outcome.State, told(s[2].Outcome))
	default:
		answer(boundary.Exact, "%d acks took effect and are %s; the nack of a delivery that was acked before is refused, and one by %s is %s",
			acks, s[0].Outcome.State, farAway, told(s[5].Outcome))
	}
}

// told is an outcome in words.
func told(o broker.Outcome) string {
	if o.Err != nil {
		return fmt.Sprintf("refused (%v)", o.Err)
	}
	return fmt.Sprintf("answered %s", o.State)
}

// waitable is the longest lease that is waited for in real time to see whether an
// ack took effect: a new connection alone shows it where what ended with the old one
// goes back at once.
const waitable = 3 * time.Second

// afterAll lets leases end, opens a new connection, and returns what comes again. A
// message there and back before shows that settles without an answer have arrived.
func (b *Bench) afterAll(ctx context.Context, e ends, lease time.Duration) (map[string]int, error) {
	again := map[string]int{}
	last := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, last); err != nil {
		return nil, err
	}
	for again[last.ID] == 0 {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return nil, err
		}
		if err := b.MustAck(ctx, e.rcv, &d); err != nil {
			return nil, err
		}
		again[d.ID]++
	}
	if b.Instance.Advance != nil || lease > 0 && lease <= waitable {
		if err := b.Wait(ctx, lease+slack(lease)); err != nil {
			return nil, err
		}
	}
	e, err := b.reopen(ctx, e)
	if err != nil {
		return nil, err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	for id, n := range copies {
		again[id] += n
	}
	return again, err
}
