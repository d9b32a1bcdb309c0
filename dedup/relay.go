package dedup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// RelayOptions says how a [Relay] works. The zero value is a good start.
type RelayOptions struct {
	// Workers is how many turns are under way at a time. Zero means 2.
	Workers int
	// Batch is how many messages a turn takes at most. Zero means 100.
	Batch int
	// Bytes bounds the bodies of a turn together. Zero means 4 MiB.
	Bytes int
	// Poll is the time after which a relay that nobody wakes looks for messages.
	// Zero means 1 s.
	Poll time.Duration
	// PublishTimeout bounds one Publish. Zero means 10 s.
	PublishTimeout time.Duration
	// StopTimeout is how long a turn may take to end after Run's context has; then
	// it is cut, and what it sent may be sent again. Zero means PublishTimeout + 5 s.
	StopTimeout time.Duration
	// Window is how long the broker remembers a dedup ID. Zero takes that of the
	// publisher's Limits; where that is zero too, messages without an answer are sent
	// again however late, and copies are for the consumers' inbox to find.
	Window time.Duration
	// Margin is kept free at the window's end. Zero means a tenth of the window,
	// 10 s at most.
	Margin time.Duration
	// Backoff is the pause before a message is tried again, and before a broker or
	// store that isn't there is. Zero means 100 ms to 30 s.
	Backoff broker.Backoff
	// Pass sends the later messages of a key also when one of it is held or parked.
	// Otherwise they wait until somebody releases or drops that one.
	Pass bool
	// Listen, where not nil, is run beside the turns until its context ends: it calls
	// wake when it hears that there are messages, and failed with what keeps it from
	// hearing. Package dedup/postgres has one.
	Listen func(ctx context.Context, wake func(), failed func(error))
	// ErrorHook gets what went wrong: errors of the store, and for each turn the first
	// of each kind of the broker's. It may be called concurrently. Nil logs a warning
	// by slog.
	ErrorHook func(error)
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
	// Published, where not nil, is told of each Publish when it has ended. It is called
	// concurrently and must not block. Package dedup/otel has one.
	Published func(RelayPublish)
}

// RelayPublish is one Publish of a relay.
type RelayPublish struct {
	Messages int
	Took     time.Duration
	// Retried is how many of the messages were tried before, and RetryAge how long
	// before this Publish the broker may first have stored the oldest of them: when
	// that reaches the broker's window, copies are no longer found. On a broker without
	// a window the time is the message's own.
	Retried  int
	RetryAge time.Duration
}

func (o RelayOptions) withDefaults(p broker.Publisher) RelayOptions {
	positive := func(n *int, zero int) {
		if *n <= 0 {
			*n = zero
		}
	}
	some := func(d *time.Duration, zero time.Duration) {
		if *d <= 0 {
			*d = zero
		}
	}
	positive(&o.Workers, 2)
	o.Workers = min(o.Workers, OutboxLanes)
	positive(&o.Batch, 100)
	positive(&o.Bytes, 4<<20)
	some(&o.Poll, time.Second)
	some(&o.PublishTimeout, 10*time.Second)
	some(&o.StopTimeout, o.PublishTimeout+5*time.Second)
	some(&o.Window, p.Limits().Window)
	some(&o.Margin, min(o.Window/10, 10*time.Second))
	o.Margin = min(o.Margin, o.Window/2)
	some(&o.Backoff.Min, 100*time.Millisecond)
	some(&o.Backoff.Max, 30*time.Second)
	o.Backoff.Max = max(o.Backoff.Max, o.Backoff.Min)
	if o.ErrorHook == nil {
		o.ErrorHook = func(err error) { slog.Warn("relay", "error", err) }
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

// Relay sends the messages of an outbox and removes those that the broker has:
// Stored, Duplicate or Accepted. Several may work on one outbox, in one process or
// in many; each takes lanes that no other has.
//
// What a relay had sent when it was killed is sent again, with the same ID, as is
// what has no answer. The broker finds the copy as long as it remembers the ID.
// Before its window ends such a message is held instead of doubled, with
// [broker.ErrWindowExceeded] as the reason; [OutboxStore].StoppedOutbox lists it,
// ReleaseOutbox and DropOutbox decide. A message that was never tried is sent however
// old it is. On a broker without a window the consumers' [Inbox] finds copies.
//
// A message that the broker refuses for good (too large, say) is parked; its lane's
// other keys go on. A refusal that isn't the message's fault (no such topic, no
// rights) makes the relay wait and try again.
//
// Each Publish has one message of a key at most, so that none overtakes one that
// fails; a batch of few keys takes as many round trips.
//
// The publisher belongs under no [broker.Batcher]. Under [broker.Retry] its policy
// needs EventTime, for Message.Time is when the message was written.
type Relay struct {
	store OutboxStore
	topic string
	to    broker.Publisher
	o     RelayOptions
	wake  chan struct{}
	woken atomic.Uint64 // counts Wakes
	stats relayCounters
	tx    *relayTx // nil: it publishes message by message
	// failures counts turns in a row that the broker took nothing of. While there
	// are some, a turn tries one message, so that few are without an answer.
	failures atomic.Int32
}

// NewRelay returns a relay from a topic's outbox to a publisher of it, which stays
// the caller's. It panics if one of them is missing.
func NewRelay(store OutboxStore, topic string, to broker.Publisher, o RelayOptions) *Relay {
	if store == nil || topic == "" || to == nil {
		panic("dedup: NewRelay without a store, a topic or a publisher")
	}
	return &Relay{store: store, topic: topic, to: to, o: o.withDefaults(to), wake: make(chan struct{}, 1)}
}

// Topic returns the topic that the relay sends to.
func (r *Relay) Topic() string { return r.topic }

// Window returns how long the broker remembers an ID, as the relay takes it; zero if
// it doesn't, or nobody says.
func (r *Relay) Window() time.Duration { return r.o.Window }

// Wake makes the relay look for messages now. It doesn't block.
func (r *Relay) Wake() {
	r.woken.Add(1)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run sends messages until ctx ends, then ends the turns under way, within
// StopTimeout, and returns nil. It returns earlier only with an error that waiting
// doesn't cure: [ErrVerify], or a publisher that was closed.
func (r *Relay) Run(ctx context.Context) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	if err := r.verified(run); err != nil || run.Err() != nil {
		return err
	}
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var all sync.WaitGroup
	if r.o.Listen != nil {
		all.Go(func() { r.o.Listen(run, r.Wake, r.failed) })
	}
	errs := make([]error, r.o.Workers)
	for i := range errs {
		all.Go(func() {
			defer stop()
			errs[i] = r.work(run, hard, i*OutboxLanes/r.o.Workers)
		})
	}
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	select {
	case <-ended:
	case <-run.Done():
		timer := time.NewTimer(r.o.StopTimeout)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			cut()
			<-ended
		}
	}
	return errors.Join(errs...)
}

func (r *Relay) failed(err error) {
	r.stats.errors.Add(1)
	r.o.ErrorHook(fmt.Errorf("relay of %s: %w", r.topic, err))
}

// verified verifies the store, once it can be asked.
func (r *Relay) verified(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := r.store.VerifyOutbox(ctx)
		if err == nil || errors.Is(err, ErrVerify) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		r.failed(err)
		if !pause(ctx, r.delay(failures), nil) {
			return nil
		}
	}
}

// delay is the pause after so many failures.
func (r *Relay) delay(failures int) time.Duration {
	bound := r.o.Backoff.Max
	if shift := max(failures-1, 0); shift < 40 && r.o.Backoff.Min <= bound>>shift {
		bound = r.o.Backoff.Min << shift
	}
	return time.Duration((1 + r.o.Rand()) / 2 * float64(bound))
}

// work takes turns until ctx ends; hard cuts the one under way.
func (r *Relay) work(ctx, hard context.Context, first int) error {
	storeFailures := 0
	for ctx.Err() == nil {
		woken, began := r.woken.Load(), time.Now()
		t := r.turn(ctx, hard, first)
		first = (first + 1 + int(r.o.Rand()*8)) % OutboxLanes
		wait := r.o.Poll
		if t.err == nil {
			storeFailures = 0
		}
		switch {
		case t.closed != nil:
			return t.closed
		case t.err != nil && ctx.Err() == nil:
			storeFailures++
			r.failed(t.err)
			wait = r.delay(storeFailures)
		case t.broken:
			wait = r.delay(int(r.failures.Load()))
		case t.sent+t.stopped > 0:
			r.Wake() // for another worker: there may be more
			if r.tx != nil && t.sent < r.o.Batch/2 {
				// Four writes to the store for these few, and whoever adds to the outbox
				// waits for them: more come together if half of the time is theirs.
				pause(ctx, min(time.Since(began), r.o.Poll), nil)
			}
			continue
		case r.woken.Load() != woken:
			// What the wake was for may have come after this turn looked, and another
			// worker that it woke may have found the lanes in this one's hands.
			continue
		case t.soon > 0:
			wait = min(wait, t.soon)
		}
		// After a failure nobody's wake cuts the pause short.
		var wake <-chan struct{}
		if t.err == nil && !t.broken {
			wake = r.wake
		}
		pause(ctx, wait, wake)
	}
	return nil
}

// Drain sends what can be sent, and returns how many messages it sent when nothing
// is left but what waits for another time, is stopped or in another relay's hands. It
// ends at the first failure of the store, or turn that the broker took nothing of.
func (r *Relay) Drain(ctx context.Context) (int, error) {
	if err := r.store.VerifyOutbox(ctx); err != nil {
		return 0, err
	}
	sent := 0
	for ctx.Err() == nil {
		t := r.turn(ctx, ctx, 0)
		sent += t.sent
		switch {
		case t.closed != nil:
			return sent, t.closed
		case t.err != nil:
			return sent, fmt.Errorf("relay of %s: %w", r.topic, t.err)
		case t.broken:
			return sent, fmt.Errorf("relay of %s: %w", r.topic, t.cause)
		case len(t.rows) == 0:
			return sent, nil
		}
	}
	return sent, context.Cause(ctx)
}

// RelayStats counts what a relay did since it was made. The sums are for metrics;
// they are not taken at one moment.
type RelayStats struct {
	Stored, Duplicate, Accepted uint64 // messages that the broker has, by its verdict
	Unknown                     uint64 // attempts without an answer
	Refused                     uint64 // attempts that were refused, to be made again
	Held, Parked                uint64
	Publishes                   uint64
	Errors                      uint64 // what went to the ErrorHook
}

// Add returns the sums of s and o.
func (s RelayStats) Add(o RelayStats) RelayStats {
	return RelayStats{
		Stored: s.Stored + o.Stored, Duplicate: s.Duplicate + o.Duplicate, Accepted: s.Accepted + o.Accepted,
		Unknown: s.Unknown + o.Unknown, Refused: s.Refused + o.Refused, Held: s.Held + o.Held, Parked: s.Parked + o.Parked,
		Publishes: s.Publishes + o.Publishes, Errors: s.Errors + o.Errors,
	}
}

// Sent is how many messages the broker has.
func (s RelayStats) Sent() uint64 { return s.Stored + s.Duplicate + s.Accepted }

type relayCounters struct {
	verdicts          [broker.Refused + 1]atomic.Uint64
	held, parked      atomic.Uint64
	publishes, errors atomic.Uint64
}

// Stats returns the counts so far.
func (r *Relay) Stats() RelayStats {
	n := func(v broker.Verdict) uint64 { return r.stats.verdicts[v].Load() }
	return RelayStats{
		Stored: n(broker.Stored), Duplicate: n(broker.Duplicate), Accepted: n(broker.Accepted),
		Unknown: n(broker.Unknown), Refused: n(broker.Refused), Held: r.stats.held.Load(), Parked: r.stats.parked.Load(),
		Publishes: r.stats.publishes.Load(), Errors: r.stats.errors.Load(),
	}
}
