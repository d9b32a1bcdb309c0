package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Handler does the work for one delivery. What it returns decides what becomes
// of the message: nil acks it, [Poison] dead-letters it, [Postpone] gives it back
// for later without counting an attempt, any other error, and a panic, is a
// failed attempt. A handler may settle d itself; what it returned is then told
// to the broker once more and answered from the handle, and a contradiction is
// an ErrConflict in the hook.
//
// ctx carries the values of Consume's context but not its cancel, so that a
// handler may finish. It ends with the cause ErrLeaseLost when the message has
// passed to somebody else, with the end of DrainTimeout, and some time after the
// handler returned: don't keep it.
type Handler func(ctx context.Context, d *Delivery) error

// ConsumeOptions says how [Consume] works. The zero value is a good start.
type ConsumeOptions struct {
	// Semantics is AtLeastOnce (handle, then settle) or AtMostOnce (settle, then
	// handle).
	Semantics Semantics
	// Workers is how many handlers run at most at the same time; with 1 there
	// are never two. Zero means 8.
	Workers int
	// Batch is how many deliveries one Receive asks for at most. Zero means four
	// for each worker.
	Batch int
	// MaxInFlight is how many deliveries are in hand at most: waiting, being
	// handled, or without the broker's answer to their settle. Zero means eight
	// for each worker, and one for each worker AtMostOnce, where what is in hand
	// is what a crash loses.
	MaxInFlight int
	// Unordered spreads deliveries over the workers whatever their Key.
	Unordered bool

	// MaxAttempts is how often a message is tried before it is dead-lettered.
	// Zero leaves that to the broker.
	//
	// Where the broker's attempt number is Exact it counts, less the deliveries
	// that never reached the handler or were postponed as far as this Consume
	// knows. Otherwise the failures seen by this Consume count, by message ID,
	// for the last ten thousand failing messages; other consumers and a restart
	// count for themselves. The check comes after a failure, so a message is
	// never dead-lettered unseen; one that kills the process is for the broker's
	// own Entity.MaxDeliveries to stop.
	MaxAttempts int
	// Backoff is the delay after which a failed message is handled again, by its
	// attempts, and the pause after a failed Receive.
	Backoff Backoff

	// LeaseMargin is how long before its end a lease is extended. Zero means a
	// third of the lease; no more than half of it is taken.
	LeaseMargin time.Duration
	// DrainTimeout is how long running handlers may go on when Consume ends.
	// Zero means 20 s.
	DrainTimeout time.Duration
	// SettleTimeout bounds one call of Settle. Zero means 10 s.
	SettleTimeout time.Duration

	// ErrorHook gets every error that isn't returned: those of handlers, of
	// settles and of Receive. It is called concurrently and must not block. Nil
	// logs by slog.
	ErrorHook func(error)
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
}

func (o ConsumeOptions) withDefaults() ConsumeOptions {
	if o.Workers <= 0 {
		o.Workers = 8
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 8 * o.Workers
		if o.Semantics == AtMostOnce {
			o.MaxInFlight = o.Workers
		}
	}
	if o.Batch <= 0 {
		o.Batch = 4 * o.Workers
	}
	o.Batch = min(o.Batch, o.MaxInFlight)
	o.Backoff = o.Backoff.withDefaults()
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 20 * time.Second
	}
	if o.SettleTimeout <= 0 {
		o.SettleTimeout = 10 * time.Second
	}
	if o.ErrorHook == nil {
		o.ErrorHook = logError
	}
	o.Rand = randomOr(o.Rand)
	return o
}

func logError(err error) {
	if _, ok := Postponed(err); ok {
		slog.Debug("consume", "error", err)
		return
	}
	slog.Warn("consume", "error", err)
}

// Consume receives from r and runs h for each delivery until ctx ends or r
// can't go on. It blocks; r is its own for that time, and stays open.
//
// # Semantics
//
// AtLeastOnce handles and then settles. Nothing is lost; after a crash, a lost
// lease or a lost answer a message comes again. Exactly-once effects are
// AtLeastOnce with a dedup store in the handler.
//
// AtMostOnce acks first and hands over only what the broker Confirmed, or Sent
// where the protocol has no answer. Pending and Unknown are asked again for up
// to SettleTimeout; what is still neither then isn't handled. A handler's error
// goes to the hook and the message is not tried again.
//
// # Order
//
// Deliveries of one Key are handled one at a time, in the order they came. When
// one fails it stays in hand for its delay, its lease kept, and is handled again
// before those behind it, so that the order holds whatever the broker does with a
// redelivery, and no message pays with a delivery for the failure of another.
// Delivery.Attempt counts deliveries, not these retries. The price is that a key
// which fails for long can fill MaxInFlight with what stands behind it; MaxAttempts
// bounds that. A message that is dead-lettered doesn't hold up its key, nor does
// one without a key hold up anything: it goes back to the broker with the delay.
//
// Where a lease can't be extended, as Consume ends, and after a [Postpone] for
// longer than Backoff.Max, the message goes back to the broker, and with it those
// of its key in hand, each with a little more of the same delay.
//
// # Leases
//
// The leases of deliveries that wait or are handled are extended in batches,
// LeaseMargin before they end. When one is lost the handler's context ends with
// the cause ErrLeaseLost and its result is not settled; a delivery that has lost
// its lease while it waited isn't handled.
//
// # Settling
//
// One settler takes all that has finished, so that settles travel in batches
// as large as the broker is slow. It has a context of its own. Unknown outcomes
// are asked again, with pauses, until the lease has ended or ten answers were
// lost. Pending ones count as done and are asked along with later settles and at
// the end. A delay that the broker doesn't know is waited for here, the lease
// kept, then the message is given back: it holds a place of MaxInFlight
// meanwhile. A message that can't be dead-lettered is given back with
// Backoff.Max, and the hook told; it is never acked.
//
// # End
//
// When ctx ends, receiving stops. Running handlers go on, with a context that
// lives until DrainTimeout; what hasn't started is given back at once; what has
// finished is settled. Then Consume returns nil, whatever ended ctx: the caller
// knows why. AtMostOnce what is acked is still handled, within DrainTimeout.
//
// A Receive that fails for good (ErrClosed, ErrNotFound, ErrUnauthorized,
// ErrInvalid, ErrConflict, ErrUnsupported) ends Consume the same way, with that
// error. Other errors go to the hook, and Receive is called again after a pause.
//
// A handler that doesn't return after its context has ended is left behind
// SettleTimeout after DrainTimeout, with an error that says so; its message is
// not settled.
func Consume(ctx context.Context, r Receiver, h Handler, o ConsumeOptions) error {
	if r == nil || h == nil {
		return Errorf(ErrInvalid, nil, "consume: no receiver or no handler")
	}
	if o.Semantics > AtMostOnce {
		return Errorf(ErrInvalid, nil, "consume: %s", o.Semantics)
	}
	c := newConsumer(ctx, r, h, o.withDefaults())
	c.start()
	err := c.receive()
	return errors.Join(err, c.end())
}

// receive calls Receive until ctx ends or it fails for good.
func (c *consumer) receive() error {
	failures := 0
	for {
		n, call := c.reserve()
		if c.ctx.Err() != nil {
			return nil
		}
		ds, err := c.r.Receive(c.ctx, n)
		if len(ds) > 0 {
			failures = 0
			c.accept(ds, call)
		}
		switch {
		case c.ctx.Err() != nil:
			return nil
		case err != nil && final(err):
			return fmt.Errorf("consume: %w", err)
		case err != nil:
			c.o.ErrorHook(fmt.Errorf("consume: %w", err))
		case len(ds) > 0:
			continue
		}
		// An empty answer without an error is not in the contract, but a wrapper
		// may give one; it must not make a hot loop.
		failures++
		if !sleep(c.ctx, c.o.Backoff.pause(failures, c.o.Rand), nil) {
			return nil
		}
	}
}

func final(err error) bool {
	for _, kind := range []error{ErrClosed, ErrNotFound, ErrUnauthorized, ErrInvalid, ErrConflict, ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Poison is what a handler returns for a message that can never be handled: it
// is dead-lettered at once, with err as the reason.
func Poison(err error) error {
	if err == nil {
		err = errors.New("poison")
	}
	return &poisoned{err}
}

type poisoned struct{ error }

func (p *poisoned) Unwrap() error { return p.error }

// Postpone is what a handler returns to get the message again after delay,
// without an attempt being counted here: somebody else is at work on it, or its
// time has not come. A delay of zero or less is Backoff.Min.
//
// A message with a key, and any for no longer than 5 s, stays in hand for the delay
// where its lease can be extended. So it costs no delivery either, and a broker with a
// bound of those (Entity.MaxDeliveries) doesn't dead-letter it for a database that is
// away. Otherwise the broker gets it back and counts as it counts.
func Postpone(err error, delay time.Duration) error {
	if err == nil {
		err = errors.New("postponed")
	}
	return &postponed{err, delay}
}

type postponed struct {
	error
	delay time.Duration
}

func (p *postponed) Unwrap() error { return p.error }

// IsPoison reports whether [Poison] is in err's chain, for those who settle what a
// handler has returned without [Consume].
func IsPoison(err error) bool { return isA[*poisoned](err) }

// Postponed reports whether [Postpone] is in err's chain, and the delay that it asks
// for, which may be zero or less.
func Postponed(err error) (delay time.Duration, ok bool) {
	var p *postponed
	if errors.As(err, &p) {
		return p.delay, true
	}
	return 0, false
}

// isA reports whether a T is in err's chain.
func isA[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}
