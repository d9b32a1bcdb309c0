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

// probeAttempt. Anomaly: a poison message is given up too soon, or never, for
// the count is wrong. Experiment: nack twice with one receiver, then close it
// and receive with another; the numbers should be 1, 2, 3, 4, and the delivery
// says how far it trusts its own.
func probeAttempt(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return err
	}
	var seen []int
	var trust broker.Trust
	for range 3 {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		seen, trust = append(seen, d.Attempt.Number), d.Attempt.Trust
		if len(seen) == 3 {
			break // this one is held as the receiver closes
		}
		if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
			return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
		}
	}
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := e.rcv.Close(end); err != nil {
		return fmt.Errorf("close the first receiver: %w", err)
	}
	b.history.Add(report.Consumer, "close", "", "the first receiver, with the message in hand")
	next, err := b.Receiver(ctx, e.conn)
	if err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, next)
	if err != nil {
		return err
	}
	seen = append(seen, d.Attempt.Number)
	if err := b.MustAck(ctx, next, &d); err != nil {
		return err
	}
	inOne := seen[0] == 1 && seen[1] == 2 && seen[2] == 3
	switch {
	case trust == broker.None:
		b.Answer(boundary.DeliverAttempt, boundary.None, "numbers %v, which the deliveries themselves don't trust", seen)
	case inOne && seen[3] == 4 && trust == broker.Exact:
		b.Answer(boundary.DeliverAttempt, boundary.Exact, "numbers %v over a change of the receiver, said to be exact", seen)
	case inOne && seen[3] == 4:
		b.Answer(boundary.DeliverAttempt, boundary.Approximate, "numbers %v over a change of the receiver, said to be %s", seen, trust)
	case inOne && trust == broker.Approximate:
		b.Answer(boundary.DeliverAttempt, boundary.PerReceiver, "numbers %v: counted anew by the next receiver", seen)
	default:
		b.Answer(boundary.DeliverAttempt, boundary.Wrong, "numbers %v, said to be %s", seen, trust)
	}
	return nil
}

// probeOrder. Anomaly: the second change of a record is applied before the
// first. Experiment: publish messages of one key, between those of others,
// receive them one at a time, give the second of the key back once, and hold
// the order of deliveries against that of publishing.
func probeOrder(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Ordered = true })
	if errors.Is(err, broker.ErrUnsupported) {
		b.Note("an ordered subscription is refused (%v); asked without", err)
		e, err = b.ends(ctx, nil)
	}
	if err != nil {
		return err
	}
	ms := b.Messages(12)
	var want []string
	for i := range ms {
		ms[i].Key = "other"
		if i%2 == 0 {
			ms[i].Key = "key"
			want = append(want, ms[i].ID)
		}
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	given := false
	for done := 0; done < len(ms); {
		d, err := b.next(ctx, e.rcv)
		if err != nil {
			return err
		}
		if d.Key != "key" && d.Key != "other" {
			b.Answer(boundary.DeliverOrderKey, boundary.None, "%q came with the key %q", d.ID, d.Key)
			return nil
		}
		if d.ID == want[1] && !given {
			given = true
			if err := b.giveBack(ctx, e.rcv, &d); err != nil {
				return err
			}
			continue
		}
		if err := b.MustAck(ctx, e.rcv, &d); err != nil {
			return err
		}
		done++
	}
	events := b.history.Events()
	late, never := CheckOrder(events, want, false), CheckOrder(events, want, true)
	switch {
	case len(never) > 0:
		b.Answer(boundary.DeliverOrderKey, boundary.None, "out of order at their first delivery: %v", never)
	case !b.ordered():
		// What is seen once on one receiver is no promise.
		b.Answer(boundary.DeliverOrderKey, boundary.None, "in order at first in this run, on a subscription that promises none")
	case len(late) > 0:
		b.Answer(boundary.DeliverOrderKey, boundary.UntilNack, "in order at first; after a nack came late: %v", late)
	default:
		b.Answer(boundary.DeliverOrderKey, boundary.OverNack, "%s of the key in order, one of them given back on the way", amount(len(want), "message", "messages"))
	}
	return nil
}

// orderDelay is for how long a message is given back, so that others can
// overtake it.
const orderDelay = 300 * time.Millisecond

// giveBack nacks with orderDelay, or with none where the broker has no delay.
func (b *Bench) giveBack(ctx context.Context, r broker.Receiver, d *broker.Delivery) error {
	o := b.Settle(ctx, r, d, broker.Nack, orderDelay)
	if errors.Is(o.Err, broker.ErrUnsupported) {
		o = b.Settle(ctx, r, d, broker.Nack, 0)
	}
	if !o.State.OK() {
		return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
	}
	return nil
}

// next is MustReceive where a message may be held back for orderDelay, which
// passes by the broker's clock.
func (b *Bench) next(ctx context.Context, r broker.Receiver) (broker.Delivery, error) {
	if b.Instance.Advance != nil {
		ds, err := b.Receive(ctx, r, 1, 20*time.Millisecond)
		if err != nil || len(ds) > 0 {
			return first(ds), err
		}
		if err := b.Wait(ctx, orderDelay); err != nil {
			return broker.Delivery{}, err
		}
	}
	return b.MustReceive(ctx, r)
}

func first(ds []broker.Delivery) broker.Delivery {
	if len(ds) == 0 {
		return broker.Delivery{}
	}
	return ds[0]
}

// ordered reports whether the probe's subscription was made with the wish for
// order.
func (b *Bench) ordered() bool {
	for _, e := range b.ensured {
		if e.Ordered {
			return true
		}
	}
	return false
}

// probeCancel. Anomaly: a message is handed over to a Receive that nobody waits
// for any more, and stands still until its lease ends. Experiment: many rounds
// of a Receive that is cancelled around the moment at which a message is
// published; whoever is entitled must have it long before the lease ends.
func probeCancel(ctx context.Context, b *Bench) error {
	const rounds = 20
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	other := e.rcv
	if !b.Target.Exclusive {
		c, err := b.Conn(ctx)
		if err != nil {
			return err
		}
		if other, err = b.Receiver(ctx, c); err != nil {
			return err
		}
	}
	// The first messages make sure that the receivers are at work.
	for _, r := range []broker.Receiver{other, e.rcv} {
		if err := b.roundTrip(ctx, ends{e.conn, e.pub, r}); err != nil {
			return err
		}
	}
	// With nothing there a Receive ends with its context.
	start := time.Now()
	if ds, err := b.Receive(ctx, e.rcv, 1, 50*time.Millisecond); err != nil || len(ds) > 0 || time.Since(start) > 2*time.Second {
		return fmt.Errorf("a Receive of 50 ms from an empty subscription took %s and returned %d deliveries, %v", time.Since(start), len(ds), err)
	}
	const short = 1500 * time.Millisecond
	within := short
	switch held := max(b.Target.Lease, b.Target.Session); {
	case b.Instance.Advance != nil: // no lease ends while the clock stands still
		within = b.Target.busy()
	case held > 2*short:
		within = min(held/2, b.Target.busy())
	}
	var worst time.Duration
	caught, redelivered := 0, 0
	for range rounds {
		m := b.Message()
		ds, err := b.cancelled(ctx, e, m)
		if err != nil {
			return err
		}
		r, start := e.rcv, time.Now()
		if len(ds) > 0 {
			caught++
		} else {
			r = other
			if ds, err = b.Receive(ctx, other, 1, within); err != nil {
				return err
			}
			worst = max(worst, time.Since(start))
		}
		if len(ds) == 0 {
			b.Answer(boundary.DeliverCancel, boundary.Stranded, "%q was published as a Receive was cancelled, and nobody could have it within %s", m.ID, within)
			return nil
		}
		if ds[0].Attempt.Number > 1 {
			redelivered++
		}
		if err := b.MustAck(ctx, r, &ds[0]); err != nil {
			return err
		}
	}
	// A short lease may have ended within the time.
	if b.Instance.Advance == nil && worst > time.Second && max(b.Target.Lease, b.Target.Session) <= 2*short {
		b.Answer(boundary.DeliverCancel, boundary.Stranded, "a message took %s to reach another Receive", worst.Round(time.Millisecond))
		return nil
	}
	b.Answer(boundary.DeliverCancel, boundary.GivenBack, "%d rounds: %d messages came with the cancelled Receive, the others to the next one within %s; %d had cost an attempt",
		rounds, caught, worst.Round(time.Millisecond), redelivered)
	return nil
}

// cancelled publishes m and cancels a Receive at about the same moment, either
// first, and returns what that Receive got.
func (b *Bench) cancelled(ctx context.Context, e ends, m broker.Message) ([]broker.Delivery, error) {
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		ds  []broker.Delivery
		err error
	}
	results := make(chan result, 1)
	go func() {
		asked := b.history.now()
		ds, err := e.rcv.Receive(try, 1)
		b.arrived(e.rcv, asked, ds)
		results <- result{ds, err}
	}()
	// The publish is a round trip, so the cancellation gets as much head start
	// as delay.
	publishAfter := time.Duration(b.Rand.IntN(1000)) * time.Microsecond
	cancelAfter := time.Duration(b.Rand.IntN(2000)) * time.Microsecond
	published := make(chan error, 1)
	go func() {
		sleep(ctx, publishAfter)
		_, err := b.MustPublish(ctx, e.pub, m)
		published <- err
	}()
	sleep(ctx, cancelAfter)
	cancel()
	got := <-results
	if err := <-published; err != nil {
		return nil, err
	}
	if len(got.ds) == 0 && !errors.Is(got.err, context.Canceled) {
		return nil, fmt.Errorf("a cancelled Receive returned %w", got.err)
	}
	return got.ds, nil
}

// roundTrip shows that the subscription is at work.
func (b *Bench) roundTrip(ctx context.Context, e ends) error {
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	return b.MustAck(ctx, e.rcv, &d)
}

// probeDeadLetter. Anomaly: a poison message is dropped, or is kept where nobody
// looks. Experiment: a subscription that admits two deliveries and names a
// dead-letter topic; nack until the message stops coming, and read that topic.
func probeDeadLetter(ctx context.Context, b *Bench) error {
	dead := b.Instance.entity(b.name + "dlq")
	wish := func(w *broker.Entity) { w.MaxDeliveries, w.DeadLetter = 2, dead.Topic }
	e, err := b.ends(ctx, wish)
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotApplicable(boundary.DeliverDeadLetter, "no dead-letter entity: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.conn.Ensure(ctx, dead); err != nil {
		return fmt.Errorf("ensure %s: %w", dead.Topic, err)
	}
	b.ensured = append(b.ensured, dead)
	letters, err := e.conn.OpenReceiver(ctx, dead.Subscription)
	if err != nil {
		return err
	}
	poison := b.Message()
	poison.Key, poison.Headers = "k", broker.Headers{{Key: "kept", Value: "header"}}
	if _, err := b.MustPublish(ctx, e.pub, poison); err != nil {
		return err
	}
	for range 2 {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		if d.ID != poison.ID {
			return fmt.Errorf("%q came instead of %q", d.ID, poison.ID)
		}
		if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
			return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
		}
	}
	moved, err := b.Receive(ctx, letters, 1, 3*b.Target.patience())
	if err != nil {
		return err
	}
	if err := b.mustAckAll(ctx, letters, moved); err != nil {
		return err
	}
	// What follows must come, and nothing else: the poison may not block it, nor
	// come a third time. It is dead-lettered by the action itself.
	second, err := b.handOver(ctx, e)
	if err != nil {
		return fmt.Errorf("after the poison: %w", err)
	}
	if second.ID == poison.ID {
		return fmt.Errorf("%q came a third time", poison.ID)
	}
	if o := b.Settle(ctx, e.rcv, &second, broker.DeadLetter, 0); !o.State.OK() {
		return fmt.Errorf("dead-letter %q: %s: %w", second.ID, o.State, o.Err)
	}
	byAction, err := b.Receive(ctx, letters, 1, 3*b.Target.patience())
	if err != nil {
		return err
	}
	switch {
	case len(moved) == 0:
		b.Answer(boundary.DeliverDeadLetter, boundary.Dropped, "not delivered again, and not in %s; whether the broker keeps it apart can't be seen from outside", dead.Topic)
	case len(byAction) == 0 && moved[0].ID == poison.ID:
		b.Answer(boundary.DeliverDeadLetter, boundary.Dropped, "the action DeadLetter is confirmed, and %q is not in %s", second.ID, dead.Topic)
	case moved[0].ID != poison.ID || moved[0].Headers.Get("kept") != "header" || string(moved[0].Body) != string(poison.Body):
		return fmt.Errorf("what came to %s is not the message: %q %v", dead.Topic, moved[0].ID, moved[0].Headers)
	default:
		b.Answer(boundary.DeliverDeadLetter, boundary.Moved, "in %s after 2 deliveries, with ID, headers and body; reason: %q",
			dead.Topic, moved[0].Headers.Get("onceline-dead-letter-reason"))
	}
	return nil
}
