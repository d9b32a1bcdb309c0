package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// takenWithin is how long a probe sends a message again until the broker takes it.
const takenWithin = 20 * time.Second

// untilTaken publishes m, and again until its receipt is good, as an application
// does that was told Unknown, or that the broker can't be reached.
func (b *Bench) untilTaken(ctx context.Context, p broker.Publisher, m broker.Message) (broker.Receipt, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, takenWithin, fmt.Errorf("not taken within %s", takenWithin))
	defer cancel()
	for {
		r := b.Publish(ctx, p, m)[0]
		if r.Verdict.OK() {
			return r, nil
		}
		again := r.Verdict == broker.Unknown || errors.Is(r.Err, broker.ErrUnavailable) || errors.Is(r.Err, broker.ErrBusy)
		if !again || !sleep(ctx, 20*time.Millisecond) {
			return r, fmt.Errorf("publish %q: %s: %w", m.ID, r.Verdict, r.Err)
		}
	}
}

// probeWays. Anomaly: a message comes a second time by another way than the first,
// and the check for its ID doesn't see it. Experiment: the same ID from two
// producers that are both alive, one after the other; twice in one call, where a
// bad receipt is retried; and with another ordering key.
func probeWays(ctx context.Context, b *Bench) error {
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
	two, batch, key := b.Message(), b.Message(), b.Message()
	if _, err := b.MustPublish(ctx, e.pub, two); err != nil {
		return err
	}
	other, err := b.MustPublish(ctx, rival, two)
	if err != nil {
		return err
	}
	rs := b.Publish(ctx, e.pub, batch, batch)
	for i := range rs {
		if !rs[i].Verdict.OK() {
			if _, err := b.untilTaken(ctx, e.pub, batch); err != nil {
				return err
			}
		}
	}
	key.Key = "a"
	if _, err := b.MustPublish(ctx, e.pub, key); err != nil {
		return err
	}
	key.Key = "b"
	moved, err := b.MustPublish(ctx, e.pub, key)
	if err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv, two, batch, key)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupTwoProducers, times(copies[two.ID]), "stored %s, the second producer's receipt is %s", often(copies[two.ID]), other[0].Verdict)
	b.Answer(boundary.PublishDedupWithinBatch, times(copies[batch.ID]), "stored %s, the receipts are %s and %s", often(copies[batch.ID]), rs[0].Verdict, rs[1].Verdict)
	b.Answer(boundary.PublishDedupOtherKey, times(copies[key.ID]), "stored %s, the receipt of that with the other key is %s", often(copies[key.ID]), moved[0].Verdict)
	return nil
}

// probeOtherTopic. Anomaly: a retry goes to another topic than the first attempt,
// and whoever reads both gets the message twice. Experiment: the same ID to two
// topics, which share an entity where the broker has that, and else have one each;
// count what the subscriptions of both deliver.
func probeOtherTopic(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	kind, n := "a topic of its own", 0
	if b.Instance.Sibling != nil && b.Instance.Sibling(b.Entity) != "" {
		kind = "a topic of the same entity"
		p, err := e.conn.OpenPublisher(ctx, b.Instance.Sibling(b.Entity))
		if err != nil {
			return err
		}
		if _, err := b.MustPublish(ctx, p, m); err != nil {
			return err
		}
	} else if n, err = b.elsewhere(ctx, m); err != nil {
		return err
	}
	first, err := b.stored(ctx, e, m)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupOtherTopic, times(first+n), "the second topic is %s: %s came in all", kind, amount(first+n, "copy", "copies"))
	return nil
}

// elsewhere publishes m to a second entity and returns how many copies come there.
func (b *Bench) elsewhere(ctx context.Context, m broker.Message) (int, error) {
	other := b.Instance.entity(b.name + "b")
	c, err := b.Ensure(ctx, func(w *broker.Entity) { w.Topic, w.Subscription = other.Topic, other.Subscription })
	if err != nil {
		return 0, err
	}
	p, err := c.OpenPublisher(ctx, other.Topic)
	if err != nil {
		return 0, err
	}
	r, err := c.OpenReceiver(ctx, other.Subscription)
	if err != nil {
		return 0, err
	}
	if _, err := b.MustPublish(ctx, p, m); err != nil {
		return 0, err
	}
	copies, err := b.Copies(ctx, p, r, m)
	return copies[m.ID], err
}

// probeLostRequest. Anomaly: a message that never reached the broker is taken for
// known when it is sent again, because its ID or its number was used up, and is
// lost. Experiment: drop the request and cut its connection before the broker sees
// it, or send it into a silent network and cut all connections there; publish another
// message with the same publisher; then send the first one again, unless its receipt
// was good, and look for both.
func probeLostRequest(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	// What a publisher does at its first message is not what is struck.
	before, m, behind := b.Message(), b.Message(), b.Message()
	if _, err := b.MustPublish(ctx, e.pub, before); err != nil {
		return err
	}
	first, err := b.lostRequest(ctx, e.pub, m)
	if err != nil {
		return err
	}
	if _, err := b.untilTaken(ctx, e.pub, behind); err != nil {
		return err
	}
	if !first.Verdict.OK() {
		if _, err := b.untilTaken(ctx, e.pub, m); err != nil {
			return err
		}
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv, before, m, behind)
	if err != nil {
		return err
	}
	n := copies[m.ID]
	if copies[behind.ID] == 0 {
		b.Answer(boundary.PublishDedupLostRequest, boundary.Lost, "the message sent behind the lost one has a good receipt and isn't there")
		return nil
	}
	b.Answer(boundary.PublishDedupLostRequest, times(n), "the receipt of the lost request is %s; the message is stored %s", first.Verdict, often(n))
	return nil
}

// lostRequest publishes m with the request lost, and its connection cut, and returns
// what the publisher says of it.
func (b *Bench) lostRequest(ctx context.Context, p broker.Publisher, m broker.Message) (broker.Receipt, error) {
	if b.Instance.Inject == nil {
		return b.lostInSilence(ctx, p, m)
	}
	i, err := b.Inject(Fault{Op: OnPublish, Kind: LoseRequest, Times: 1, Cut: true})
	if err != nil {
		return broker.Receipt{}, err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	receipts := make(chan broker.Receipt, 1)
	go func() { receipts <- b.Publish(try, p, m)[0] }()
	if err := b.Struck(ctx, i); err != nil {
		return broker.Receipt{}, err
	}
	cancel() // the caller gives up
	r := <-receipts
	if i.Applied() > 0 {
		return r, errors.New("the broker was seen to apply the request that should have been lost")
	}
	return r, nil
}

// Struck waits until a fault has struck a request, and records it.
func (b *Bench) Struck(ctx context.Context, i Injection) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for i.Hits() == 0 {
		if !sleep(ctx, 2*time.Millisecond) {
			return fmt.Errorf("the fault struck no request: %w", context.Cause(ctx))
		}
	}
	b.history.Add(report.Fault, "fault", "", "the request was dropped before the broker saw it")
	return nil
}

// probeAfterPurge. Anomaly: an entity is emptied to begin anew, and what is sent
// again is swallowed; or a late retry of what was purged gets in. Experiment:
// publish two messages, purge, publish one of them again, and see that the other
// one doesn't come.
func probeAfterPurge(ctx context.Context, b *Bench) error {
	const id = boundary.PublishDedupAfterPurge
	if b.Instance.Purge == nil {
		b.NotVerifiable(id, "the contract has no purge, and the target gives the suite no other way to it")
		return nil
	}
	c, err := b.Ensure(ctx, nil)
	if err != nil {
		return err
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return err
	}
	m, gone := b.Message(), b.Message()
	if _, err := b.MustPublish(ctx, p, m, gone); err != nil {
		return err
	}
	b.history.Add(report.Broker, "purge", "", "all messages are removed")
	if err := b.Instance.Purge(ctx, b.Entity); errors.Is(err, broker.ErrUnsupported) {
		b.NotApplicable(id, "%v", err)
		return nil
	} else if err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	again, err := b.MustPublish(ctx, p, m)
	if err != nil {
		return err
	}
	r, err := b.Receiver(ctx, c) // now, for an earlier one may have fetched what was purged
	if err != nil {
		return err
	}
	copies, err := b.Copies(ctx, p, r)
	if err != nil {
		return err
	}
	if copies[gone.ID] > 0 || copies[m.ID] > 1 {
		return fmt.Errorf("the purge left messages behind: %s of %q, which wasn't sent again, and %d of %q", amount(copies[gone.ID], "copy", "copies"), gone.ID, copies[m.ID], m.ID)
	}
	b.Answer(id, times(1+copies[m.ID]), "stored %s, the first one purged; the second receipt is %s", often(1+copies[m.ID]), again[0].Verdict)
	return nil
}
