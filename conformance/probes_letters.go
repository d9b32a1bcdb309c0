package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/conformance/report"
)

// withLetters is ends with a dead-letter topic, and a receiver of that. The wishes
// are tried in turn, as long as they are refused as unsupported.
func (b *Bench) withLetters(ctx context.Context, limits ...int) (e ends, letters broker.Receiver, err error) {
	dead := b.Instance.entity(b.name + "dlq")
	for _, limit := range limits {
		e, err = b.ends(ctx, func(w *broker.Entity) { w.MaxDeliveries, w.DeadLetter = limit, dead.Topic })
		if !errors.Is(err, broker.ErrUnsupported) {
			break
		}
		b.Note("a limit of %d deliveries with a dead-letter topic is refused: %v", limit, err)
	}
	if err != nil {
		return e, nil, err
	}
	if err := e.conn.Ensure(ctx, dead); err != nil {
		return e, nil, fmt.Errorf("ensure %s: %w", dead.Topic, err)
	}
	b.mu.Lock()
	b.ensured = append(b.ensured, dead)
	b.mu.Unlock()
	letters, err = e.conn.OpenReceiver(ctx, dead.Subscription)
	return e, letters, err
}

// probeAfterMax. Anomaly: a message that kills its consumer is delivered for ever, for
// only what is given back is counted; or it is dropped at the limit. Experiment: a
// subscription that admits two deliveries and names a dead-letter topic; two consumers
// in turn are processes that are killed with the message in hand, a third one lives;
// the message comes to it or to the dead letters, or to neither.
func probeAfterMax(ctx context.Context, b *Bench) error {
	const limit = 2
	if !b.canCrash() && b.Target.Lease == 0 {
		b.NotVerifiable(boundary.DeliverDeadLetterAfterMax, "consumers can't be killed here: the instance has no URL, or the program doesn't call RunIfWorker")
		return nil
	}
	e, letters, err := b.withLetters(ctx, limit)
	if errors.Is(err, broker.ErrUnsupported) {
		b.NotApplicable(boundary.DeliverDeadLetterAfterMax, "no limit of deliveries with a dead-letter entity: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.rcv.Close(ctx); err != nil { // the others are to have the messages
		return fmt.Errorf("close the first receiver: %w", err)
	}
	poison := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, poison); err != nil {
		return err
	}
	held := max(b.Target.Lease, b.Target.Session)
	for n := range limit {
		victim, err := b.consumer(ctx, fmt.Sprintf("consumer %d", n+1), false)
		if err != nil {
			return err
		}
		id, err := due(ctx, b, held, func(ctx context.Context) (string, error) { return victim.receive(ctx) })
		if err != nil {
			return err
		}
		if id != poison.ID {
			return fmt.Errorf("%q came instead of %q", id, poison.ID)
		}
		victim.kill()
	}
	if b.Instance.Advance != nil {
		// The broker has time to notice, and nobody receives as the clock is moved: a
		// lease is counted from before the hand-over, and would seem to be over.
		if !sleep(ctx, b.Target.patience()) {
			return context.Cause(ctx)
		}
		if err := b.Wait(ctx, held+slack(held)); err != nil {
			return err
		}
	}
	next, err := b.Receiver(ctx, e.conn)
	if err != nil {
		return err
	}
	within := b.Target.busy()
	if b.Instance.Advance == nil {
		within = 3*held + 3*b.Target.patience()
	}
	again, moved, err := b.either(ctx, next, letters, within)
	switch {
	case err != nil:
		return err
	case moved != nil && moved.ID != poison.ID:
		return fmt.Errorf("%q is in the dead letters instead of %q", moved.ID, poison.ID)
	case moved != nil:
		b.Answer(boundary.DeliverDeadLetterAfterMax, boundary.Moved, "in the dead letters after %d consumers were killed with it in hand; reason: %q, after deliveries: %q",
			limit, moved.Headers.Get(driver.HeaderReason), moved.Headers.Get(driver.HeaderAttempts))
		return b.MustAck(ctx, letters, moved)
	case again != nil:
		b.Answer(boundary.DeliverDeadLetterAfterMax, boundary.KeepsComing, "%d consumers were killed with it in hand, where %d deliveries are allowed, and it came once more, as attempt %d (%s)",
			limit, limit, again.Attempt.Number, again.Attempt.Trust)
		return b.MustAck(ctx, next, again)
	}
	if err := b.witness(ctx, e.pub, next); err != nil {
		return err
	}
	b.Answer(boundary.DeliverDeadLetterAfterMax, boundary.Dropped, "neither delivered again nor in the dead letters in %s after %d consumers were killed with it in hand", within, limit)
	return nil
}

// due runs what waits for a message that comes at once or after the time, which passes
// by the broker's clock where the probe moves that: not before the broker had time to
// notice that somebody is gone.
func due[T any](ctx context.Context, b *Bench, after time.Duration, wait func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := wait(ctx)
		done <- result{v, err}
	}()
	if b.Instance.Advance != nil {
		t := time.NewTimer(b.Target.patience())
		defer t.Stop()
		select {
		case r := <-done:
			return r.v, r.err
		case <-t.C:
			if err := b.Wait(ctx, after+slack(after)); err != nil {
				return (<-done).v, err
			}
		}
	}
	r := <-done
	return r.v, r.err
}

// either waits for a delivery by one of two receivers, both of which receive
// meanwhile, for some brokers move a dead letter as somebody does.
func (b *Bench) either(ctx context.Context, one, other broker.Receiver, within time.Duration) (by1, by2 *broker.Delivery, err error) {
	type result struct {
		first bool
		ds    []broker.Delivery
	}
	look := func() (found result, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		results := make(chan result, 2)
		errs := make(chan error, 2)
		for _, r := range []broker.Receiver{one, other} {
			go func() {
				ds, err := b.Receive(ctx, r, 1, within)
				if len(ds) > 0 {
					cancel()
				}
				results <- result{r == one, ds}
				errs <- err
			}()
		}
		for range 2 {
			if r := <-results; len(r.ds) > 0 && (len(found.ds) == 0 || r.first) {
				found = r
			}
		}
		return found, errors.Join(<-errs, <-errs)
	}
	got, err := look()
	switch {
	case err != nil || len(got.ds) == 0:
		return nil, nil, err
	case got.first:
		return &got.ds[0], nil, nil
	}
	return nil, &got.ds[0], nil
}

// letterReason is what a consumer may say: words, signs and letters that aren't ASCII.
const letterReason = `can't be parsed: "naïve" is 100 % wrong`

// letterPrefix is how the marks of a dead letter begin.
const letterPrefix = "onceline-dead-letter-"

// probeLetter. Anomaly: a dead letter says neither why nor after how many attempts, or
// lost its ID, key or headers on the way, and can't be resubmitted. Experiment: give a
// message back once, dead-letter it at the second delivery with a reason, and hold the
// dead letter against what was published.
func probeLetter(ctx context.Context, b *Bench) error {
	e, letters, err := b.withLetters(ctx, 5, 0)
	if errors.Is(err, broker.ErrUnsupported) {
		for _, id := range claims(boundary.DeliverDeadLetterReason, boundary.DeliverDeadLetterAttempts) {
			b.NotApplicable(id, "no dead-letter entity: %v", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	m := b.Message()
	m.Key, m.Copy = "the key", "copy 1"
	m.Headers = broker.Headers{{Key: "trace", Value: "1"}, {Key: "empty"}, {Key: "trace", Value: "\x00\xff"}}
	m.Body = []byte("\x00body\xff")
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	d, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	if o := b.Settle(ctx, e.rcv, &d, broker.Nack, 0); !o.State.OK() {
		return fmt.Errorf("nack %q: %s: %w", d.ID, o.State, o.Err)
	}
	if d, err = b.MustReceive(ctx, e.rcv); err != nil {
		return err
	}
	b.history.Record(b.of(e.rcv, &d, report.Event{Actor: report.Consumer, Kind: kindSettle, Action: broker.DeadLetter.String(), Note: fmt.Sprintf("%s, reason %q", broker.DeadLetter, letterReason)}))
	o, err := d.DeadLetter(ctx, letterReason)
	b.settled(d.ID, broker.DeadLetter, o)
	if !o.State.OK() {
		return fmt.Errorf("dead-letter %q: %s: %w", d.ID, o.State, err)
	}
	found, err := b.Receive(ctx, letters, 1, b.Target.busy())
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if err := b.witness(ctx, e.pub, e.rcv); err != nil {
			return err
		}
		for _, id := range claims(boundary.DeliverDeadLetterReason, boundary.DeliverDeadLetterAttempts) {
			b.Answer(id, boundary.Lost, "the action DeadLetter is %s, and the message is not in the dead letters", o.State)
		}
		return nil
	}
	if err := b.MustAck(ctx, letters, &found[0]); err != nil {
		return err
	}
	b.judgeLetter(m, &found[0])
	return nil
}

// judgeLetter answers both claims from a message and its dead letter.
func (b *Bench) judgeLetter(m broker.Message, letter *broker.Delivery) {
	switch got := letter.Headers.Get(driver.HeaderReason); got {
	case letterReason:
		b.Answer(boundary.DeliverDeadLetterReason, boundary.Kept, "the reason %q is there", got)
	case "":
		b.Answer(boundary.DeliverDeadLetterReason, boundary.Lost, "no reason is there; given was %q", letterReason)
	default:
		b.Answer(boundary.DeliverDeadLetterReason, boundary.Changed, "the reason is %q; given was %q", got, letterReason)
	}
	attempts := letter.Headers.Values(driver.HeaderAttempts)
	own := *letter
	own.Headers = nil
	for _, h := range letter.Headers {
		if !strings.HasPrefix(h.Key, letterPrefix) {
			own.Headers = append(own.Headers, h)
		}
	}
	differs := difference(&m, &own.Message)
	switch {
	case differs != "":
		b.Answer(boundary.DeliverDeadLetterAttempts, boundary.Lost, "the dead letter is another message: %s", differs)
	case len(attempts) == 0 || attempts[0] == "":
		b.Answer(boundary.DeliverDeadLetterAttempts, boundary.NoAttempts, "ID, copy, key, body and headers are as they were; the number of deliveries isn't told")
	case len(attempts) > 1 || attempts[0] != strconv.Itoa(2):
		b.Answer(boundary.DeliverDeadLetterAttempts, boundary.Wrong, "said to have been delivered %q times, and it was twice", attempts)
	default:
		b.Answer(boundary.DeliverDeadLetterAttempts, boundary.Kept, "ID, copy, key, body and headers are as they were, and it says that it was delivered twice")
	}
}
