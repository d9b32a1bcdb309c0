package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
)

// probeReplay. Anomaly: a message that was handled is published again on purpose, as
// from a dead-letter entity or an archive, and its effect is there twice; or a consumer
// hears no answer to what applies the effect, gives the message back, and the effect is
// there twice; or a log is read again from an earlier place. Experiment: handle a message,
// publish it again under the same ID with another Copy, and handle what comes; then have
// one whose effect takes place without an answer, give it back, and handle what comes;
// last handle one, and read it again where the broker can go back.
func probeReplay(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, b.longer)
	if err != nil {
		return err
	}
	if err := b.openStores(ctx, false, replayed, commitUnknown, rewound); err != nil {
		return err
	}
	m := b.Message()
	if err := b.replay(ctx, e, m); err != nil {
		return err
	}
	if err := b.answerEffects(ctx, replayed, m.ID, "when it came, and when it was published again as another copy"); err != nil {
		return err
	}
	u, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	if err := b.loseAnswers(ctx, &u, "the consumer"); err != nil {
		return err
	}
	if o := b.Settle(ctx, e.rcv, &u, broker.Nack, 0); !o.State.OK() {
		return fmt.Errorf("nack %q: %s: %w", u.ID, o.State, o.Err)
	}
	if err := b.handleNext(ctx, e, u.ID, "the consumer, to which it came again"); err != nil {
		return err
	}
	if err := b.answerEffects(ctx, commitUnknown, u.ID, "without an answer, and when the message came again"); err != nil {
		return err
	}
	return b.rewind(ctx, e)
}

// rewind handles a message, and once more when the subscription is read again from it.
func (b *Bench) rewind(ctx context.Context, e ends) error {
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	if err := b.handle(ctx, &d, "the consumer"); err != nil {
		return err
	}
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	if err := e.rcv.Close(ctx); err != nil {
		return err
	}
	e.rcv, err = e.conn.OpenReceiver(ctx, b.Entity.Subscription, broker.StartFrom(func(partition string) (broker.Position, bool) {
		return d.Position, partition == d.Position.Partition
	}))
	if errors.Is(err, broker.ErrUnsupported) {
		for _, id := range effectClaims(rewound) {
			b.NotApplicable(id, "nobody can go back: %v", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := b.handleNext(ctx, e, d.ID, "the consumer, which has gone back"); err != nil {
		return err
	}
	return b.answerEffects(ctx, rewound, d.ID, "when it came, and when the subscription was read again from it")
}

// replay handles m, and what comes when it is published again as another copy.
func (b *Bench) replay(ctx context.Context, e ends, m broker.Message) error {
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	if err := b.handle(ctx, &d, "the consumer"); err != nil {
		return err
	}
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	c := m
	c.Copy = "replay 1"
	if _, err := b.MustPublish(ctx, e.pub, c); err != nil {
		return err
	}
	return b.handleNext(ctx, e, m.ID, "the consumer, to which another copy came")
}

// handleNext handles the delivery of a message that comes next. If none does, another
// message shows that the receiver is at work.
func (b *Bench) handleNext(ctx context.Context, e ends, id, who string) error {
	ds, err := b.Receive(ctx, e.rcv, 1, b.Target.busy())
	if err != nil {
		return err
	}
	if len(ds) == 0 {
		b.Note("%q never came to %s", id, who)
		return b.witness(ctx, e.pub, e.rcv)
	}
	if ds[0].ID != id {
		return fmt.Errorf("received %q, not %q", ds[0].ID, id)
	}
	if err := b.handle(ctx, &ds[0], who); err != nil {
		return err
	}
	return b.MustAck(ctx, e.rcv, &ds[0])
}
