package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

const (
	// answerWithin is how long a publisher is given to learn that something is wrong.
	answerWithin = 10 * time.Second
	// strangerWithin is how long one with wrong credentials is given: RabbitMQ takes 3 s
	// for each of its nodes (RMQ-F-120).
	strangerWithin = 20 * time.Second
	// unsentWithin is how long a request that was sent by mistake has to be struck.
	unsentWithin = 2 * time.Second
	// createWithin is how long a topic that was asked for by mistake has to appear.
	createWithin = 200 * time.Millisecond
)

// probeOversize. Anomaly: one body over the limit costs the connection, and with it
// the answers to all that is in flight. Experiment: publish a body that is a byte too
// large while every request to publish would be struck, so that it shows whether
// anything was sent; then once more between two good ones, and a good one after them.
func probeOversize(ctx context.Context, b *Bench) error {
	e, limit, err := b.limited(ctx)
	if err != nil {
		return err
	}
	// An adapter may have to make room for more than the body, and says so.
	limit = cmp.Or(e.pub.Limits().Body, limit)
	if limit == 0 || limit > probeBatchLimit {
		b.NotVerifiable(boundary.PublishOversize, "the broker's limit of the body's size is unknown or too large to try: %d bytes", limit)
		return nil
	}
	alone := b.Message()
	alone.Body = make([]byte, limit+1)
	net, err := b.Inject(Fault{Op: OnPublish, Kind: LoseRequest})
	if err != nil {
		return err
	}
	try, cancel := context.WithTimeout(ctx, unsentWithin)
	first := b.Publish(try, e.pub, alone)[0]
	cancel()
	net.Remove()
	sent := net.Hits() > 0

	ms := b.Messages(3)
	ms[1].Body = alone.Body
	bounded, done := context.WithTimeout(ctx, answerWithin)
	defer done()
	rs := b.Publish(bounded, e.pub, ms...)
	after := b.Message()
	next := b.Publish(bounded, e.pub, after)[0]
	copies, err := b.Copies(ctx, e.pub, e.rcv, ms[0], ms[2], after)
	if err != nil {
		return fmt.Errorf("after a body that is too large: %w", err)
	}
	if copies[ms[1].ID] > 0 || copies[alone.ID] > 0 {
		return fmt.Errorf("a body of %d bytes was taken where the limit is %d", len(alone.Body), limit)
	}
	kept := copies[ms[0].ID] > 0 && copies[ms[2].ID] > 0 && copies[after.ID] > 0
	good := rs[0].Verdict.OK() && rs[2].Verdict.OK() && next.Verdict.OK()
	switch {
	case !kept || !good:
		b.Answer(boundary.PublishOversize, boundary.HarmsOthers, "the good messages beside it: %s and %s, and the next one: %s", rs[0].Verdict, rs[2].Verdict, next.Verdict)
	case rs[1].Verdict != broker.Refused || !errors.Is(rs[1].Err, broker.ErrTooLarge):
		b.Answer(boundary.PublishOversize, boundary.RefusedOtherwise, "%s, and not as too large: %v", rs[1].Verdict, rs[1].Err)
	case sent:
		b.Answer(boundary.PublishOversize, boundary.RefusedByBroker, "%d bytes went to the broker, which refused them: %v", len(alone.Body), rs[1].Err)
	default:
		b.Answer(boundary.PublishOversize, boundary.RefusedUnsent, "nothing was sent (%v), and the messages beside it are stored", first.Err)
	}
	return nil
}

// probeMissingEntity. Anomaly: a typing error in a topic's name makes a topic, or
// blocks the publisher for ever. Experiment: publish to a topic that was never made,
// and a moment later once more, in case that the first attempt made it.
func probeMissingEntity(ctx context.Context, b *Bench) error {
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	verdict, took, why := b.tryMissing(ctx, c)
	if !verdict.OK() && sleep(ctx, createWithin) {
		if again, _, _ := b.tryMissing(ctx, c); again.OK() {
			b.Note("the second attempt was taken")
			verdict = again
		}
	}
	switch known := errors.Is(why, broker.ErrNotFound) || errors.Is(why, broker.ErrUnroutable); {
	case verdict.OK():
		b.ensured = append(b.ensured, b.Entity) // to be removed
		b.Answer(boundary.PublishMissingEntity, boundary.Created, "a message to a topic that nobody made is %s", verdict)
	case took >= answerWithin:
		b.Answer(boundary.PublishMissingEntity, boundary.Hangs, "no answer within %s: %v", answerWithin, why)
	case verdict == broker.Refused && known:
		b.Answer(boundary.PublishMissingEntity, boundary.Refused, "refused within %s: %v", bound(took), why)
	default:
		b.Answer(boundary.PublishMissingEntity, boundary.RefusedOtherwise, "%s, and not because the topic doesn't exist: %v", verdict, why)
	}
	return nil
}

// tryMissing opens the probe's topic and publishes to it. That it can't be opened
// counts as a refusal.
func (b *Bench) tryMissing(ctx context.Context, c broker.Conn) (v broker.Verdict, took time.Duration, why error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	start := time.Now()
	p, err := b.Publisher(ctx, c)
	if err != nil {
		b.Note("opening a publisher: %v", err)
		return broker.Refused, time.Since(start), err
	}
	r := b.Publish(ctx, p, b.Message())[0]
	return r.Verdict, time.Since(start), r.Err
}

// bound is a time to show of which only the order of magnitude means something.
func bound(d time.Duration) time.Duration {
	return max(d.Round(10*time.Millisecond), 10*time.Millisecond)
}

// probeUnroutable. Anomaly: a message goes where nobody can get it, with a good
// receipt. Experiment: make a topic without a subscription, publish, then subscribe
// and look for the message behind which another one is sent.
func probeUnroutable(ctx context.Context, b *Bench) error {
	c, err := b.Ensure(ctx, func(w *broker.Entity) { w.Subscription, w.Ordered = "", false })
	if errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrInvalid) { // a topic has no lease, but a queue has
		c, err = b.Ensure(ctx, func(w *broker.Entity) { w.Subscription, w.Ordered, w.Lease = "", false, 0 })
	}
	if err != nil {
		return err
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return err
	}
	m := b.Message()
	bounded, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r := b.Publish(bounded, p, m)[0]
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	switch {
	case copies[m.ID] > 0:
		b.Answer(boundary.PublishUnroutable, boundary.Kept, "the receipt is %s, and who subscribed later got it", r.Verdict)
	case r.Verdict.OK():
		b.Answer(boundary.PublishUnroutable, boundary.Lost, "the receipt is %s, and who subscribed later got the next message and not this one", r.Verdict)
	case r.Verdict == broker.Refused && errors.Is(r.Err, broker.ErrUnroutable):
		b.Answer(boundary.PublishUnroutable, boundary.Refused, "refused: %v", r.Err)
	default:
		b.Answer(boundary.PublishUnroutable, boundary.RefusedOtherwise, "%s, and not as unroutable: %v", r.Verdict, r.Err)
	}
	return nil
}

// probeUnauthorized. Anomaly: wrong credentials look like a broker that is down, or
// like a publish under way. Experiment: on a broker that asks for credentials, make a
// topic and publish to it with the right ones, then connect and publish with wrong
// ones.
func probeUnauthorized(ctx context.Context, b *Bench) (err error) {
	if b.Instance.Guarded == nil {
		b.NotVerifiable(boundary.PublishUnauthorized, "the target asks for no credentials")
		return nil
	}
	friend, stranger, err := b.Instance.Guarded(ctx)
	if err != nil {
		return fmt.Errorf("a broker that asks for credentials: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if err := friend.close(end); err != nil {
			b.Note("cleanup: %v", err)
		}
	}()
	c, err := friend.Open(ctx)
	if err != nil {
		return fmt.Errorf("with the right credentials: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if err := errors.Join(c.Delete(end, b.Entity), c.Close(end)); err != nil {
			b.Note("cleanup: %v", err)
		}
	}()
	if err := c.Ensure(ctx, b.Entity); err != nil {
		return fmt.Errorf("with the right credentials: %w", err)
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, p, b.Message()); err != nil {
		return fmt.Errorf("with the right credentials: %w", err)
	}
	b.history.Add(report.Producer, "stranger", "", "another producer, with wrong credentials")
	where, verdict, took, why := b.tryStranger(ctx, stranger)
	switch {
	case verdict.OK():
		b.Answer(boundary.PublishUnauthorized, boundary.LetIn, "%s: the message of a stranger is %s", where, verdict)
	case took >= strangerWithin:
		b.Answer(boundary.PublishUnauthorized, boundary.Hangs, "%s: no answer within %s: %v", where, strangerWithin, why)
	case verdict == broker.Refused && errors.Is(why, broker.ErrUnauthorized):
		b.Answer(boundary.PublishUnauthorized, boundary.Refused, "%s, within %s: %v", where, bound(took), why)
	default:
		b.Answer(boundary.PublishUnauthorized, boundary.RefusedOtherwise, "%s: %s, and not as unauthorized: %v", where, verdict, why)
	}
	return nil
}

// tryStranger goes as far as it gets with wrong credentials, and says how far that
// was.
func (b *Bench) tryStranger(ctx context.Context, stranger *Instance) (where string, v broker.Verdict, took time.Duration, why error) {
	ctx, cancel := context.WithTimeout(ctx, strangerWithin)
	defer cancel()
	start := time.Now()
	c, err := stranger.Open(ctx)
	if err != nil {
		return "on connecting", broker.Refused, time.Since(start), err
	}
	c = b.mutant.wrap(c)
	defer func() {
		if err := c.Close(context.WithoutCancel(ctx)); err != nil {
			b.Note("cleanup: close the stranger's connection: %v", err)
		}
	}()
	p, err := c.OpenPublisher(ctx, b.Entity.Topic)
	if err != nil {
		return "on opening a publisher", broker.Refused, time.Since(start), err
	}
	r := b.Publish(ctx, p, b.Message())[0]
	return "on publishing", r.Verdict, time.Since(start), r.Err
}

// probeBackpressure. Anomaly: a message that the broker had no room for is called
// stored, or can't be told from one that was. Experiment: fill the topic, or where
// that can't be done let one request to publish be answered as by a broker that is
// full or throttles, and hold the receipt against what is delivered.
func probeBackpressure(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m, r, err := b.pushedBack(ctx, e)
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotVerifiable(boundary.PublishBackpressure, "the target has no way to make its broker push back")
		return nil
	}
	if err != nil {
		return err
	}
	var n int
	if b.Instance.Fill == nil {
		n, err = b.stored(ctx, e, m)
	} else {
		n, err = b.cameOf(ctx, e.rcv, m.ID)
	}
	if err != nil {
		return err
	}
	switch {
	case r.Verdict.OK() && n == 0:
		b.Answer(boundary.PublishBackpressure, boundary.Lost, "the receipt is %s, and the message is not there", r.Verdict)
	case r.Verdict.OK():
		b.Answer(boundary.PublishBackpressure, boundary.Waits, "the client tried again by itself: %s", r.Verdict)
	case r.Verdict == broker.Unknown:
		b.Answer(boundary.PublishBackpressure, boundary.StaysUnknown, "%v; stored %s", r.Err, often(n))
	case n > 0:
		b.Answer(boundary.PublishBackpressure, boundary.ClaimedRefused, "%v; and yet it is stored", r.Err)
	case errors.Is(r.Err, broker.ErrBusy):
		b.Answer(boundary.PublishBackpressure, boundary.PushedBack, "refused as busy, and not stored: %v", r.Err)
	default:
		b.Answer(boundary.PublishBackpressure, boundary.RefusedOtherwise, "refused, and not as busy: %v", r.Err)
	}
	return nil
}

// pushedBack publishes until the broker has no room, and returns the message that it
// had none for with its receipt.
func (b *Bench) pushedBack(ctx context.Context, e ends) (m broker.Message, r broker.Receipt, err error) {
	bounded, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if b.Instance.Fill == nil {
		if b.Instance.Inject == nil {
			return m, r, broker.Errorf(broker.ErrUnsupported, nil, "the target has no fault points")
		}
		i, err := b.Inject(Fault{Op: OnPublish, Kind: PushBack, Times: 1})
		if err != nil {
			return m, r, err
		}
		defer i.Remove()
		m = b.Message()
		r = b.Publish(bounded, e.pub, m)[0]
		if i.Hits() == 0 {
			return m, r, errors.New("the broker was not seen to push back")
		}
		return m, r, nil
	}
	if err := b.Instance.Fill(ctx, e.conn, b.Entity); err != nil {
		return m, r, fmt.Errorf("fill the topic: %w", err)
	}
	for range fillWith {
		m = b.Message()
		if r = b.Publish(bounded, e.pub, m)[0]; !r.Verdict.OK() {
			return m, r, nil
		}
	}
	return m, r, fmt.Errorf("the topic took %s, and should have room for one", amount(fillWith, "message", "messages"))
}

// fillWith is how many messages a topic that has no room for a second one is ready to
// take all the same, for a broker may look at its limit a little late.
const fillWith = 100

// cameOf is how often a message comes, behind which none can be published.
func (b *Bench) cameOf(ctx context.Context, r broker.Receiver, id string) (n int, err error) {
	within := 2 * b.Target.patience()
	for {
		ds, err := b.Receive(ctx, r, 64, within)
		if err != nil || len(ds) == 0 {
			return n, err
		}
		if err := b.mustAckAll(ctx, r, ds); err != nil {
			return n, err
		}
		for i := range ds {
			if ds[i].ID == id {
				n++
			}
		}
		within = b.Target.patience()
	}
}
