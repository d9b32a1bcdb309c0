package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	copies, err := b.Copies(ctx, e.pub, e.rcv)
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
		b.Answer(boundary.PublishDedupVerdict, boundary.StoredAgain, "the retry's receipt is %s and %d copies are stored", again.Verdict, copies[first.ID])
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
		b.Answer(boundary.PublishDedupBody, boundary.BothStored, "the receipt is %s and %d copies of the ID are stored", withBody.Verdict, copies[first.ID])
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
		b.Answer(boundary.PublishDedupScope, boundary.None, "the same ID with the same key is stored %d times", copies[same.ID])
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

// windowAges are the ages, in parts of the configured window, at which IDs are
// retried. The nearest two around the window are the resolution.
var windowAges = []float64{0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2}

// retry is a publish of an ID that is of an age between two.
type retry struct {
	id            string
	verdict       broker.Verdict
	before, after time.Duration
}

// windowOf tells from the copies that came up to which age IDs were known, and
// from which on one was stored again; -1 if none was. A receipt that says
// otherwise than the copies is an error.
func windowOf(retries []retry, copies map[string]int) (knownTo, newFrom time.Duration, err error) {
	newFrom = -1
	for _, r := range retries {
		n := copies[r.id]
		if said := r.verdict; n < 1 || n > 2 || said == broker.Duplicate && n != 1 || said == broker.Stored && n != 2 {
			return 0, 0, fmt.Errorf("the receipt of the retry of %q says %s, and %d copies came", r.id, said, n)
		}
		switch {
		case n == 1:
			knownTo = max(knownTo, r.before)
		case newFrom < 0:
			newFrom = r.after
		}
	}
	return knownTo, newFrom, nil
}

// probeWindow. Anomaly: the broker forgets an ID sooner than it was told to, and
// a retry in good faith makes a second message. Experiment: publish an ID for
// each age at once, then retry each at its age, side by side; the broker should
// know those below the window and none above it.
func probeWindow(ctx context.Context, b *Bench) error {
	window := b.Target.Window
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Window = window })
	if errors.Is(err, broker.ErrUnsupported) {
		window = 0
		e, err = b.ends(ctx, nil)
	}
	if err != nil {
		return err
	}
	if window == 0 {
		m := b.Message()
		if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
			return err
		}
		again := b.Publish(ctx, e.pub, m)[0]
		copies, err := b.Copies(ctx, e.pub, e.rcv)
		if err != nil {
			return err
		}
		if copies[m.ID] > 1 {
			b.Answer(boundary.PublishDedupWindow, boundary.None, "an ID retried at once is stored %d times", copies[m.ID])
		} else {
			b.NotVerifiable(boundary.PublishDedupWindow, "the ID is known (%s), and the window can't be set to one short enough to wait for", again.Verdict)
		}
		return nil
	}
	ms := b.Messages(len(windowAges))
	start := b.Now()
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	// An ID's age is at most what has passed since start, at least since stored.
	stored := b.Now()
	retries := make([]retry, len(windowAges))
	for i, age := range windowAges {
		due := start.Add(time.Duration(age * float64(window)))
		if err := b.Wait(ctx, due.Sub(b.Now())); err != nil {
			return err
		}
		before := b.Now().Sub(stored)
		r := b.Publish(ctx, e.pub, ms[i])[0]
		if !r.Verdict.OK() {
			return fmt.Errorf("retry of %q: %s: %w", ms[i].ID, r.Verdict, r.Err)
		}
		retries[i] = retry{ms[i].ID, r.Verdict, before, b.Now().Sub(start)}
		b.Note("retried at an age of %s: %s", before.Round(time.Millisecond), r.Verdict)
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	knownTo, newFrom, err := windowOf(retries, copies)
	if err != nil {
		return err
	}
	b.Note("window configured %s; resolution %s", window, window/5)
	switch {
	case knownTo == 0:
		b.Answer(boundary.PublishDedupWindow, boundary.None, "no ID was known at any age")
	case newFrom < 0:
		b.Answer(boundary.PublishDedupWindow, boundary.Longer, "known still at %s, with a window of %s", knownTo, window)
	case newFrom < window*95/100:
		b.Answer(boundary.PublishDedupWindow, boundary.Shorter, "stored again at %s already, with a window of %s", newFrom, window)
	case knownTo > window*105/100:
		b.Answer(boundary.PublishDedupWindow, boundary.Longer, "known still at %s, with a window of %s", knownTo, window)
	default:
		b.Answer(boundary.PublishDedupWindow, boundary.AsConfigured, "known up to %s, forgotten from %s, with a window of %s",
			knownTo.Round(time.Millisecond), newFrom.Round(time.Millisecond), window)
	}
	return nil
}
