package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeSettleAnswer. Anomaly: an ack looks done and isn't. Experiment: receive
// two messages, ack the second first, then the first, then ask for the second
// again; the outcomes are the answer.
func probeSettleAnswer(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, b.Messages(2)...); err != nil {
		return err
	}
	var ds []broker.Delivery
	for len(ds) < 2 {
		more, err := b.Receive(ctx, e.rcv, 2-len(ds), 3*b.Target.patience())
		if err != nil {
			return err
		}
		if len(more) == 0 {
			return errors.New("receive: the second message never came")
		}
		ds = append(ds, more...)
	}
	ahead := b.Settle(ctx, e.rcv, &ds[1], broker.Ack, 0)
	head := b.Settle(ctx, e.rcv, &ds[0], broker.Ack, 0)
	asked := b.Settle(ctx, e.rcv, &ds[1], broker.Ack, 0)
	switch {
	case ahead.State == broker.Confirmed && head.State == broker.Confirmed:
		b.Answer(boundary.SettleAnswer, boundary.Confirmed, "each ack is confirmed at once, in any order")
	case ahead.State == broker.Pending && head.State == broker.Confirmed && asked.State == broker.Confirmed:
		b.Answer(boundary.SettleAnswer, boundary.PendingFirst, "an ack ahead of an open message is Pending, and Confirmed when asked after that one was acked")
	case errors.Is(ahead.Err, broker.ErrConflict) && head.State == broker.Confirmed && asked.State == broker.Confirmed:
		b.Answer(boundary.SettleAnswer, boundary.InOrder, "an ack ahead of an open message is refused (%v), and Confirmed when asked after that one was acked", ahead.Err)
	case ahead.State == broker.Sent && head.State == broker.Sent:
		b.Answer(boundary.SettleAnswer, boundary.Sent, "acks are sent, and nothing is answered")
	default:
		b.Answer(boundary.SettleAnswer, boundary.None, "outcomes %s, %s, and %s when asked again", ahead.State, head.State, asked.State)
	}
	return nil
}

// probeSettleLostResponse. Anomaly: the ack took effect and its consumer is told
// that the lease was lost, or is told that it took effect without anybody
// knowing. Experiment: drop the answer after the broker was seen to apply the
// ack, let the caller give up, and settle the same delivery again. An ack before
// shows whether there is an answer at all.
func probeSettleLostResponse(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	plain, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	if o := b.Settle(ctx, e.rcv, &plain, broker.Ack, 0); o.State == broker.Sent {
		b.NotApplicable(boundary.SettleLostResponse, "an ack has no answer that could be lost")
		return nil
	} else if !o.State.OK() {
		return fmt.Errorf("ack %q: %s: %w", plain.ID, o.State, o.Err)
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	i, err := b.Inject(Fault{Op: OnSettle, Kind: LoseResponse, Times: 1, Cut: b.Target.CutLostSettle})
	if err != nil {
		return err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan broker.Outcome, 1)
	go func() { outcomes <- b.Settle(try, e.rcv, &d, broker.Ack, 0) }()
	if err := b.Applied(ctx, i); err != nil {
		return err
	}
	cancel()
	first := <-outcomes
	ask, done := context.WithTimeout(ctx, b.Target.patience()+5*time.Second)
	defer done()
	again := b.Settle(ask, e.rcv, &d, broker.Ack, 0)
	switch {
	case first.State == broker.LeaseLost || again.State == broker.LeaseLost:
		b.Answer(boundary.SettleLostResponse, boundary.ClaimedLost, "the broker took the ack; its consumer was told %s, then %s", first.State, again.State)
	case first.State != broker.Unknown:
		b.Answer(boundary.SettleLostResponse, boundary.ClaimedDone, "nobody heard the answer to the ack, and its consumer was told %s", first.State)
	case again.State == broker.Confirmed:
		b.Answer(boundary.SettleLostResponse, boundary.ConfirmedAgain, "Unknown at first, Confirmed when asked again")
	default:
		b.Answer(boundary.SettleLostResponse, boundary.StaysUnknown, "Unknown at first, %s when asked again: %v", again.State, again.Err)
	}
	return nil
}

// probeStale. Anomaly: a late ack settles the message while another consumer
// works on it, and a failure there loses it. Experiment: the first consumer
// holds a message past its lease (or its session, as a frozen process), the
// second gets it, the first acks, the second gives it back; if it never comes
// again the late ack took effect, and what the second one was told is whether it
// noticed.
func probeStale(ctx context.Context, b *Bench) error {
	return b.stale(ctx, boundary.SettleStale, boundary.SettleForeign, false)
}

// probeVendorStale is the same with the toolkit's fence off, so that the frame
// is sent and the broker itself decides.
func probeVendorStale(ctx context.Context, b *Bench) error {
	return b.stale(ctx, boundary.VendorSettleStale, boundary.VendorSettleForeign, true)
}

func (b *Bench) stale(ctx context.Context, id, foreign boundary.Claim, unfenced bool) error {
	pub, err := b.sender(ctx, nil)
	if err != nil {
		return err
	}
	late, err := b.lateConsumer(ctx, unfenced)
	if err != nil {
		return err
	}
	holder, held, err := b.superseded(ctx, pub, late)
	if err != nil {
		return err
	}
	stale, err := late.ack(ctx)
	if err != nil {
		return err
	}
	nack := b.Settle(ctx, holder, &held, broker.Nack, 0)
	if !nack.State.OK() {
		// The holder learns that it lost the message: that is an answer too.
		b.Note("the holder's nack: %s: %v", nack.State, nack.Err)
	}
	came, err := b.comesBack(ctx, pub, holder, held.ID)
	if err != nil {
		return err
	}
	switch {
	case came:
		b.Answer(foreign, boundary.Kept, "the holder gave its message back after the late ack (%s), and it came again", nack.State)
	case nack.State.OK():
		b.Answer(foreign, boundary.TakenUnnoticed, "the holder gave its message back and was told %s; it never came again, for the late ack had taken it", nack.State)
	default:
		b.Answer(foreign, boundary.TakenTold, "the holder gave its message back and was told %s (%v); the late ack had taken it", nack.State, nack.Err)
	}
	switch {
	case came && stale.State == broker.LeaseLost:
		b.Answer(id, boundary.Refused, "the late ack is LeaseLost (%v), and the message is its holder's still", stale.Err)
	case came && stale.State == broker.Confirmed:
		b.Answer(id, boundary.ClaimedDone, "the late ack is answered Confirmed and has no effect: the message came again when its holder gave it back")
	case came:
		b.Answer(id, boundary.Refused, "the late ack is answered %s and has no effect: the message came again when its holder gave it back", stale.State)
	default:
		b.Answer(id, boundary.TakesEffect, "the late ack is answered %s, and the message is gone from under its holder", stale.State)
	}
	return nil
}

// lateConsumer is one that comes too late: where deliveries have a lease, by
// waiting in this process; else as a process that is frozen past its session.
func (b *Bench) lateConsumer(ctx context.Context, unfenced bool) (consumer, error) {
	if b.Target.Lease > 0 {
		return b.modelled(ctx, "the late consumer", unfenced)
	}
	return b.consumer(ctx, "the late consumer", unfenced)
}

// takeOver lets the lease or session of late end and returns the delivery to
// the next holder.
func (b *Bench) takeOver(ctx context.Context, late consumer, next broker.Receiver, id string) (broker.Delivery, error) {
	late.freeze()
	defer late.thaw()
	return b.overtake(ctx, next, b.Target.Lease, id)
}

// superseded publishes a message, lets late receive it and stand still, and returns who
// has it then.
func (b *Bench) superseded(ctx context.Context, pub broker.Publisher, late consumer) (holder broker.Receiver, held broker.Delivery, err error) {
	m := b.Message()
	if _, err := b.MustPublish(ctx, pub, m); err != nil {
		return nil, held, err
	}
	if _, err := late.receive(ctx); err != nil {
		return nil, held, err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, held, err
	}
	if holder, err = b.Receiver(ctx, c); err != nil {
		return nil, held, err
	}
	held, err = b.takeOver(ctx, late, holder, m.ID)
	return holder, held, err
}

// overtake is takeOver from one that is frozen, whose lease is given.
func (b *Bench) overtake(ctx context.Context, next broker.Receiver, lease time.Duration, id string) (broker.Delivery, error) {
	bound := max(lease, b.Target.Session)
	within := 2*bound + 3*b.Target.patience()
	if b.Instance.Advance != nil {
		if err := b.Wait(ctx, bound+slack(bound)); err != nil {
			return broker.Delivery{}, err
		}
		within = b.Target.busy() // it is due
	}
	ds, err := b.Receive(ctx, next, 1, within)
	if err != nil {
		return broker.Delivery{}, err
	}
	if len(ds) == 0 || ds[0].ID != id {
		return broker.Delivery{}, fmt.Errorf("%w: %q", errNotOvertaken, id)
	}
	return ds[0], nil
}

// errNotOvertaken is why nobody but the frozen consumer has the message.
var errNotOvertaken = errors.New("the next consumer never got it")
