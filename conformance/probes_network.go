package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// Network is what becomes of the bytes between clients and the broker. The zero value
// carries them all, at once.
type Network struct {
	// Silent swallows them without closing a connection, as when a route is gone or a
	// firewall has forgotten its state. They move on when it ends.
	Silent bool
	// Delay is how long each piece of data is on its way.
	Delay time.Duration
	// BytesPerSecond bounds each connection in each direction; 0: no bound.
	BytesPerSecond int
}

const (
	// silence is how long calls into a silent network may take by their contexts.
	silence = 500 * time.Millisecond
	// silenceGrace is after how long a call that hasn't returned is stuck.
	silenceGrace = 10 * time.Second
)

// probeNetwork has one broker of its own for all that a network does.
func probeNetwork(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, b.longer)
	if err != nil {
		return err
	}
	returns, err := b.halfOpen(ctx, e)
	if err != nil {
		return err
	}
	if !returns {
		b.NotVerifiable(boundary.DeliverSlow, "a Receive doesn't return")
		return nil
	}
	if e, err = b.reopen(ctx, e); err != nil {
		return err
	}
	return b.slowLine(ctx, e)
}

// halfOpen. Anomaly: the network swallows everything and closes nothing, as after
// the failure of a router; a call hangs far beyond its context, or guesses how it
// ended. Experiment: with a message in hand, silence the network, and let a Publish, a
// Settle and a Receive run until their contexts end. Then let the network carry
// again, ask what became of all of them, and publish and receive anew.
func (b *Bench) halfOpen(ctx context.Context, e ends) (returns bool, err error) {
	// Each of the three calls has a connection of its own, which has carried before: one
	// that must be made in the silence may fail so that surely nothing was sent, as in
	// the handshake of TLS.
	if e.pub, err = b.another(ctx); err != nil {
		return false, err
	}
	held, err := b.handOver(ctx, e)
	if err != nil {
		return false, err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return false, err
	}
	idle, err := b.Receiver(ctx, c)
	if err != nil {
		return false, err
	}
	m := b.Message()
	carry, err := b.silence(ctx)
	if err != nil {
		return false, err
	}
	type ended struct {
		receipt broker.Receipt
		outcome broker.Outcome
		got     []broker.Delivery
		err     error
	}
	within := func(call func(ctx context.Context) ended) <-chan ended {
		done := make(chan ended, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, silence)
			defer cancel()
			done <- call(ctx)
		}()
		return done
	}
	published := within(func(ctx context.Context) ended { return ended{receipt: b.Publish(ctx, e.pub, m)[0]} })
	settled := within(func(ctx context.Context) ended { return ended{outcome: b.Settle(ctx, e.rcv, &held, broker.Ack, 0)} })
	received := within(func(ctx context.Context) ended {
		ds, err := idle.Receive(ctx, 1)
		return ended{got: ds, err: err}
	})
	grace := time.NewTimer(silence + silenceGrace)
	defer grace.Stop()
	late := make(chan struct{})
	go func() { // closed for all three at once
		select {
		case <-grace.C:
			close(late)
		case <-ctx.Done():
		}
	}()
	wait := func(done <-chan ended) (ended, bool) {
		select {
		case x := <-done:
			return x, true
		case <-late:
		case <-ctx.Done():
		}
		return ended{}, false
	}
	publish, publishEnded := wait(published)
	settle, settleEnded := wait(settled)
	receive, receiveEnded := wait(received)
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	if err := carry(); err != nil {
		return false, err
	}

	switch {
	case !publishEnded:
		b.Answer(boundary.PublishHalfOpen, boundary.Stuck, "a Publish had not returned %s after its context had ended", silenceGrace)
	case publish.receipt.Verdict != broker.Unknown:
		b.Answer(boundary.PublishHalfOpen, boundary.Guessed, "nobody could know, and the receipt says %s: %v", publish.receipt.Verdict, publish.receipt.Err)
	default:
		again, err := b.untilGood(ctx, e.pub, m)
		if err != nil {
			return false, err
		}
		if again.Verdict.OK() {
			b.Answer(boundary.PublishHalfOpen, boundary.SaysUnknown, "Unknown as the context ended; %s when tried again once the network carried", again.Verdict)
		} else {
			b.Answer(boundary.PublishHalfOpen, boundary.Stuck, "Unknown as the context ended; and once the network carried the publisher did not come back: %v", again.Err)
		}
	}
	switch o := settle.outcome; {
	case !settleEnded:
		b.Answer(boundary.SettleHalfOpen, boundary.Stuck, "a Settle had not returned %s after its context had ended", silenceGrace)
	case o.State == broker.Sent:
		b.NotApplicable(boundary.SettleHalfOpen, "an ack has no answer that could be missing")
	case o.State == broker.Pending:
		b.Answer(boundary.SettleHalfOpen, boundary.SaysUnknown, "Pending, which says no more than that it was recorded")
	case o.State != broker.Unknown:
		b.Answer(boundary.SettleHalfOpen, boundary.Guessed, "nobody could know, and the outcome is %s: %v", o.State, o.Err)
	default:
		ask, cancel := context.WithTimeout(ctx, b.Target.busy())
		defer cancel()
		again := b.Settle(ask, e.rcv, &held, broker.Ack, 0)
		b.Answer(boundary.SettleHalfOpen, boundary.SaysUnknown, "Unknown as the context ended; %s when asked again once the network carried", again.State)
	}
	if !receiveEnded {
		b.Answer(boundary.DeliverHalfOpen, boundary.Stuck, "a Receive had not returned %s after its context had ended", silenceGrace)
		return false, nil
	}
	if receive.err != nil && !errors.Is(receive.err, context.DeadlineExceeded) {
		b.Note("the Receive in the silence ended with: %v", receive.err)
	}
	if err := b.receivesAgain(ctx, e, idle, m); err != nil {
		return false, err
	}
	return true, c.Close(ctx)
}

// untilGood publishes m, again and again while the publisher comes back, and returns
// the last receipt.
func (b *Bench) untilGood(ctx context.Context, p broker.Publisher, m broker.Message) (r broker.Receipt, err error) {
	for deadline := time.Now().Add(b.Target.busy() + silenceGrace); ; {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		r = b.Publish(try, p, m)[0]
		cancel()
		switch {
		case r.Verdict.OK() || time.Now().After(deadline):
			return r, nil
		case !sleep(ctx, 50*time.Millisecond):
			return r, context.Cause(ctx)
		}
	}
}

// receivesAgain answers for the receiver that was waiting in the silence.
func (b *Bench) receivesAgain(ctx context.Context, e ends, idle broker.Receiver, m broker.Message) error {
	rcv := idle
	if b.Target.Exclusive {
		rcv = e.rcv // to which all is assigned
	}
	last := b.Message()
	if r, err := b.untilGood(ctx, e.pub, last); err != nil || !r.Verdict.OK() {
		return errors.Join(err, r.Err)
	}
	came := map[string]bool{}
	for deadline := time.Now().Add(b.Target.busy() + silenceGrace); !came[last.ID] || !came[m.ID]; {
		within := time.Until(deadline)
		if within <= 0 {
			break
		}
		ds, err := b.Receive(ctx, rcv, 16, min(within, 2*b.Target.patience()))
		if err != nil {
			return err
		}
		if len(ds) == 0 && rcv == idle { // what waits for the other receiver's lease, or is assigned to it
			if ds, err = b.Receive(ctx, e.rcv, 16, b.Target.patience()/2); err != nil {
				return err
			}
			if err := b.mustAckAll(ctx, e.rcv, ds); err != nil {
				return err
			}
		} else if err := b.mustAckAll(ctx, rcv, ds); err != nil {
			return err
		}
		for i := range ds {
			came[ds[i].ID] = true
		}
	}
	if !came[last.ID] || !came[m.ID] {
		b.Answer(boundary.DeliverHalfOpen, boundary.Stuck, "once the network carried, what was published before and after did not come: %v", came)
		return nil
	}
	b.Answer(boundary.DeliverHalfOpen, boundary.Recovers, "the Receive ended with its context, and all came once the network carried")
	return nil
}
