package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// Bridge moves messages from a receiver to a publisher: it publishes each under its own
// dedup ID, waits until the far side has it, and acks it then. See the package comment
// for what that gives.
type Bridge struct {
	from  broker.Receiver
	to    broker.Publisher
	o     Options
	stats counters
	moved *memory
}

// New returns a bridge. Receiver and publisher stay the caller's, who closes them after
// Run: what is in hand at its end goes back to the source by that. It panics if one of
// them is missing.
//
// The publisher belongs under no broker.Batcher and no broker.Retry: the bridge batches
// and tries again itself, which keeps the order of each key.
func New(from broker.Receiver, to broker.Publisher, o Options) *Bridge {
	if from == nil || to == nil {
		panic("bridge: New without a receiver or a publisher")
	}
	o = o.withDefaults(to)
	return &Bridge{from: from, to: to, o: o, moved: newMemory(o.Remember)}
}

// StopError says which message stopped a bridge, by [Stop] or because it couldn't be
// dead-lettered. It is with the source still.
type StopError struct {
	ID, Key string
	// Late: it isn't the far side's refusal. The far side may have stored the message,
	// and may have forgotten its ID.
	Late bool
	Err  error
}

func (e *StopError) Error() string {
	return fmt.Sprintf("bridge: message %q (key %q): %v", e.ID, e.Key, e.Err)
}

func (e *StopError) Unwrap() error { return e.Err }

// ErrStuck comes with [Options].Patience.
var ErrStuck = errors.New("bridge: messages are in hand and none could be moved")

// errNone stands for an error that there wasn't.
var errNone = errors.New("none")

// errEnough ends a run whose work is done.
var errEnough = errors.New("bridge: enough")

// Run moves messages until ctx ends, Count is reached or the source was Idle, then ends
// what is under way, within StopTimeout, and returns nil. Sides that aren't there are
// waited for. It returns earlier with an error that waiting doesn't cure: a
// [StopError], a side that was closed, a subscription that isn't there or may not be
// read, or [ErrStuck].
//
// One Run at a time. What the bridge remembers and counts goes on in the next one.
func (b *Bridge) Run(ctx context.Context) error {
	r := &run{Bridge: b, changed: make(chan struct{}), queues: map[name]*queue{}, hand: map[*task]struct{}{}, firsts: map[ident]time.Time{}, since: time.Now(), cause: errNone}
	var stop context.CancelCauseFunc
	r.ctx, stop = context.WithCancelCause(ctx)
	r.end = func(cause error) { stop(cause); r.mu.Lock(); r.signal(); r.mu.Unlock() }
	defer stop(nil)
	outer := context.WithoutCancel(ctx)
	publishing, cutPublishing := context.WithCancel(outer)
	settling, cutSettling := context.WithCancel(outer)
	defer cutPublishing()
	defer cutSettling()
	r.publishing, r.settling = publishing, settling
	defer b.stats.inHand.Store(0)

	var lanes, rest sync.WaitGroup
	for range b.o.Lanes {
		lanes.Go(r.work)
	}
	rest.Go(r.settle)
	rest.Go(r.heart)
	lanes.Go(r.receive)
	<-r.ctx.Done()
	r.mu.Lock()
	r.signal()
	r.mu.Unlock()

	// A third of the time is for the settles of what was published meanwhile.
	cut := time.AfterFunc(b.o.StopTimeout*2/3, cutPublishing)
	defer cut.Stop()
	last := time.AfterFunc(b.o.StopTimeout, cutSettling)
	defer last.Stop()
	lanes.Wait()
	r.mu.Lock()
	r.over = true
	r.signal()
	r.mu.Unlock()
	rest.Wait()
	if cause := context.Cause(r.ctx); ctx.Err() == nil && !errors.Is(cause, errEnough) {
		return cause
	}
	return nil
}

// run is one Run.
type run struct {
	*Bridge
	ctx                  context.Context // ends when nothing more is to be begun
	end                  func(cause error)
	publishing, settling context.Context // cut what is under way

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when somebody may go on
	waiters int
	over    bool // all lanes have ended

	queues  map[name]*queue
	ready   []*queue
	waiting []*queue            // failed, until their time comes
	hand    map[*task]struct{}  // all that isn't settled
	bytes   int                 // of hand
	acks    []broker.Settlement // to be settled
	ackers  []*task             // whose they are
	closed  uint64              // deliveries that are done with, for Count
	firsts  map[ident]time.Time // of messages that were lost while the far side may have had them
	serial  uint64              // of messages without an ID
	since   time.Time           // when something was done with last, or the hand was empty
	cause   error               // the last one of the far side

	// While the far side takes nothing, one message at a time tries whether it does
	// again, so that few are without an answer.
	down    int
	resume  time.Time
	probing bool
}

// signal wakes all who wait; mu is held.
func (r *run) signal() {
	if r.waiters > 0 {
		close(r.changed)
		r.changed, r.waiters = make(chan struct{}), 0
	}
}

// await waits for a change, for d if that isn't negative, or the end of ctx. mu is held
// before and after.
func (r *run) await(ctx context.Context, d time.Duration) {
	changed := r.changed
	r.waiters++
	r.mu.Unlock()
	defer r.mu.Lock()
	var alarm <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-changed:
	case <-alarm:
	case <-ctx.Done():
	}
}

func (b *Bridge) failed(err error) {
	b.stats.errors.Add(1)
	b.o.ErrorHook(err)
}

// pause waits and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
