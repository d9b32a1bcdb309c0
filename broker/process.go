package broker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Output is a message that a [ProcessHandler] wants published, and where.
type Output struct {
	Topic string
	Message
}

// ProcessHandler turns a batch of inputs into outputs. The inputs come in the order
// of their keys, and are settled by [Process]: a handler doesn't settle them. What it
// returns is published in the transaction that acks them; nil outputs ack them alone.
//
// An error aborts the transaction, and the inputs come again. [FailedAt] says which of
// them is at fault; without it they come again one by one until it is found.
// [Poison] dead-letters the message that is at fault, in a transaction, at once.
//
// ctx ends when the transaction's time is over, or DrainTimeout after Process was told
// to end. It carries the values of Process's context but not its cancel. What the
// handler does to the outside, a row or a call, is no part of the transaction and is
// done again when the inputs come again: see package dedup for that.
type ProcessHandler func(ctx context.Context, in []Delivery) ([]Output, error)

// FailedAt is what a [ProcessHandler] returns when input i is at fault, of those it
// was given, for the reason err.
func FailedAt(i int, err error) error {
	if err == nil {
		err = errors.New("failed")
	}
	return &failedAt{err, i}
}

type failedAt struct {
	error
	at int
}

func (f *failedAt) Unwrap() error { return f.error }

// ProcessOptions says how [Process] works. The zero value is a good start.
type ProcessOptions struct {
	// Batch is how many inputs one transaction takes at most. Zero means 500.
	Batch int
	// MaxTime bounds a transaction, from its begin to its commit. Zero means half
	// of Scope.Timeout, or 10 s where the broker has none; more than Scope.Timeout
	// less a tenth is refused, for the broker would abort what is about to be
	// committed. Where inputs have leases, two thirds of the shortest bound it too.
	MaxTime time.Duration
	// MaxAttempts is how often a message fails before it is dead-lettered. Zero
	// means for ever: it and what stands behind it in its partition or key wait.
	MaxAttempts int
	// Backoff is the pause after a failure, by the number of failures in a row.
	Backoff Backoff
	// DrainTimeout is how long the transaction that is under way may go on when
	// Process ends, and how long an unresolved commit is asked for. Zero means 20 s.
	DrainTimeout time.Duration
	// Torn lets Process run where Scope.Atomic is false. What can be torn there,
	// Scope.Note says.
	Torn bool
	// ErrorHook gets every error that isn't returned: of the handler, of aborted
	// transactions, of Receive. It must not block. Nil logs by slog.
	ErrorHook func(error)
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
}

func (o ProcessOptions) withDefaults(s Scope) (ProcessOptions, error) {
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if s.Messages > 0 {
		o.Batch = min(o.Batch, s.Messages)
	}
	most := s.Timeout - s.Timeout/10
	switch {
	case o.MaxTime < 0:
		return o, Errorf(ErrInvalid, nil, "process: MaxTime %s", o.MaxTime)
	case o.MaxTime == 0 && s.Timeout > 0:
		o.MaxTime = s.Timeout / 2
	case o.MaxTime == 0:
		o.MaxTime = 10 * time.Second
	case s.Timeout > 0 && o.MaxTime > most:
		return o, Errorf(ErrInvalid, nil, "process: MaxTime %s: the broker aborts after %s, so at most %s", o.MaxTime, s.Timeout, most)
	}
	o.Backoff = o.Backoff.withDefaults()
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 20 * time.Second
	}
	if o.ErrorHook == nil {
		o.ErrorHook = logError
	}
	o.Rand = randomOr(o.Rand)
	return o, nil
}

// Process reads from r, hands batches to h, and publishes what h returns in one
// transaction of x with the acks of its inputs, until ctx ends or it can't go on. It
// blocks; r and x are its own for that time, and stay open. Both come from one
// connection.
//
// # Exactly once, inside of the broker
//
// Either the outputs of a batch are visible and its inputs are done, or neither.
// Receivers of the outputs must not read uncommitted messages, which those of this
// toolkit don't unless asked to. A batch whose assignment was taken away before the
// commit is not committed, so no output comes of a partition that is somebody else's.
// What h does outside of the broker isn't part of it.
//
// # Failures
//
// An aborted batch comes again, without a gap and in the order of its keys, after a
// pause; from a quorum queue of RabbitMQ behind what waits, unless the queue has a
// delivery limit (RMQ-F-40). Where h doesn't say which input failed, they come again one at a time, and
// then in growing batches. A message that has failed MaxAttempts times is dead-lettered
// in a transaction; where it can't be, the hook is told and it is tried on.
//
// A commit whose answer was lost is resolved before anything else is done. If that
// can't be until DrainTimeout after ctx has ended, Process returns ErrUnknownOutcome,
// and x must be opened anew, which ends what is open.
//
// # End
//
// When ctx ends, receiving stops, the batch under way is finished and committed within
// DrainTimeout, and Process returns nil. ErrFenced: somebody else opened x's ID; this
// instance has been replaced. Errors of Receive that are for good end it as they end
// [Consume].
func Process(ctx context.Context, r Receiver, x Transactor, h ProcessHandler, o ProcessOptions) error {
	if r == nil || x == nil || h == nil {
		return Errorf(ErrInvalid, nil, "process: no receiver, no transactor or no handler")
	}
	s := x.Scope()
	switch {
	case !s.Publishes || !s.Settles:
		return Errorf(ErrUnsupported, nil, "process: a transaction of this broker covers %s, not publishes and settles", s)
	case !s.Atomic && !o.Torn:
		return Errorf(ErrUnsupported, nil, "process: a transaction of this broker can be torn: %s", s.Note)
	}
	o, err := o.withDefaults(s)
	if err != nil {
		return err
	}
	p := &processor{r: r, x: x, h: h, o: o, size: o.Batch, doomed: map[string]string{}}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	return nil
}
