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

// probePublishOrder. Anomaly: what was sent behind a lost request is stored before
// its retry. Experiment: publish a few messages of a key, then more of them in one
// call of which the first request is lost, through the retry of package broker, and
// hold the order of first deliveries against that of publishing.
func probePublishOrder(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Ordered = true })
	if errors.Is(err, broker.ErrUnsupported) {
		b.Answer(boundary.PublishOrderKey, boundary.None, "the broker keeps no order of keys that a failure could break: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	ms := b.Messages(14)
	want := make([]string, len(ms))
	for i := range ms {
		ms[i].Key, want[i] = "key", ms[i].ID
	}
	retrying := broker.Retry(e.pub, broker.RetryPolicy{PerTry: time.Second, AllowCopies: true,
		Backoff:   broker.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond},
		ErrorHook: func(err error) { b.Note("%v", err) }})
	if _, err := b.MustPublish(ctx, retrying, ms[:2]...); err != nil {
		return err
	}
	i, err := b.Inject(Fault{Op: OnPublish, Kind: LoseRequest, Times: 1, Cut: b.Target.CutLost})
	if err != nil {
		return err
	}
	defer i.Remove()
	if _, err := b.MustPublish(ctx, retrying, ms[2:]...); err != nil {
		return err
	}
	if i.Hits() == 0 {
		return errors.New("no request was seen to be lost")
	}
	if err := b.takeAll(ctx, e.rcv, want); err != nil {
		return err
	}
	if late := CheckOrder(b.history.Events(), want, true); len(late) > 0 {
		b.Answer(boundary.PublishOrderKey, boundary.UntilFailure, "a request was lost and tried again; then came late: %v", late)
	} else {
		b.Answer(boundary.PublishOrderKey, boundary.OverFailure, "a request was lost and tried again, and all %s came in order", amount(len(ms), "message", "messages"))
	}
	return nil
}

// takeAll receives and acks until each of the messages has come.
func (b *Bench) takeAll(ctx context.Context, r broker.Receiver, want []string) error {
	left := make(map[string]bool, len(want))
	for _, id := range want {
		left[id] = true
	}
	for len(left) > 0 {
		d, err := b.MustReceive(ctx, r)
		if err != nil {
			return fmt.Errorf("missing, with a good receipt: %s: %w", amount(len(left), "message", "messages"), err)
		}
		if err := b.MustAck(ctx, r, &d); err != nil {
			return err
		}
		delete(left, d.ID)
	}
	return nil
}

// probePublishCancel. Anomaly: a publish that the caller gave up is reported as done
// or as not done, and nobody knows. Experiment: hold up the answer of a publish that
// the broker has applied, and of one that it never got, and end the caller's context.
func probePublishCancel(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	applied, never := b.Message(), b.Message()
	first, quick, err := b.givenUp(ctx, applied, LoseResponse)
	if err != nil {
		return err
	}
	second, alsoQuick, err := b.givenUp(ctx, never, LoseRequest)
	if err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv, applied)
	if err != nil {
		return err
	}
	if copies[applied.ID] == 0 {
		return fmt.Errorf("%q was applied and never came", applied.ID)
	}
	b.Note("the request that was lost left %s", amount(copies[never.ID], "copy", "copies"))
	switch {
	case second.Verdict.OK() && copies[never.ID] == 0, first.Verdict.OK():
		b.Answer(boundary.PublishCancel, boundary.ClaimedStored, "nobody heard an answer; the receipts are %s (applied) and %s (lost)", first.Verdict, second.Verdict)
	case first.Verdict == broker.Refused, second.Verdict == broker.Refused:
		b.Answer(boundary.PublishCancel, boundary.ClaimedRefused, "nobody heard an answer; the receipts are %s (applied) and %s (lost)", first.Verdict, second.Verdict)
	case !quick || !alsoQuick:
		b.Answer(boundary.PublishCancel, boundary.Hangs, "Publish didn't return within %s after its context had ended", answerWithin/2)
	default:
		b.Answer(boundary.PublishCancel, boundary.StaysUnknown, "both receipts are Unknown, whether the broker had it or not: %v", first.Err)
	}
	return nil
}

// givenUp publishes m under a fault, on a connection of its own, which may wait for
// the answer long after, and ends the publish's context as soon as the fault has
// struck. quick reports whether Publish then returned soon.
func (b *Bench) givenUp(ctx context.Context, m broker.Message, kind FaultKind) (r broker.Receipt, quick bool, err error) {
	p, err := b.another(ctx)
	if err != nil {
		return r, false, err
	}
	i, err := b.Inject(Fault{Op: OnPublish, Kind: kind, Times: 1})
	if err != nil {
		return r, false, err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	receipts := make(chan broker.Receipt, 1)
	go func() { receipts <- b.Publish(try, p, m)[0] }()
	if kind == LoseResponse {
		err = b.Applied(ctx, i)
	} else {
		err = b.struck(ctx, i)
	}
	if err != nil {
		return r, false, err
	}
	b.history.Add(report.Producer, "cancel", m.ID, "the caller gives up")
	cancel()
	since := time.Now()
	r = <-receipts
	return r, time.Since(since) < answerWithin/2, nil
}

// another is a publisher on a connection of its own.
func (b *Bench) another(ctx context.Context) (broker.Publisher, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return b.Publisher(ctx, c)
}

// struck waits until a fault has struck.
func (b *Bench) struck(ctx context.Context, i Injection) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for i.Hits() == 0 {
		if !sleep(ctx, 2*time.Millisecond) {
			return fmt.Errorf("no request was seen to be lost: %w", context.Cause(ctx))
		}
	}
	b.history.Add(report.Fault, "fault", "", "the request was dropped")
	return nil
}

// horizon is how much older than the window an ID is when it is retried, in parts of
// the window.
const horizon = 1.25

// probeRetryHorizon. Anomaly: a retry comes when the broker has forgotten the ID, and
// makes a second message. Experiment: publish through the retry of package broker,
// let more than the window pass, and publish the same message the same way; beside
// it another one without the guard, which shows that the danger was real. Where IDs
// aren't remembered at all, lose an answer: the guard must not send a second time.
func probeRetryHorizon(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Window = b.Target.Window })
	if errors.Is(err, broker.ErrUnsupported) {
		e, err = b.ends(ctx, nil)
	}
	if err != nil {
		return err
	}
	p, err := b.another(ctx)
	if err != nil {
		return err
	}
	guard := broker.Retry(p, broker.RetryPolicy{PerTry: time.Second, ErrorHook: func(err error) { b.Note("%v", err) }})
	window := guard.Limits().Window
	switch {
	case window == 0:
		return b.unguarded(ctx, e, guard)
	case b.Target.Window == 0:
		b.NotVerifiable(boundary.PublishRetryHorizon, "the window, %s, can't be set to one short enough to wait for", window)
		return nil
	}
	guarded, plain := b.Messages(1), b.Messages(1)
	if _, err := b.MustPublish(ctx, guard, guarded...); err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, plain...); err != nil {
		return err
	}
	if err := b.Wait(ctx, time.Duration(horizon*float64(b.Target.Window))); err != nil {
		return err
	}
	r := b.Publish(ctx, guard, guarded...)[0]
	if _, err := b.MustPublish(ctx, e.pub, plain...); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	b.Note("without the guard the same retry left %s", amount(copies[plain[0].ID], "copy", "copies"))
	switch n := copies[guarded[0].ID]; {
	case n > 1:
		b.Answer(boundary.PublishRetryHorizon, boundary.StoredAgain, "%s; the guard took the window for %s, and the receipt is %s", amount(n, "copy", "copies"), window, r.Verdict)
	case errors.Is(r.Err, broker.ErrWindowExceeded) && r.Verdict == broker.Unknown:
		b.Answer(boundary.PublishRetryHorizon, boundary.WindowExceeded, "one copy; %v", r.Err)
	default:
		return fmt.Errorf("the retry past the window: %s: %w", r.Verdict, r.Err)
	}
	return nil
}

// unguarded is probeRetryHorizon where the broker remembers no IDs. The guard's
// connection may wait for the lost answer long after.
func (b *Bench) unguarded(ctx context.Context, e ends, guard broker.Publisher) error {
	if b.Instance.Inject == nil {
		b.unverifiable(noFaults(b.Instance), boundary.PublishRetryHorizon)
		return nil
	}
	i, err := b.Inject(Fault{Op: OnPublish, Kind: LoseResponse, Times: 1})
	if err != nil {
		return err
	}
	defer i.Remove()
	m := b.Message()
	r := b.Publish(ctx, guard, m)[0]
	if err := b.Applied(ctx, i); err != nil {
		return err
	}
	n, err := b.stored(ctx, e, m)
	if err != nil {
		return err
	}
	switch {
	case n > 1:
		b.Answer(boundary.PublishRetryHorizon, boundary.StoredAgain, "the answer was lost, the guard sent it again; stored: %s", amount(n, "copy", "copies"))
	case r.Verdict == broker.Unknown && n == 1:
		b.Answer(boundary.PublishRetryHorizon, boundary.NotRetried, "the broker remembers no ID, so what had no answer wasn't sent again: %v", r.Err)
	default:
		return fmt.Errorf("the answer was lost; %s, %s: %w", amount(n, "copy", "copies"), r.Verdict, r.Err)
	}
	return nil
}

// elections is how long the other nodes have to take over, in patiences of the target:
// NATS, whose patience is a second, has needed 16 s (NATS-F-46). recovery is the same
// for when the node is back and has caught up.
const elections, recovery = 25, 10

// probeReplicated. Anomaly: a receipt is good and the message is on one disk alone.
// Experiment: publish until there are fifty good receipts, kill the node that gave
// them, leave it down, and look for the messages; what is missing is looked for again
// when the node is back.
func probeReplicated(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	ms := b.Messages(50)
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	b.history.Add(report.Broker, "kill", "", "the node that answers is killed, and stays down")
	revive, err := b.Instance.KillLeader(ctx, b.Entity)
	if err != nil {
		return fmt.Errorf("kill the node that answers: %w", err)
	}
	again := b.mending(ctx, func(ctx context.Context) error {
		b.history.Add(report.Broker, "restart", "", "the node is started again")
		return revive(ctx)
	})
	left := map[string]bool{}
	for i := range ms {
		left[ms[i].ID] = true
	}
	within := elections * b.Target.patience()
	after, down := b.drainWithin(ctx, e, left, within)
	if len(left) == 0 {
		b.Answer(boundary.PublishAckReplicated, boundary.Kept, "all %s came while the node that had answered was down", amount(len(ms), "message", "messages"))
		return nil
	}
	missing := len(left)
	b.Note("%d of %d didn't come within %s while the node was down (%v)", missing, len(ms), within, down)
	if err := again(); err != nil {
		return err
	}
	if _, err := b.drainWithin(ctx, after, left, recovery*b.Target.patience()); err != nil {
		return err
	}
	if len(left) > 0 {
		b.Answer(boundary.PublishAckReplicated, boundary.Lost, "%d of %s with a good receipt are gone with the node", len(left), amount(len(ms), "message", "messages"))
	} else {
		b.Answer(boundary.PublishAckReplicated, boundary.OneNode, "%d of %s came only when the node was back", missing, amount(len(ms), "message", "messages"))
	}
	return nil
}

// drainWithin opens a new connection and takes from left what comes, until nothing
// is left or the time is up.
func (b *Bench) drainWithin(ctx context.Context, old ends, left map[string]bool, within time.Duration) (ends, error) {
	deadline := time.Now().Add(within)
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	e, err := b.reopen(bounded, old)
	for err != nil && bounded.Err() == nil { // it gives up sooner than an election may last
		e, err = b.reopen(bounded, old)
	}
	if err != nil {
		return old, err
	}
	for len(left) > 0 && time.Now().Before(deadline) {
		ds, err := b.Receive(ctx, e.rcv, 64, time.Until(deadline))
		if err != nil {
			return e, err
		}
		for i := range ds {
			delete(left, ds[i].ID)
		}
		if err := b.mustAckAll(ctx, e.rcv, ds); err != nil {
			b.Note("acks after a node went down: %v", err)
		}
	}
	return e, nil
}

// probeDocumented asks nothing: the contract has no way to schedule a message, and
// there is one region here. What is declared rests on the vendors' documentation.
func probeDocumented(_ context.Context, b *Bench) error {
	b.NotVerifiable(boundary.PublishScheduled, "the contract of package broker has no publish for a later time; what is declared is the vendor's documentation")
	b.NotVerifiable(boundary.PublishRegion, "there is one region here; what is declared is the vendor's documentation")
	return nil
}
