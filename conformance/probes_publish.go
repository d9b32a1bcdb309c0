package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// ends is the usual set-up of a probe on hop 1: a publisher, and a receiver
// that sees all that is stored from now on.
type ends struct {
	conn broker.Conn
	pub  broker.Publisher
	rcv  broker.Receiver
}

func (b *Bench) ends(ctx context.Context, change func(*broker.Entity)) (ends, error) {
	c, err := b.Ensure(ctx, change)
	if err != nil {
		return ends{}, err
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return ends{}, err
	}
	r, err := b.Receiver(ctx, c)
	return ends{c, p, r}, err
}

// times turns how often a message was stored into an answer.
func times(n int) boundary.Answer {
	switch n {
	case 0:
		return boundary.Lost
	case 1:
		return boundary.Once
	}
	return boundary.Twice
}

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
	var knownTo, newFrom time.Duration = 0, -1
	for i, age := range windowAges {
		due := start.Add(time.Duration(age * float64(window)))
		if err := b.Wait(ctx, due.Sub(b.Now())); err != nil {
			return err
		}
		before := b.Now().Sub(start)
		r := b.Publish(ctx, e.pub, ms[i])[0]
		after := b.Now().Sub(start)
		switch r.Verdict {
		case broker.Duplicate:
			knownTo = max(knownTo, before)
		case broker.Stored:
			if newFrom < 0 {
				newFrom = after
			}
		case broker.Accepted:
			b.NotVerifiable(boundary.PublishDedupWindow, "the broker's receipts don't say whether an ID was known")
			return nil
		default:
			return fmt.Errorf("retry of %q: %s: %w", ms[i].ID, r.Verdict, r.Err)
		}
		b.Note("retried at an age of %s: %s", before.Round(time.Millisecond), r.Verdict)
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

// lostAnswer publishes m with the answer lost: the broker applied it, and the
// publisher could not know.
func (b *Bench) lostAnswer(ctx context.Context, p broker.Publisher, m broker.Message, cut bool) error {
	i, err := b.Inject(Fault{Op: OnPublish, Kind: LoseResponse, Times: 1, Cut: cut})
	if err != nil {
		return err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	receipts := make(chan broker.Receipt, 1)
	go func() { receipts <- b.Publish(try, p, m)[0] }()
	if err := b.Applied(ctx, i); err != nil {
		return err
	}
	cancel() // the caller gives up; only now, so that the answer was really lost
	r := <-receipts
	if r.Verdict != broker.Unknown {
		b.Note("the publish whose answer was lost ended as %s: the client's own retry had an answer before the caller gave up", r.Verdict)
	}
	if r.Verdict == broker.Refused {
		return fmt.Errorf("publish %q: the broker stored it, and the receipt says Refused: %w", m.ID, r.Err)
	}
	return nil
}

// probeLostResponse. Anomaly: the answer is lost, the producer retries, and the
// message is there twice. Experiment: drop the answer after the broker was seen
// to apply the publish, let the caller give up, and publish the same message
// again with the same publisher.
func probeLostResponse(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	if err := b.lostAnswer(ctx, e.pub, m, b.Target.CutLost); err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupLostResponse, times(copies[m.ID]), "stored %d times after a retry by the same publisher", copies[m.ID])
	return nil
}

// probeNewProducer. Anomaly: as above, but the producer restarted in between and
// with it all that its client knew. Experiment: as above, the retry from a new
// connection.
func probeNewProducer(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	old, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	p, err := b.Publisher(ctx, old)
	if err != nil {
		return err
	}
	if err := b.lostAnswer(ctx, p, m, true); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := old.Close(end); err != nil {
		b.Note("closing the first producer: %v", err)
	}
	b.history.Add(report.Producer, "restart", "", "a new producer takes over")
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupNewProducer, times(copies[m.ID]), "stored %d times after a retry by a new producer", copies[m.ID])
	return nil
}

// probeBrokerRestart. Anomaly: the broker forgets its IDs as it restarts.
// Experiment: publish, restart the broker cleanly, publish the same again.
func probeBrokerRestart(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	if err := b.Restart(ctx); err != nil {
		return err
	}
	after, err := b.reopen(ctx, e)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, after.pub, m); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, after.pub, after.rcv)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupBrokerRestart, times(copies[m.ID]), "stored %d times", copies[m.ID])
	return nil
}

// reopen closes old, whose receiver may still have messages assigned to it, and
// opens publisher and receiver on a new connection, within the time that a
// broker needs to come back.
func (b *Bench) reopen(ctx context.Context, old ends) (ends, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	end, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	if err := old.conn.Close(end); err != nil {
		b.Note("closing the old connection: %v", err)
	}
	for {
		e, err := b.tryReopen(ctx)
		if err == nil {
			return e, nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ends{}, fmt.Errorf("reopen: %w", err)
		}
	}
}

func (b *Bench) tryReopen(ctx context.Context) (ends, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return ends{}, err
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return ends{}, err
	}
	r, err := b.Receiver(ctx, c)
	return ends{c, p, r}, err
}

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
	q := CheckQueue(b.history.Events())
	missing := len(ms) - len(copies)
	if missing > 0 {
		b.Answer(boundary.PublishAckDurable, boundary.Lost, "%d of %d messages with a good receipt are gone (%s)", missing, len(ms), q)
	} else {
		b.Answer(boundary.PublishAckDurable, boundary.Kept, "all %d messages with a good receipt are there (%s)", len(ms), q)
	}
	return nil
}

// probeAfterConsume. Anomaly: dedup looks at what is queued, and a message that
// was consumed is let in again. Experiment: publish, receive, ack, publish the
// same again.
func probeAfterConsume(ctx context.Context, b *Bench) error {
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
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	n := 1 + copies[m.ID]
	b.Answer(boundary.PublishDedupAfterConsume, times(n), "stored %d times, the first consumed and acked before the second publish", n)
	return nil
}

// probeConcurrent. Anomaly: two attempts race past the check for the ID.
// Experiment: twenty times, two publishers on two connections send one ID at
// the same moment; a single pair that is stored twice decides.
func probeConcurrent(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	rival, err := b.Publisher(ctx, c)
	if err != nil {
		return err
	}
	ms := b.Messages(20)
	for i := range ms {
		var pair sync.WaitGroup
		for _, p := range []broker.Publisher{e.pub, rival} {
			pair.Go(func() { b.Publish(ctx, p, ms[i]) })
		}
		pair.Wait()
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	worst, twice := 1, 0
	for i := range ms {
		n := copies[ms[i].ID]
		if n == 0 {
			b.Answer(boundary.PublishDedupConcurrent, boundary.Lost, "%q was sent twice and is not there", ms[i].ID)
			return nil
		}
		if n > 1 {
			twice++
		}
		worst = max(worst, n)
	}
	b.Answer(boundary.PublishDedupConcurrent, times(worst), "of %d IDs sent by two publishers at once, %d are stored twice", len(ms), twice)
	return nil
}

// probeBatch. Anomaly: one bad message fails its whole batch though the others
// are stored, or takes them with it. Experiment: with the toolkit's own
// validation off, publish a batch with one body over the entity's limit in the
// middle, and hold the receipts against what is delivered.
func probeBatch(ctx context.Context, b *Bench) error {
	const limit = 4096
	e, err := b.ends(ctx, func(w *broker.Entity) { w.MaxBody = limit })
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotVerifiable(boundary.PublishBatchPartial, "no limit of the body's size can be set: %v", err)
		return nil
	}
	if err != nil {
		return err
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
	ms[2].Body = make([]byte, 4*limit)
	rs := b.Publish(ctx, p, ms...)
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	if rs[2].Verdict.OK() {
		return fmt.Errorf("a body of %d bytes was taken where the limit is %d", len(ms[2].Body), limit)
	}
	stored, honest := 0, true
	for i := range ms {
		if copies[ms[i].ID] > 0 {
			stored++
		}
		honest = honest && rs[i].Verdict.OK() == (copies[ms[i].ID] > 0)
	}
	switch {
	case stored == len(ms)-1 && honest:
		b.Answer(boundary.PublishBatchPartial, boundary.Exact, "the other %d are stored, and each receipt says what became of its message", stored)
	case stored == 0:
		b.Answer(boundary.PublishBatchPartial, boundary.BatchLost, "none of the batch is stored")
	default:
		b.Answer(boundary.PublishBatchPartial, boundary.Smeared, "%d of %d are stored, and the receipts say otherwise", stored, len(ms))
	}
	return nil
}
