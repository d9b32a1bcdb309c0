package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
)

// TransactionalOptions says how a [Transactional] sink works. The zero value is a
// good start.
type TransactionalOptions struct {
	// Timeout is after what time the broker aborts a transaction by itself. Zero asks
	// for as much as Options.Interval, CheckpointTimeout and RestartBudget need
	// together; less than that is [ErrBudget].
	Timeout time.Duration
}

// Transactional is the sink that publishes in transactions of a broker which keeps
// them open over a checkpoint and lets another process commit them: Kafka. Readers of
// committed messages see the output of a checkpoint at once, and only behind it.
//
// It uses two transactor IDs in turn, id + ".0" and id + ".1", so that the broker's
// memory of a transaction isn't overwritten by the next one before the store says
// that it is committed. No other program may use them.
//
// A transaction that the broker aborts before it is recorded costs nothing: its input
// is processed again. One that it aborts after that is a [Loss].
func Transactional[T any](conn broker.Conn, id string, o TransactionalOptions) Sink[T] {
	return &transactional[T]{conn: conn, id: id, o: o}
}

type transactional[T any] struct {
	conn broker.Conn
	id   string
	o    TransactionalOptions
	need time.Duration

	pair   [2]broker.Transactor
	turn   int // which of them is next
	tx     broker.Transaction
	writer *writer
}

func (s *transactional[T]) Kind() string                    { return "transactional" }
func (s *transactional[T]) InStore() bool                   { return false }
func (s *transactional[T]) Record(context.Context, T) error { return nil }

// Check implements [Sink].
func (s *transactional[T]) Check(need time.Duration) error {
	switch {
	case s.conn == nil || s.id == "":
		return broker.Errorf(broker.ErrInvalid, nil, "a transactional sink without a connection or an ID")
	case s.o.Timeout != 0 && s.o.Timeout < need:
		return fmt.Errorf("%w: the broker aborts its transactions after %v (TransactionalOptions.Timeout), and interval, checkpoint timeout and restart budget are %v together", ErrBudget, s.o.Timeout, need)
	}
	s.need = need
	return nil
}

func (s *transactional[T]) ids() []string { return []string{s.id + ".0", s.id + ".1"} }

// timeout is what the broker is asked for: whole seconds, so that a broker which
// rounds doesn't round below the need.
func (s *transactional[T]) timeout() time.Duration {
	if s.o.Timeout != 0 {
		return s.o.Timeout
	}
	return (s.need + time.Second - 1).Truncate(time.Second)
}

// Open implements [Sink]. The note is the IDs, so that a later process with others
// can abort what is open under these.
func (s *transactional[T]) Open(ctx context.Context, before []byte) ([]byte, error) {
	var old []string
	if before != nil {
		if err := json.Unmarshal(before, &old); err != nil {
			return nil, fmt.Errorf("%w: the sink's note: %w", ErrCorrupt, err)
		}
	}
	for _, id := range old {
		if slices.Contains(s.ids(), id) {
			continue
		}
		t, err := broker.OpenTransactor(ctx, s.conn, id)
		if err == nil {
			err = t.Close(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("abort what is open under the former ID %s: %w", id, err)
		}
	}
	for i, id := range s.ids() {
		t, err := broker.OpenTransactor(ctx, s.conn, id, broker.TransactionTimeout(s.timeout()))
		if err != nil {
			if errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrInvalid) {
				err = fmt.Errorf("%w: %w", err, fmt.Errorf("asked for a timeout of %v: interval, checkpoint timeout and restart budget together; a broker that can keep transactions, but not for that long, takes a shorter interval or budget, or a higher limit of its own (Kafka: transaction.max.timeout.ms)", s.timeout()))
			}
			return nil, err
		}
		s.pair[i] = t
		if err := s.fits(t.Scope()); err != nil {
			return nil, err
		}
	}
	s.writer = newWriter()
	return json.Marshal(s.ids())
}

// fits refuses a broker whose transactions can't carry a checkpoint.
func (s *transactional[T]) fits(scope broker.Scope) error {
	switch {
	case !scope.Publishes || !scope.Prepares || !scope.Atomic || !scope.Isolated || !scope.Fences:
		return broker.Errorf(broker.ErrUnsupported, nil, "the broker's transactions (%v) can't be kept over a checkpoint: that takes publishes that are prepared, atomic, isolated and fenced; use the Outbox sink. %s", scope, scope.Note)
	case scope.Timeout != 0 && scope.Timeout < s.need:
		return fmt.Errorf("%w: the broker aborts transactions after %v, and interval, checkpoint timeout and restart budget are %v together", ErrBudget, scope.Timeout, s.need)
	case scope.Limit != 0 && scope.Limit < s.need:
		return fmt.Errorf("%w: the broker allows transactions of %v at most, and interval, checkpoint timeout and restart budget are %v together", ErrBudget, scope.Limit, s.need)
	}
	return nil
}

// Write implements [Sink]. The transaction begins with the first message, and with it
// the broker's clock.
func (s *transactional[T]) Write(ctx context.Context, msgs []Output) error {
	if s.tx == nil {
		tx, err := s.pair[s.turn].Begin(ctx)
		if err != nil {
			return err
		}
		s.tx = tx
	}
	return s.writer.write(ctx, s.tx, msgs)
}

// Prepare implements [Sink].
func (s *transactional[T]) Prepare(ctx context.Context) ([]byte, error) {
	if s.tx == nil {
		return nil, nil
	}
	if err := s.writer.flush(ctx, s.tx); err != nil {
		return nil, err
	}
	return s.tx.Prepare(ctx)
}

// Commit implements [Sink].
func (s *transactional[T]) Commit(ctx context.Context) (Fate, error) {
	if s.tx == nil {
		return FateCommitted, nil
	}
	o, err := s.tx.Commit(ctx)
	fate, err := fateOf(o, err)
	if fate == FateCommitted {
		s.tx, s.turn = nil, 1-s.turn
	}
	return fate, err
}

// Recover implements [Sink].
func (s *transactional[T]) Recover(ctx context.Context, token []byte) (Fate, error) {
	return fateOf(broker.RecoverTransaction(ctx, s.conn, token, true))
}

// fateOf reads the outcome of a commit.
func fateOf(o broker.Outcome, err error) (Fate, error) {
	switch {
	case o.State == broker.Confirmed:
		return FateCommitted, nil
	case o.State == broker.LeaseLost:
		return FateAborted, err
	case errors.Is(err, broker.ErrNotFound):
		return FateGone, err
	}
	if err == nil {
		err = broker.Errorf(broker.ErrUnknownOutcome, nil, "commit: %v", o.State)
	}
	return FateOpen, err
}

// Abort implements [Sink].
func (s *transactional[T]) Abort(ctx context.Context) error {
	if s.tx == nil {
		return nil
	}
	s.writer.stop()
	err := s.tx.Abort(ctx)
	s.tx = nil
	return err
}

// Close implements [Sink]. What is prepared stays, for Recover.
func (s *transactional[T]) Close(ctx context.Context) error {
	if s.writer != nil {
		s.writer.stop()
		s.writer = nil
	}
	var errs []error
	for i, t := range s.pair {
		if t != nil {
			errs = append(errs, t.Close(ctx))
			s.pair[i] = nil
		}
	}
	s.tx, s.turn = nil, 0
	return errors.Join(errs...)
}
