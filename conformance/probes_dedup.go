package conformance

import (
	"context"
	"fmt"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeVerdict. Anomaly: a retry is told apart from a new message by nobody, or
// two different messages are taken for one. Experiment: publish an ID, again
// the same, again with another body, then the same body with a new ID; count
// the copies. The receipts say what the producer learns.
func probeVerdict(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	first, other := b.Message(), b.Message()
	other.Body = first.Body
	changed := first
	changed.Body = []byte("another body under the same ID")
	stored, err := b.MustPublish(ctx, e.pub, first)
	if err != nil {
		return err
	}
	again := b.Publish(ctx, e.pub, first)[0]
	withBody := b.Publish(ctx, e.pub, changed)[0]
	content, err := b.MustPublish(ctx, e.pub, other)
	if err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv, first, other)
	if err != nil {
		return err
	}

	switch {
	case again.Verdict == broker.Duplicate && again.Position == stored[0].Position && stored[0].Position != (broker.Position{}):
		b.Answer(boundary.PublishDedupVerdict, boundary.DuplicateAt, "the retry's receipt is Duplicate, with the first copy's position %s", at(again.Position))
	case again.Verdict == broker.Duplicate:
		b.Answer(boundary.PublishDedupVerdict, boundary.Duplicate, "the retry's receipt is Duplicate, at %s where the first is at %s", at(again.Position), at(stored[0].Position))
	case again.Verdict.OK() && copies[first.ID] == 1:
		b.Answer(boundary.PublishDedupVerdict, boundary.Accepted, "the retry's receipt is %s, as that of a new message, and it was not stored", again.Verdict)
	case again.Verdict.OK():
		b.Answer(boundary.PublishDedupVerdict, boundary.StoredAgain, "the retry's receipt is %s; stored: %s", again.Verdict, amount(copies[first.ID], "copy", "copies"))
	default:
		return fmt.Errorf("retry of %q: %s: %w", first.ID, again.Verdict, again.Err)
	}
	// How many copies the body's change made is what is there beyond the retry.
	switch {
	case withBody.Verdict == broker.Refused:
		b.Answer(boundary.PublishDedupBody, boundary.Refused, "the publish with another body is refused: %v", withBody.Err)
	case copies[first.ID] == 1:
		b.Answer(boundary.PublishDedupBody, boundary.FirstKept, "the receipt is %s and the first body alone is stored", withBody.Verdict)
	default:
		b.Answer(boundary.PublishDedupBody, boundary.BothStored, "the receipt is %s and of the ID %d copies are stored", withBody.Verdict, copies[first.ID])
	}
	if copies[other.ID] == 0 {
		b.Answer(boundary.PublishDedupContent, boundary.Dropped, "the second ID's receipt is %s and it was never delivered", content[0].Verdict)
	} else {
		b.Answer(boundary.PublishDedupContent, boundary.BothStored, "both IDs were delivered")
	}
	return nil
}

// probeScope. Anomaly: a retry takes another way than the first attempt and is
// stored again. Experiment: the same ID with the same key, with another key, and
// on a sibling topic that shares the entity; the widest that still knows the ID
// is the scope.
func probeScope(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	same, otherKey, otherTopic := b.Message(), b.Message(), b.Message()
	same.Key, otherKey.Key, otherTopic.Key = "a", "a", "a"
	if _, err := b.MustPublish(ctx, e.pub, same, otherKey, otherTopic); err != nil {
		return err
	}
	otherKey.Key = "b"
	if _, err := b.MustPublish(ctx, e.pub, same, otherKey); err != nil {
		return err
	}
	sibling := ""
	if b.Instance.Sibling != nil {
		sibling = b.Instance.Sibling(b.Entity)
	}
	if sibling != "" {
		p, err := e.conn.OpenPublisher(ctx, sibling)
		if err != nil {
			return err
		}
		b.Note("the sibling topic is %s", sibling)
		if _, err := b.MustPublish(ctx, p, otherTopic); err != nil {
			return err
		}
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	switch {
	case copies[same.ID] > 1:
		b.Answer(boundary.PublishDedupScope, boundary.None, "the same ID with the same key is stored %s", often(copies[same.ID]))
	case copies[otherKey.ID] > 1:
		b.Answer(boundary.PublishDedupScope, boundary.Key, "the same ID with another key is stored again")
	case sibling == "":
		b.Answer(boundary.PublishDedupScope, boundary.Topic, "the same ID with another key is stored once; no other topic shares the entity")
	case copies[otherTopic.ID] > 1:
		b.Answer(boundary.PublishDedupScope, boundary.Topic, "the same ID on a sibling topic is stored again")
	default:
		b.Answer(boundary.PublishDedupScope, boundary.Stream, "the same ID on a sibling topic of the same entity is stored once")
	}
	return nil
}
