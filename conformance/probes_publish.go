package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeDurable. Anomaly: a receipt is good and the message is gone. Experiment:
// publish until there are a hundred good receipts, kill the broker's process,
// start it again on what its disk holds, and look for each of them.
func probeDurable(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	ms := b.Messages(100)
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	if err := b.Kill(ctx); err != nil {
		return err
	}
	after, err := b.reopen(ctx, e)
	if err != nil {
		// A topic that is gone is the plainest loss.
		if errors.Is(err, broker.ErrNotFound) {
			b.Answer(boundary.PublishAckDurable, boundary.Lost, "the topic itself is gone: %v", err)
			return nil
		}
		return err
	}
	copies, err := b.Copies(ctx, after.pub, after.rcv)
	if err != nil {
		return err
	}
	// The last message may overtake others where there is no order among keys. What is
	// missing is looked for until nothing comes any more.
	for len(copies) < len(ms) {
		ds, err := b.Receive(ctx, after.rcv, 64, 2*b.Target.patience())
		if err != nil {
			return err
		}
		if len(ds) == 0 {
			break
		}
		if err := b.mustAckAll(ctx, after.rcv, ds); err != nil {
			return err
		}
		for i := range ds {
			copies[ds[i].ID]++
		}
	}
	q := CheckQueue(b.history.Events())
	missing := 0
	for i := range ms {
		if copies[ms[i].ID] == 0 {
			missing++
		}
	}
	if missing > 0 {
		b.Answer(boundary.PublishAckDurable, boundary.Lost, "%d of %s with a good receipt are gone (%s)", missing, amount(len(ms), "message", "messages"), q)
	} else {
		b.Answer(boundary.PublishAckDurable, boundary.Kept, "all %s with a good receipt are there (%s)", amount(len(ms), "message", "messages"), q)
	}
	return nil
}

// probeBatchLimit is the largest body that a probe is ready to send, bytes.
const probeBatchLimit = 32 << 20

// limited is ends with a small limit of the body's size, or with the broker's own
// where none can be wished for; 0 if that is unknown.
func (b *Bench) limited(ctx context.Context) (ends, int, error) {
	const limit = 4096
	e, err := b.ends(ctx, func(w *broker.Entity) { w.MaxBody = limit })
	if !errors.Is(err, broker.ErrUnsupported) {
		return e, limit, err
	}
	b.Note("no limit of the body's size can be set (%v): the broker's own is taken", err)
	if e, err = b.ends(ctx, nil); err != nil {
		return e, 0, err
	}
	return e, e.pub.Limits().Body, nil
}

// probeBatch. Anomaly: one bad message fails its whole batch though the others
// are stored, or takes them with it. Experiment: with the toolkit's own
// validation off, publish a batch with one body over the entity's limit in the
// middle, and hold the receipts against what is delivered.
func probeBatch(ctx context.Context, b *Bench) error {
	e, limit, err := b.limited(ctx)
	if err != nil {
		return err
	}
	if limit == 0 || limit > probeBatchLimit {
		b.unverifiable(fmt.Sprintf("the broker's limit of the body's size is unknown or too large to try: %d bytes", limit),
			boundary.PublishBatchPartial, boundary.PublishBatchAtomic)
		return nil
	}
	raw, err := b.fenceless(e.conn)
	if err != nil {
		return err
	}
	p, err := b.Publisher(ctx, raw)
	if err != nil {
		return err
	}
	ms := b.Messages(5)
	ms[2].Body = make([]byte, min(4*limit, limit+probeBatchLimit/4))
	rs := b.Publish(ctx, p, ms...)
	var taken []broker.Message
	for i := range ms {
		if rs[i].Verdict.OK() {
			taken = append(taken, ms[i])
		}
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv, taken...)
	if err != nil {
		return err
	}
	if copies[ms[2].ID] > 0 {
		return fmt.Errorf("a body of %d bytes was taken where the limit is %d", len(ms[2].Body), limit)
	}
	stored, honest := 0, true
	for i := range ms {
		if copies[ms[i].ID] > 0 {
			stored++
		}
		honest = honest && rs[i].Verdict.OK() == (copies[ms[i].ID] > 0)
	}
	if stored == 0 {
		b.Answer(boundary.PublishBatchAtomic, boundary.AllOrNone, "one of %d was refused, and none of the others is stored", len(ms))
	} else {
		b.Answer(boundary.PublishBatchAtomic, boundary.InPart, "one of %d was refused, and %d of the others are stored", len(ms), stored)
	}
	switch {
	case stored == len(ms)-1 && honest:
		b.Answer(boundary.PublishBatchPartial, boundary.Exact, "the other %d are stored, and each receipt says what became of its message", stored)
	case stored > 0 && honest:
		b.Answer(boundary.PublishBatchPartial, boundary.Exact, "%d of the other %d are stored, and each receipt says what became of its message", stored, len(ms)-1)
	case stored == 0:
		b.Answer(boundary.PublishBatchPartial, boundary.BatchLost, "none of the batch is stored")
	default:
		b.Answer(boundary.PublishBatchPartial, boundary.Smeared, "%d of %d are stored, and the receipts say otherwise", stored, len(ms))
	}
	return nil
}
