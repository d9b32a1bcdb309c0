package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probePartialRoute. Anomaly: a message is called refused, or stored, and some of the
// topic's subscriptions have it and others don't. Experiment: subscribe to the topic a
// second time with room for next to nothing, publish until a receipt is not a good one,
// and look into both subscriptions for that message. Then, as what was in the full one
// is settled, publish the message again under its ID, and count once more.
func probePartialRoute(ctx context.Context, b *Bench) error {
	const id = boundary.PublishPartialRoute
	if b.Instance.FullSubscription == nil {
		b.NotVerifiable(id, "the target has no way to make a second subscription that is full")
		return nil
	}
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	full, err := b.besideFull(ctx, e)
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotApplicable(id, "no subscription of a topic can refuse by itself: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	m, r := b.untilNotGood(ctx, e.pub)
	others, err := b.cameOf(ctx, e.rcv, m.ID)
	if err != nil {
		return err
	}
	inFull, err := b.cameOf(ctx, full, m.ID)
	if err != nil {
		return err
	}
	if inFull > 0 {
		return fmt.Errorf("the subscription that was to be full took %q as well, the last of %s, whose receipt is %s",
			m.ID, amount(b.published(), "message", "messages"), r.Verdict)
	}
	where := fmt.Sprintf("the full subscription doesn't have it, the other has it %s", often(others))
	switch {
	case r.Verdict.OK() && others == 0:
		b.Answer(id, boundary.Lost, "the receipt is %s; %s", r.Verdict, where)
	case r.Verdict.OK():
		b.Answer(id, boundary.LeftOut, "the receipt is %s; %s", r.Verdict, where)
	case r.Verdict == broker.Refused && others > 0:
		b.Answer(id, boundary.ClaimedRefused, "%v; %s", r.Err, where)
	case r.Verdict == broker.Refused:
		b.Answer(id, boundary.AllOrNone, "%v; %s", r.Err, where)
	case others > 0:
		b.Answer(id, boundary.UnknownStored, "%v; %s", r.Err, where)
	default:
		b.Answer(id, boundary.UnknownNowhere, "%v; %s", r.Err, where)
	}
	if r.Verdict.OK() {
		return nil
	}
	return b.onceThereIsRoom(ctx, e, full, m, others)
}

// besideFull makes a subscription that refuses beside the probe's own, and receives
// from it.
func (b *Bench) besideFull(ctx context.Context, e ends) (broker.Receiver, error) {
	name, err := b.Instance.FullSubscription(ctx, e.conn, b.Entity)
	if errors.Is(err, broker.ErrUnsupported) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("a second subscription that is full: %w", err)
	}
	b.mu.Lock()
	b.ensured = append(b.ensured, broker.Entity{Topic: b.Entity.Topic, Subscription: name})
	b.mu.Unlock()
	r, err := e.conn.OpenReceiver(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("receive from the second subscription: %w", err)
	}
	return r, nil
}

// untilNotGood publishes one message after the other until one has no good receipt, or
// more have than a subscription without room may take.
func (b *Bench) untilNotGood(ctx context.Context, p broker.Publisher) (m broker.Message, r broker.Receipt) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for range fillWith {
		m = b.Message()
		if r = b.Publish(ctx, p, m)[0]; !r.Verdict.OK() {
			break
		}
	}
	return m, r
}

// published is how many messages the probe has made.
func (b *Bench) published() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ids
}

// onceThereIsRoom sends m again until it has a good receipt, and adds to the evidence
// who has it then and how often.
func (b *Bench) onceThereIsRoom(ctx context.Context, e ends, full broker.Receiver, m broker.Message, before int) error {
	tries, r := 0, broker.Receipt{}
	bounded, cancel := context.WithTimeout(ctx, min(answerWithin, 5*b.Target.patience()))
	defer cancel()
	for {
		tries++
		if r = b.Publish(bounded, e.pub, m)[0]; r.Verdict.OK() || !sleep(bounded, b.Target.patience()/10) {
			break
		}
	}
	inFull, err := b.cameOf(ctx, full, m.ID)
	if err != nil {
		return err
	}
	others, err := b.cameOf(ctx, e.rcv, m.ID)
	if err != nil {
		return err
	}
	b.Note("sent again under its ID once there was room: %s after %s; the subscription that was full got it %s, the other %s in all",
		r.Verdict, amount(tries, "attempt", "attempts"), often(inFull), often(before+others))
	return nil
}
