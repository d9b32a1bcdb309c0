package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// Options says how an [Inbox] works. The zero value is a good start.
type Options struct {
	// MaxBatch is how many messages share a transaction at most; larger batches are
	// applied in several, one after another. Zero means 100, beyond which little is
	// gained; no more than 500 are taken, for each holds locks.
	MaxBatch int
	// SavepointEvery is how many effects of a batch lie between two savepoints.
	// When one fails, those since the savepoint are undone and applied again
	// without it. 1 means that no effect runs again because of another's failure.
	// Zero lets the inbox choose, for each savepoint is a round trip: one for a
	// transaction while none fails, and one every 8 effects from one that failed on,
	// until 16 transactions had no other.
	SavepointEvery int
	// Attempts is how often a transaction is tried that was refused for another's
	// sake, lost its connection or got no answer to its commit, before the outcome
	// is Unknown. Zero means 5.
	Attempts int
	// Backoff is the pause between those attempts. Zero means 20 ms to 1 s.
	Backoff broker.Backoff
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
	// Took, where not nil, is told of each call when it ends: of how many messages
	// it was, and how long it took, the store's attempts included. It is called
	// concurrently and must not block. Package dedup/otel has one.
	Took func(messages int, took time.Duration)
}

func (o Options) withDefaults() Options {
	if o.MaxBatch <= 0 {
		o.MaxBatch = 100
	}
	o.MaxBatch = min(o.MaxBatch, 500)
	if o.Attempts <= 0 {
		o.Attempts = 5
	}
	if o.Backoff.Min <= 0 {
		o.Backoff.Min = 20 * time.Millisecond
	}
	if o.Backoff.Max <= 0 {
		o.Backoff.Max = time.Second
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

// Inbox applies effects once for each message: it commits a marker in one
// transaction with the effect. T is the store's transaction. It is safe for
// concurrent use.
//
// An effect may run more than once before it is committed once: when its
// transaction is refused for the sake of another or loses its connection. What it
// does outside of its transaction, it may do more than once.
type Inbox[T any] struct {
	driver   Driver[T]
	consumer string
	o        Options
	stats    counters
	ids      idWatch
	careful  atomic.Int32 // transactions that set savepoints often
}

// New returns an inbox of the named consumer. The name is part of every marker: it
// must stay the same, and differ from that of every other consumer which has an
// effect of its own. New panics if there is no driver or no name.
func New[T any](d Driver[T], consumer string, o Options) *Inbox[T] {
	if d == nil || consumer == "" {
		panic("dedup: New without a driver or a consumer's name")
	}
	return &Inbox[T]{driver: d, consumer: consumer, o: o.withDefaults()}
}

// Driver returns the store under the inbox.
func (in *Inbox[T]) Driver() Driver[T] { return in.driver }

// Consumer returns the inbox's name.
func (in *Inbox[T]) Consumer() string { return in.consumer }

// Window is how long the store keeps markers; zero if it doesn't say.
func (in *Inbox[T]) Window() time.Duration { return windowOf(in.driver) }

// marker completes the key.
func (in *Inbox[T]) marker(k Key) (Marker, error) {
	if k.Consumer == "" {
		k.Consumer = in.consumer
	}
	return k.Marker()
}

var (
	// errUnchanged ends a transaction that has nothing to commit.
	errUnchanged = errors.New("dedup: nothing to commit")
	// errOwn ends a transaction that finds markers held by an earlier attempt of the
	// same call.
	errOwn = errors.New("dedup: an earlier attempt has not ended yet")
)

// Once runs effect in a transaction that also holds k's marker, and commits both;
// not if the marker is there, which makes the message a [Duplicate]. It blocks for
// the transaction and its attempts, but doesn't wait for another copy that is being
// applied: that is [InFlight].
//
// The error is nil for Applied and Duplicate alone. With [Failed] it wraps what
// effect returned (a panic is a [broker.PanicError]), and a key that isn't valid is
// Failed too, by [broker.ErrInvalid]. With [Unknown] the store is at fault, or ctx
// ended; see [ErrCommitUnknown]. After a lost answer a marker that is found is
// taken as Applied: this call put it there, or a copy at the same time.
//
// Effect uses tx and not the store beside it, doesn't end it, and doesn't keep it.
func (in *Inbox[T]) Once(ctx context.Context, k Key, effect func(ctx context.Context, tx T) error) (Outcome, error) {
	defer in.stats.begin(1, in.o.Took).end()
	m, err := in.marker(k)
	if err != nil {
		return in.stats.count(Failed), err
	}
	markers, claims := [1]Marker{m}, [1]Claim{}
	var failed error
	t := in.trying(ctx)
	for t.next() {
		failed, claims[0] = nil, 0
		err = in.driver.Transact(ctx, func(tx T) error {
			if err := in.driver.Claim(ctx, tx, markers[:], claims[:]); err != nil {
				return err
			}
			if claims[0] != Fresh {
				return errUnchanged
			}
			failed = contain(func() error { return effect(ctx, tx) })
			return failed
		})
		switch {
		case err == nil:
			return in.stats.count(Applied), nil
		case errors.Is(err, errUnchanged):
			if claims[0] == Held && t.own && t.attempt < t.o.Attempts {
				continue // the server hasn't noticed yet that we lost the connection
			}
			outcome, err := claims[0].outcome(t.ambiguous)
			return in.stats.count(outcome), err
		case t.again(err, in.driver):
		case ctx.Err() != nil || claims[0] != Fresh:
			// Cut short, or the store refused before the effect ran.
			return in.stats.count(Unknown), wrap(ctx, err)
		default:
			if failed == nil {
				err = fmt.Errorf("dedup: the store refused the commit: %w", err)
			}
			return in.stats.count(Failed), err
		}
	}
	return in.stats.count(Unknown), wrap(ctx, t.give(err))
}

// outcome is that of a marker which isn't Fresh.
func (c Claim) outcome(ambiguous bool) (Outcome, error) {
	switch c {
	case Seen:
		if ambiguous {
			return Applied, nil
		}
		return Duplicate, nil
	case Held:
		return InFlight, ErrInFlight
	case Outside:
		return OutsideWindow, ErrOutsideWindow
	}
	return Unknown, fmt.Errorf("dedup: the store answered %v", c)
}

// ClaimTx puts the keys' markers into a transaction that the caller owns, for those
// who must. The caller applies the effects of the keys that are [Fresh], in tx, and
// no others; takes the markers of effects that failed out by [Inbox.ReleaseTx], in
// tx and after having undone the effect; and retries after a commit without answer.
// A key that comes twice is Fresh once.
func (in *Inbox[T]) ClaimTx(ctx context.Context, tx T, keys ...Key) ([]Claim, error) {
	if len(keys) > 500 {
		return nil, broker.Errorf(broker.ErrTooLarge, nil, "dedup: %d keys in one claim, over 500", len(keys))
	}
	markers, err := in.markers(keys)
	if err != nil {
		return nil, err
	}
	sorted := sortMarkers(append([]Marker(nil), markers...))
	claims := make([]Claim, len(sorted))
	if err := in.driver.Claim(ctx, tx, sorted, claims); err != nil {
		return nil, err
	}
	return spread(markers, sorted, claims), nil
}

// ReleaseTx takes markers that [Inbox.ClaimTx] found Fresh in this transaction out
// of it, so that the messages can be applied later.
func (in *Inbox[T]) ReleaseTx(ctx context.Context, tx T, keys ...Key) error {
	markers, err := in.markers(keys)
	if err != nil || len(markers) == 0 {
		return err
	}
	return in.driver.Release(ctx, tx, sortMarkers(markers))
}

func (in *Inbox[T]) markers(keys []Key) ([]Marker, error) {
	markers := make([]Marker, len(keys))
	for i, k := range keys {
		var err error
		if markers[i], err = in.marker(k); err != nil {
			return nil, err
		}
	}
	return markers, nil
}

// spread returns for each marker what sorted's claim is; of those that are Fresh, only
// for the first.
func spread(markers, sorted []Marker, claims []Claim) []Claim {
	out := make([]Claim, len(markers))
	for i, m := range markers {
		s, _ := slices.BinarySearchFunc(sorted, m, Marker.Compare)
		if out[i] = claims[s]; out[i] == Fresh {
			claims[s] = Seen
		}
	}
	return out
}

// trying counts the attempts of one transaction.
type trying struct {
	ctx       context.Context
	o         *Options
	stats     *counters
	attempt   int
	ambiguous bool // an earlier attempt may have been committed
	own       bool // the server may still be busy with an earlier attempt
}

func (in *Inbox[T]) trying(ctx context.Context) trying {
	return trying{ctx: ctx, o: &in.o, stats: &in.stats}
}

// next waits before another attempt, and reports whether there is one.
func (t *trying) next() bool {
	t.attempt++
	switch {
	case t.attempt == 1:
		return true
	case t.attempt > t.o.Attempts || t.ctx.Err() != nil:
		return false
	}
	t.stats.retried.Add(1)
	bound := min(t.o.Backoff.Max, t.o.Backoff.Min<<min(t.attempt-2, 30))
	if bound <= 0 {
		bound = t.o.Backoff.Max
	}
	timer := time.NewTimer(time.Duration(t.o.Rand() * float64(bound)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// again reports whether the transaction that ended with err may be tried again.
func (t *trying) again(err error, d interface{ Fault(error) Fault }) bool {
	switch {
	case errors.Is(err, ErrCommitUnknown):
		t.ambiguous, t.own = true, true
		t.stats.ambiguous.Add(1)
		return true
	case t.ctx.Err() != nil:
		return false
	case errors.Is(err, ErrLost):
		t.own = true
		return true
	}
	return errors.Is(err, errOwn) || d.Fault(err) != Permanent
}

// give is the error after the last attempt.
func (t *trying) give(err error) error {
	if t.ambiguous && !errors.Is(err, ErrCommitUnknown) {
		return fmt.Errorf("%w; then: %w", ErrCommitUnknown, err)
	}
	return err
}

// wrap tells of the context that ended, if one did.
func wrap(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("dedup: %w: %w", cause, err)
	}
	return err
}

// contain runs f and makes an error of its panic.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &broker.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
