package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeSettleOnItsWay. Anomalies: an ack that never reached the broker is reported
// as done, or as a lost lease; an ack whose context ended on the way is guessed to be
// either. Experiment: drop an ack's request, let the caller give up, and ask again;
// hold another one back until its caller has given up, see it arrive, and ask again.
// A new connection shows what took effect.
func probeSettleOnItsWay(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, b.longer)
	if err != nil {
		return err
	}
	lost, first, again, err := b.lostAck(ctx, e)
	if err != nil {
		return err
	}
	onWay, answered := broker.Delivery{}, [2]broker.Outcome{}
	meanwhile := map[string]int{}
	if first.State != broker.Sent {
		if onWay, answered, err = b.cancelledAck(ctx, e, meanwhile); err != nil {
			return err
		}
	}
	came, err := b.afterAll(ctx, e, b.askingLease())
	if err != nil {
		return err
	}
	for id, n := range meanwhile {
		came[id] += n
	}
	b.answerLostRequest(first, again, came[lost.ID] > 0)
	if first.State == broker.Sent {
		b.NotApplicable(boundary.SettleCancel, "an ack has no answer, so that nobody waits for one whose context could end")
		return nil
	}
	b.answerCancel(answered, came[onWay.ID] > 0)
	return nil
}

// lostAck acks a new delivery, whose request is lost, and returns what is said then
// and when asked again.
func (b *Bench) lostAck(ctx context.Context, e ends) (d broker.Delivery, first, again broker.Outcome, err error) {
	for range attempts {
		if d, err = b.handOver(ctx, e); err != nil {
			return d, first, again, err
		}
		first, again, err = b.interrupted(ctx, e, &d, Fault{Op: OnSettle, Kind: LoseRequest, Times: 1, Cut: b.Target.CutLostSettle},
			func(Injection) error { return nil })
		if !errors.Is(err, errLeaseOver) {
			break
		}
	}
	return d, first, again, err
}

// attempts is how often an experiment is begun anew for which the machine was too
// slow.
const attempts = 4

// interrupted acks under a fault, ends the context as soon as the fault has struck,
// waits for what else has to happen, and asks again.
func (b *Bench) interrupted(ctx context.Context, e ends, d *broker.Delivery, f Fault, then func(Injection) error) (first, again broker.Outcome, err error) {
	i, err := b.Inject(f)
	if err != nil {
		return first, again, err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan broker.Outcome, 1)
	go func() { outcomes <- b.Settle(try, e.rcv, d, broker.Ack, 0) }()
	if err := hit(ctx, i); err != nil {
		return first, again, err
	}
	cancel()
	first = <-outcomes
	if err := then(i); err != nil {
		return first, again, err
	}
	if !d.Lease.IsZero() && !b.Now().Before(d.Lease) {
		return first, again, errLeaseOver
	}
	ask, done := context.WithTimeout(ctx, b.Target.patience()+5*time.Second)
	defer done()
	return first, b.Settle(ask, e.rcv, d, broker.Ack, 0), nil
}

// errLeaseOver is why an attempt says nothing: what is asked after the lease is
// another question.
var errLeaseOver = errors.New("the lease ended before the ack could be asked for again: this machine is too slow for it")

// errTakenBack is why an ack has to be cancelled in another way.
var errTakenBack = errors.New("the request was taken back with its context")

// cancelledAck acks a new delivery whose context ends while the ack is held back on
// its way, and returns what is said then and when asked after it has arrived. What else
// comes meanwhile is counted. An ack
// that was answered all the same was held back too short for a slow machine. Where a
// request is taken back with its context, as those of HTTP are, it is let through
// instead, and its answer is what is held back.
func (b *Bench) cancelledAck(ctx context.Context, e ends, again map[string]int) (d broker.Delivery, os [2]broker.Outcome, err error) {
	arrived := func(i Injection) error {
		within := time.Now().Add(time.Second)
		for i.Applied() == 0 {
			if time.Now().After(within) {
				return errTakenBack
			}
			if !sleep(ctx, time.Millisecond) {
				return context.Cause(ctx)
			}
		}
		// As long as a message takes there and back, so that it was carried out too.
		m := b.Message()
		if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
			return err
		}
		w, err := b.only(ctx, e, m.ID, again)
		if err != nil {
			return err
		}
		return b.MustAck(ctx, e.rcv, &w)
	}
	next := func() error {
		m := b.Message()
		_, err := b.MustPublish(ctx, e.pub, m)
		if err == nil {
			d, err = b.only(ctx, e, m.ID, again)
		}
		return err
	}
	for n, wait := 0, 100*time.Millisecond; ; n++ {
		if err := next(); err != nil {
			return d, os, err
		}
		first, asked, err := b.interrupted(ctx, e, &d, Fault{Op: OnSettle, Kind: DelayRequest, Times: 1, Delay: wait}, arrived)
		if errors.Is(err, errTakenBack) {
			break
		}
		if errors.Is(err, errLeaseOver) && n < attempts {
			continue
		}
		if err != nil {
			return d, os, err
		}
		if os = [2]broker.Outcome{first, asked}; first.State != broker.Confirmed || n == attempts {
			return d, os, nil
		}
		wait *= 2
	}
	b.Note("A request that is on its way ends with its context here; the answer is what was on its way instead.")
	if err := next(); err != nil {
		return d, os, err
	}
	os[0], os[1], err = b.interrupted(ctx, e, &d, Fault{Op: OnSettle, Kind: LoseResponse, Times: 1},
		func(i Injection) error { return b.Applied(ctx, i) })
	return d, os, err
}

// only receives until the message with the ID comes, and acks and counts what else
// does.
func (b *Bench) only(ctx context.Context, e ends, id string, again map[string]int) (broker.Delivery, error) {
	for {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil || d.ID == id {
			return d, err
		}
		again[d.ID]++
		if err := b.MustAck(ctx, e.rcv, &d); err != nil {
			return d, err
		}
	}
}

// hit waits until the fault has struck.
func hit(ctx context.Context, i Injection) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for i.Hits() == 0 {
		if !sleep(ctx, time.Millisecond) {
			return errors.New("the fault never struck")
		}
	}
	return nil
}

func (b *Bench) answerLostRequest(first, again broker.Outcome, came bool) {
	answer := func(a boundary.Answer, format string, args ...any) {
		b.Answer(boundary.SettleLostRequest, a, format, args...)
	}
	switch {
	case first.State == broker.LeaseLost || again.State == broker.LeaseLost:
		answer(boundary.ClaimedLost, "the ack never arrived; its consumer was told %s, then %s, within its lease", first.State, again.State)
	case first.State == broker.Sent:
		answer(boundary.Sent, "the ack never arrived and is Sent, and Sent again when asked; the message came again: %t", came)
	case first.State != broker.Unknown, came && again.State.OK():
		answer(boundary.ClaimedDone, "the ack never arrived; its consumer was told %s, then %s; the message came again: %t", first.State, again.State, came)
	case again.State.OK():
		answer(boundary.TakesEffect, "Unknown at first, %s when asked again, and the message didn't come again", again.State)
	default:
		answer(boundary.StaysUnknown, "Unknown at first, %s when asked again (%v); the message came again: %t", again.State, again.Err, came)
	}
}

func (b *Bench) answerCancel(os [2]broker.Outcome, came bool) {
	answer := func(a boundary.Answer, format string, args ...any) {
		b.Answer(boundary.SettleCancel, a, format, args...)
	}
	switch first, again := os[0], os[1]; {
	case first.State == broker.LeaseLost || again.State == broker.LeaseLost:
		answer(boundary.ClaimedLost, "the broker took the ack; its consumer was told %s, then %s", first.State, again.State)
	case first.State != broker.Unknown, came && again.State.OK():
		answer(boundary.ClaimedDone, "the ack was on its way when its context ended; its consumer was told %s, then %s; the message came again: %t", first.State, again.State, came)
	case again.State.OK():
		answer(boundary.ConfirmedAgain, "Unknown as its context ended, %s when asked again", again.State)
	default:
		answer(boundary.StaysUnknown, "Unknown as its context ended, %s when asked again: %v", again.State, again.Err)
	}
}

// probeAfterReconnect. Anomaly: an ack over a new connection is taken for one that
// counts and has no effect, or settles another message. Experiment: receive, have
// the connection of the receiver cut, as it asks for more where requests can be struck,
// wait until messages come over the new one, ack the old delivery, and see whether it comes again.
func probeAfterReconnect(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	i, err := b.Cut(OnReceive)
	if err != nil {
		return err
	}
	defer i.Remove()
	early, err := b.throughCut(ctx, e, i)
	if err != nil {
		return err
	}
	o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0)
	came := false
	for n := range early {
		came = came || early[n].ID == d.ID
	}
	if !came {
		again, err := b.afterAll(ctx, e, b.Target.Lease)
		if err != nil {
			return err
		}
		came = again[d.ID] > 0
	}
	answer := func(a boundary.Answer, format string, args ...any) {
		b.Answer(boundary.SettleAfterReconnect, a, format, args...)
	}
	switch {
	case o.State.OK() && came:
		answer(boundary.ClaimedDone, "the ack of the old delivery is answered %s, and the message came again", o.State)
	case o.State.OK():
		answer(boundary.TakesEffect, "the ack of the old delivery is answered %s, and the message didn't come again", o.State)
	case o.State == broker.LeaseLost && came:
		answer(boundary.Refused, "the ack of the old delivery is refused (%v), and the message came again", o.Err)
	case o.State == broker.LeaseLost:
		answer(boundary.ClaimedLost, "the ack of the old delivery is refused (%v), and the message never came again", o.Err)
	default:
		answer(boundary.StaysUnknown, "the ack of the old delivery is answered %s (%v); the message came again: %t", o.State, o.Err, came)
	}
	return nil
}

// throughCut receives until the connection has been cut and another message
// has come over the next one. It returns all that came, acked but for what is asked.
func (b *Bench) throughCut(ctx context.Context, e ends, i Injection) ([]broker.Delivery, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, err
	}
	pub, err := b.Publisher(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []broker.Delivery
	within := time.Now().Add(4*b.Target.patience() + 4*time.Second)
	for {
		m := b.Message()
		if m.Key != "" {
			m.Key = "not " + m.Key // which waits for the one in hand, where order is kept
		}
		if _, err := b.MustPublish(ctx, pub, m); err != nil {
			return nil, err
		}
		for got := false; !got; {
			ds, err := b.Receive(ctx, e.rcv, 1, time.Until(within))
			if err != nil {
				return nil, err
			}
			if len(ds) == 0 {
				return nil, fmt.Errorf("nothing came over a new connection; the fault struck %d times", i.Hits())
			}
			all = append(all, ds...)
			got = ds[0].ID == m.ID
		}
		if i.Hits() > 0 {
			return all, nil
		}
	}
}
