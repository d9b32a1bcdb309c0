package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onceline/onceline/broker"
)

// Log is what [Follow] reads, and how. Topic and Open are needed; the rest is a good
// start as it is.
type Log struct {
	// Topic and Epoch are those of its [Partition]s.
	Topic, Epoch string
	// Open opens a receiver with the options that it is given, of which one is
	// [broker.StartFrom]: Follow calls it at the start and each time it has to seek, and
	// closes what it returned. A broker that can't start where it is told refuses with
	// broker.ErrUnsupported, which ends Follow.
	Open func(ctx context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error)
	// Batch is how many messages a Receive asks for at most, and so how many of a
	// partition may share a transaction, within [Options].MaxBatch. Zero means 500.
	Batch int
	// MaxInFlight is how many messages are in hand at most; a partition whose effects
	// fail for long can fill it. Zero means ten times Batch.
	MaxInFlight int
	// MaxAttempts is how often an effect is tried before its message is dead-lettered
	// and left behind. Zero means for ever: those behind it in the partition wait.
	MaxAttempts int
	// SeekAhead is by how many offsets the stored position has to be ahead of what is in
	// hand for the receiver to be opened there, rather than to read what lies between.
	// Zero means 10,000.
	SeekAhead int64
	// Backoff is the pause after a failed effect, a store that isn't there, a failed
	// Receive, and before a receiver is opened again. Zero means 100 ms to 30 s.
	Backoff broker.Backoff
	// DrainTimeout is how long a transaction that is under way may go on when ctx ends.
	// Zero means 20 s.
	DrainTimeout time.Duration
	// ErrorHook gets every error that isn't returned: of effects, of the store, of the
	// broker, [ErrFenced] among them. It is called concurrently and must not block. Nil
	// logs by slog.
	ErrorHook func(error)
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
}

func (l Log) withDefaults() Log {
	if l.Batch <= 0 {
		l.Batch = 500
	}
	if l.MaxInFlight <= 0 {
		l.MaxInFlight = 10 * l.Batch
	}
	if l.SeekAhead <= 0 {
		l.SeekAhead = 10_000
	}
	if l.Backoff.Min <= 0 {
		l.Backoff.Min = 100 * time.Millisecond
	}
	if l.Backoff.Max <= 0 {
		l.Backoff.Max = 30 * time.Second
	}
	if l.DrainTimeout <= 0 {
		l.DrainTimeout = 20 * time.Second
	}
	if l.ErrorHook == nil {
		l.ErrorHook = func(err error) { logWarning(err.Error()) }
	}
	if l.Rand == nil {
		l.Rand = rand.Float64
	}
	return l
}

// pause waits before attempt n+1, and reports whether ctx let it.
func (l *Log) pause(ctx context.Context, n int) bool {
	bound := l.Backoff.Max
	if shift := max(n, 1) - 1; shift < 62 && l.Backoff.Min <= l.Backoff.Max>>shift {
		bound = l.Backoff.Min << shift
	}
	return sleep(ctx, time.Duration(l.Rand()*float64(bound)))
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Follow reads log, each partition from behind its stored position, and applies the
// effect of each message once and in the order of its partition, by [AppliedFrom]: many
// in a transaction, which moves the position too. It is what [broker.Consume] and
// [Handler] are for queues, and blocks until ctx ends, for which it returns nil, or the
// broker refuses for good (broker.ErrUnsupported, ErrNotFound, ErrUnauthorized,
// ErrInvalid, ErrConflict, ErrClosed). Partitions are applied side by side, so effect is
// called concurrently.
//
// Who loses the compare-and-set, because another owner has moved the position
// ([ErrFenced]), loads it and goes on from there: what the other has applied is left
// out. If the position lies behind what was read, which somebody has set back, or far
// ahead of it (Log.SeekAhead), the receiver is closed and opened where it is. So is one
// whose position couldn't be loaded when its partition was assigned: nothing is applied
// behind a gap that nobody knows of.
//
// An effect that fails is tried again, with pauses, and what is behind it in its
// partition waits: a position says of all that is below it that it was applied. A
// message whose effect returns broker.Poison, or fails for Log.MaxAttempts, is
// dead-lettered, and then the position moves over it; a crash between the two
// dead-letters it twice. broker.Postpone in the error is the pause, and no attempt.
// A store that is away, or pushes back, costs no attempt either.
//
// Messages are acked when their effects stand. That is for whoever looks at the
// broker's own offsets; what counts is the stored position, and an ack that fails is
// only told.
func Follow[T any](ctx context.Context, p *Position[T], log Log, effect func(ctx context.Context, tx T, d *broker.Delivery) error) error {
	if p == nil || effect == nil || log.Open == nil || log.Topic == "" {
		return broker.Errorf(broker.ErrInvalid, nil, "dedup: follow without positions, an effect, or a log with a topic and a way to open it")
	}
	f := &follower[T]{p: p, Log: log.withDefaults(), effect: effect}
	for failures := 0; ; {
		applied, err := f.session(ctx)
		if ctx.Err() != nil {
			if err != nil {
				f.ErrorHook(err)
			}
			return nil
		}
		if endsFollow(err) {
			return err
		}
		f.ErrorHook(err)
		if failures++; applied {
			failures = 1
		}
		if !f.pause(ctx, failures) {
			return nil
		}
	}
}

// endsFollow reports an error of the broker that doesn't heal.
func endsFollow(err error) bool {
	if errors.Is(err, errAgain) {
		return false
	}
	for _, kind := range []error{broker.ErrClosed, broker.ErrNotFound, broker.ErrUnauthorized, broker.ErrInvalid, broker.ErrConflict, broker.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// errAgain ends a session that is followed by another.
var errAgain = errors.New("the receiver is opened again")

// follower is one call of Follow.
type follower[T any] struct {
	p *Position[T]
	Log
	effect func(ctx context.Context, tx T, d *broker.Delivery) error
}

// session reads by one receiver until it has to be another, and reports whether
// anything was applied.
func (f *follower[T]) session(ctx context.Context) (applied bool, err error) {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &followed[T]{follower: f, life: life, end: end, parts: map[string]*follows{}, room: make(chan struct{}, 1)}
	// What is under way may go on for a while when life has ended.
	var drained context.CancelFunc
	s.work, drained = context.WithCancel(context.WithoutCancel(ctx))
	defer drained()
	defer context.AfterFunc(life, func() {
		if sleep(s.work, f.DrainTimeout) {
			drained()
		}
	})()
	if s.r, err = f.Open(life, broker.StartFrom(s.startFrom)); err != nil {
		if why := cause(life); why != nil {
			err = errors.Join(why, err)
		}
		return false, fmt.Errorf("dedup: follow %s: %w", f.Topic, err)
	}
	err = s.receive()
	end(nil)
	s.working.Wait()
	drained()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if failed := s.r.Close(closing); failed != nil {
		f.ErrorHook(fmt.Errorf("dedup: follow %s: close: %w", f.Topic, failed))
	}
	return s.applied.Load(), err
}

// again has the session ended, for that reason, and another one begun.
func (s *followed[T]) again(format string, a ...any) {
	s.end(fmt.Errorf("dedup: follow %s: %w: %w", s.Topic, errAgain, fmt.Errorf(format, a...)))
}

// maxFailures is how many Receives may fail in a row before the receiver is opened
// again, for which an adapter may ask.
const maxFailures = 3

// receive hands what comes to the goroutines of the partitions, until life ends. It
// returns why.
func (s *followed[T]) receive() error {
	for failures := 0; ; {
		if !s.hasRoom() {
			return cause(s.life)
		}
		before := s.assignments()
		ds, err := s.r.Receive(s.life, s.Batch)
		if len(ds) > 0 {
			failures = 0
			if err := s.accept(ds, before); err != nil {
				return err
			}
		}
		switch {
		case s.life.Err() != nil:
			return cause(s.life)
		case err != nil && endsFollow(err):
			return fmt.Errorf("dedup: follow %s: %w", s.Topic, err)
		case err != nil:
			if failures++; failures >= maxFailures {
				return fmt.Errorf("dedup: follow %s: %w: %w", s.Topic, errAgain, err)
			}
			s.ErrorHook(fmt.Errorf("dedup: follow %s: %w", s.Topic, err))
		case len(ds) > 0:
			continue
		}
		// An empty answer without an error mustn't make a hot loop.
		if !s.pause(s.life, max(failures, 1)) {
			return cause(s.life)
		}
	}
}

// cause is why ctx ended; nil if its parent did, or nobody says.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errAgain) {
		return err
	}
	return nil
}

// accept queues deliveries with their partitions. Before is how many assignments there
// were when the receiver was asked for them.
func (s *followed[T]) accept(ds []broker.Delivery, before int) error {
	byPart := map[string][]*broker.Delivery{}
	var order []string
	for i := range ds {
		at := ds[i].Position
		if at.Token != "" {
			return broker.Errorf(broker.ErrUnsupported, nil, "dedup: follow %s: the broker's positions are no offsets", s.Topic)
		}
		if byPart[at.Partition] == nil {
			order = append(order, at.Partition)
		}
		byPart[at.Partition] = append(byPart[at.Partition], &ds[i])
	}
	for _, name := range order {
		part, unsure := s.part(name, before)
		if part == nil {
			s.again("partition %q came without a position to start from", name)
			return nil
		}
		if unsure {
			// It was assigned once more meanwhile. What came before that must not be
			// taken for what follows it.
			switch held, err := s.held(byPart[name][0]); {
			case err != nil:
				s.again("partition %q was assigned once more: %w", name, err)
				return nil
			case !held:
				continue
			}
		}
		s.enqueue(part, byPart[name])
	}
	return nil
}

// held asks whether a delivery is still this receiver's.
func (s *followed[T]) held(d *broker.Delivery) (bool, error) {
	ask := []broker.Settlement{{Delivery: d, Action: broker.Extend}}
	if err := settle(s.work, s.r, ask); err != nil && ask[0].Outcome.State != broker.LeaseLost {
		return false, err
	}
	return ask[0].Outcome.State.OK(), nil
}

// hasRoom waits until less than MaxInFlight is in hand, and reports whether life let it.
func (s *followed[T]) hasRoom() bool {
	for {
		s.mu.Lock()
		full := s.inHand >= s.MaxInFlight
		s.mu.Unlock()
		if !full {
			return s.life.Err() == nil
		}
		select {
		case <-s.room:
		case <-s.life.Done():
			return false
		}
	}
}

// leave takes n messages out of hand.
func (s *followed[T]) leave(n int) {
	s.mu.Lock()
	s.inHand -= n
	s.mu.Unlock()
	select {
	case s.room <- struct{}{}:
	default:
	}
}
