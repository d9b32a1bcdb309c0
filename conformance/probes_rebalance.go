package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeRebalance. Anomaly: partitions move to another member while their old owner
// has messages of them in hand; its late acks move the new owner's position, forward
// past messages that nobody has done or back before some that are done. Experiment:
// one receiver takes messages of four partitions; a second one joins and gets some
// of those; it settles all of the first partition that it got and none of the
// others. Then the old owner acks all that it has, the new one leaves, and what comes
// again is compared with what must.
func probeRebalance(ctx context.Context, b *Bench) error {
	if !b.Target.Exclusive {
		b.NotApplicable(boundary.FenceRebalance, "messages are handed out one by one, and nothing is assigned that could be taken away")
		return nil
	}
	e, err := b.ends(ctx, func(e *broker.Entity) { e.Partitions = 4 })
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotApplicable(boundary.FenceRebalance, "there is one sequence, which moves only with the connection of its receiver: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	ms := b.Messages(16)
	for i := range ms {
		ms[i].Key = "key " + strconv.Itoa(i)
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	old, err := b.collect(ctx, e.rcv, len(ms))
	if err != nil {
		return err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	next, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	done, open, err := b.takenAway(ctx, next)
	if err != nil {
		return err
	}
	s := make([]broker.Settlement, len(old))
	for i := range old {
		s[i] = broker.Settlement{Delivery: &old[i], Action: broker.Ack}
	}
	_ = e.rcv.Settle(ctx, s) // the outcomes say more
	states := map[string]broker.State{}
	for i := range s {
		b.settled(old[i].ID, broker.Ack, s[i].Outcome)
		states[old[i].ID] = s[i].Outcome.State
	}
	if err := next.Close(ctx); err != nil {
		return err
	}
	again, err := b.comeAll(ctx, e, open)
	if err != nil {
		return err
	}
	b.answerRebalance(done, open, states, again)
	return nil
}

// collect receives n messages.
func (b *Bench) collect(ctx context.Context, r broker.Receiver, n int) ([]broker.Delivery, error) {
	var ds []broker.Delivery
	for len(ds) < n {
		more, err := b.Receive(ctx, r, n-len(ds), 3*b.Target.patience())
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			return nil, fmt.Errorf("receive: only %d of %s came", len(ds), amount(n, "message", "messages"))
		}
		ds = append(ds, more...)
	}
	return ds, nil
}

// takenAway receives what comes to the new owner until nothing more does, settles
// what is of the first partition, and returns the IDs of that and of the rest.
func (b *Bench) takenAway(ctx context.Context, next broker.Receiver) (done, open map[string]bool, err error) {
	var got []broker.Delivery
	within := 3*b.Target.patience() + 2*b.Target.Session + 5*time.Second
	for {
		ds, err := b.Receive(ctx, next, 16, within)
		if err != nil {
			return nil, nil, err
		}
		if len(ds) == 0 {
			break
		}
		got = append(got, ds...)
		within = b.Target.patience() / 2
	}
	if len(got) == 0 {
		return nil, nil, errors.New("no partition was taken from the first receiver by the second one")
	}
	done, open = map[string]bool{}, map[string]bool{}
	var settle []broker.Delivery
	for i := range got {
		if got[i].Position.Partition == got[0].Position.Partition {
			done[got[i].ID] = true
			settle = append(settle, got[i])
		} else {
			open[got[i].ID] = true
		}
	}
	if len(open) == 0 {
		b.Note("One partition alone was taken away: none of it is settled by its new owner.")
		return open, done, nil
	}
	return done, open, b.mustAckAll(ctx, next, settle)
}

// comeAll receives and acks until all that is open has come, for as long as the
// partitions may take to come back, and then what else comes.
func (b *Bench) comeAll(ctx context.Context, e ends, open map[string]bool) (map[string]int, error) {
	again := map[string]int{}
	missing := len(open)
	within := time.Now().Add(3*b.Target.patience() + 2*b.Target.Session + 5*time.Second)
	for missing > 0 {
		ds, err := b.Receive(ctx, e.rcv, 16, time.Until(within))
		if err != nil {
			return nil, err
		}
		if len(ds) == 0 {
			break
		}
		if err := b.mustAckAll(ctx, e.rcv, ds); err != nil {
			return nil, err
		}
		for i := range ds {
			if again[ds[i].ID]++; again[ds[i].ID] == 1 && open[ds[i].ID] {
				missing--
			}
		}
	}
	more, err := b.Copies(ctx, e.pub, e.rcv)
	for id, n := range more {
		again[id] += n
	}
	return again, err
}

func (b *Bench) answerRebalance(done, open map[string]bool, states map[string]broker.State, again map[string]int) {
	answer := func(a boundary.Answer, format string, args ...any) {
		b.Answer(boundary.FenceRebalance, a, format, args...)
	}
	for id := range open {
		if again[id] == 0 {
			answer(boundary.TakesEffect, "the late ack of %q (%s) moved the new owner's position forward: nobody had settled it, and it never came again", id, states[id])
			return
		}
	}
	for id := range done {
		if again[id] > 0 {
			answer(boundary.TakesEffect, "a late ack moved the new owner's position back: %q was settled by it and came again", id)
			return
		}
	}
	for id := range open {
		switch states[id] {
		case broker.LeaseLost:
		case broker.Unknown:
			answer(boundary.StaysUnknown, "the late ack of %q is answered Unknown", id)
			return
		default:
			answer(boundary.ClaimedDone, "the late ack of %q is answered %s, and it came again", id, states[id])
			return
		}
	}
	answer(boundary.Refused, "of %d messages of partitions that were taken away every late ack is LeaseLost; the %d that their new owner settled stay settled, the %d others came again",
		len(done)+len(open), len(done), len(open))
}
