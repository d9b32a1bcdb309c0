package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// LeaseResult is the outcome for one message under a lease.
type LeaseResult struct {
	Outcome Outcome
	Err     error
	// Result is what the effect returned, now or, of a Duplicate, then.
	Result []byte
	// TakenOver is [Reservation].TakenOver: the message was in other hands before, and
	// nobody knows how far its effect had come there. So an effect of Applied may have
	// taken place twice, unless it looked ([TakenOver]) or its destination knows it.
	TakenOver bool
}

type takenOverKey struct{}

// TakenOver reports, in an effect under a [Lease], whether an earlier holder's lease
// ended without a record of how it went: that holder's effect may have taken place, or
// may still. The effect may look at its destination first then, and take what it finds
// there for its own.
func TakenOver(ctx context.Context) bool {
	taken, _ := ctx.Value(takenOverKey{}).(bool)
	return taken
}

// Once reserves k, runs effect and records it as done with its result, which a copy
// that comes later gets. The context of effect ends when the lease is lost, which it
// is not before the store was out of reach for its whole length, or another has taken
// it: an effect that outlives its lease may run twice at a time. Fence is
// [Reservation].Fence; [TakenOver] of its context tells the effect whether another
// holder may have been at it before, and OnceBatch tells the caller too.
//
// An effect that returns an error is [Failed], and the key is given back: it must
// mean that nothing took place. Of one that panics, or returns an error when ctx has
// ended, nobody knows: the next reservation is [Reservation].TakenOver. [Unknown] with
// [broker.ErrLeaseLost] means that the lease was lost while the effect ran: if another
// holder took it over, it is that one's message now. With [ErrCommitUnknown] the effect
// took place and its record may not be there.
func (l *Lease) Once(ctx context.Context, k Key, effect func(ctx context.Context, fence int64) ([]byte, error)) (Outcome, []byte, error) {
	r := l.OnceBatch(ctx, []Key{k}, func(ctx context.Context, _ int, fence int64) ([]byte, error) { return effect(ctx, fence) })[0]
	return r.Outcome, r.Result, r.Err
}

// OnceBatch is Once for many keys: it reserves [LeaseOptions].MaxBatch at a time,
// runs their effects one after the other, by the index of their key, and records
// them together. A crash can repeat the effects of all that were not recorded yet. A
// key that comes twice is applied once.
func (l *Lease) OnceBatch(ctx context.Context, keys []Key, effect func(ctx context.Context, i int, fence int64) ([]byte, error)) []LeaseResult {
	defer l.stats.begin(len(keys), l.o.Took).end()
	results := make([]LeaseResult, len(keys))
	for from := 0; from < len(keys); from += l.attempts.MaxBatch {
		end := min(from+l.attempts.MaxBatch, len(keys))
		l.batch(ctx, keys[from:end], results[from:end], func(ctx context.Context, i int, fence int64) ([]byte, error) {
			return effect(ctx, from+i, fence)
		})
	}
	for i := range results {
		l.stats.count(results[i].Outcome)
	}
	return results
}

func (l *Lease) batch(ctx context.Context, keys []Key, results []LeaseResult, effect func(ctx context.Context, i int, fence int64) ([]byte, error)) {
	asked := make([]Key, 0, len(keys))
	which := make([]int, 0, len(keys)) // of what is asked, its index in keys
	copies := map[Key]int{}            // of each key, where it stands first
	for i, k := range keys {
		if _, ok := copies[k]; !ok {
			copies[k] = i
			asked, which = append(asked, k), append(which, i)
		}
	}
	rs := l.Reserve(ctx, asked...)
	keep := l.keep(ctx, rs)
	var completed, released []*Reservation
	var done, undone []int
	for n := range rs {
		r, i := &rs[n], which[n]
		out := &results[i]
		if r.Err != nil || r.Claim != Fresh {
			out.Outcome, out.Result, out.Err = reserved(r)
			continue
		}
		out.TakenOver = r.TakenOver
		result, err := keep.run(n, func(ctx context.Context) ([]byte, error) {
			if r.TakenOver {
				ctx = context.WithValue(ctx, takenOverKey{}, true)
			}
			return effect(ctx, i, r.Fence)
		})
		switch lost := keep.lost(n); {
		case err == nil:
			r.Result, out.Result = result, result
			completed, done = append(completed, r), append(done, i)
		case lost != nil:
			l.stats.leaseLost.Add(1)
			if out.Outcome, out.Err = Unknown, err; !errors.Is(err, lost) {
				out.Err = fmt.Errorf("%w: %w", lost, err)
			}
		case ctx.Err() != nil:
			r.TakenOver = true // it was cut, and who knows how far it had come
			out.Outcome, out.Err = Unknown, wrap(ctx, err)
			released, undone = append(released, r), append(undone, i)
		default:
			r.TakenOver = r.TakenOver || errors.As(err, new(*broker.PanicError))
			out.Outcome, out.Err = Failed, err
			released, undone = append(released, r), append(undone, i)
		}
	}
	keep.stop()
	// What has taken place is recorded also when ctx has ended meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(l.o.Lease, 10*time.Second))
	defer cancel()
	_ = l.Complete(ctx, completed...)
	_ = l.Release(ctx, released...)
	for n, r := range completed {
		out := &results[done[n]]
		if out.Outcome, out.Err = Applied, r.Err; r.Err != nil {
			out.Outcome = Unknown
			if !errors.Is(r.Err, broker.ErrLeaseLost) && !errors.Is(r.Err, ErrCommitUnknown) {
				out.Err = fmt.Errorf("%w: the effect took place, its record: %w", ErrCommitUnknown, r.Err)
			}
		}
	}
	for n, r := range released { // a lease that ended just before its effect did
		if out := &results[undone[n]]; errors.Is(r.Err, broker.ErrLeaseLost) {
			l.stats.leaseLost.Add(1)
			out.Outcome, out.Err = Unknown, fmt.Errorf("%w: %w", r.Err, out.Err)
		}
	}
	for i, k := range keys {
		if n := copies[k]; n != i {
			if results[i] = results[n]; results[n].Outcome == Applied {
				results[i].Outcome = Duplicate
			} else if results[n].Outcome == Failed && !isKeyError(results[n].Err) {
				results[i].Outcome, results[i].Err = InFlight, ErrHeldBack
			}
		}
	}
}

// reserved is the outcome of a reservation that the caller didn't get.
func reserved(r *Reservation) (Outcome, []byte, error) {
	switch {
	case isKeyError(r.Err):
		return Failed, nil, r.Err
	case r.Err != nil:
		return Unknown, nil, r.Err
	}
	outcome, err := r.Claim.outcome(false)
	return outcome, r.Result, err
}

// keeper extends reservations while their effects run.
type keeper struct {
	l     *Lease
	ctx   context.Context
	mu    sync.Mutex
	timer *time.Timer
	rs    []Reservation // copies: what the store says now
	errs  []error       // of those that were lost
	until time.Time     // of the one that ends first
	// The effect that runs.
	running int
	cancel  context.CancelCauseFunc
	stopped bool
	working sync.WaitGroup
}

// keep begins to extend those of rs that are Fresh.
func (l *Lease) keep(ctx context.Context, rs []Reservation) *keeper {
	k := &keeper{l: l, ctx: ctx, rs: append([]Reservation(nil), rs...), errs: make([]error, len(rs)), running: -1}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first() {
		k.timer = time.AfterFunc(time.Until(k.until)-l.o.Lease*2/3, k.extend)
	}
	return k
}

// first finds the reservation that ends first, and reports whether there is one.
func (k *keeper) first() bool {
	found := false
	for i := range k.rs {
		if r := &k.rs[i]; r.Claim == Fresh && r.Err == nil && k.errs[i] == nil && (!found || r.Until.Before(k.until)) {
			k.until, found = r.Until, true
		}
	}
	return found
}

// extend runs in a goroutine of the timer, which exists only where effects take
// longer than a third of their lease.
func (k *keeper) extend() {
	k.mu.Lock()
	if k.stopped {
		k.mu.Unlock()
		return
	}
	k.working.Add(1)
	defer k.working.Done()
	var at []int
	var asked []*Reservation
	for i, r := range k.rs {
		if r.Claim == Fresh && r.Err == nil && k.errs[i] == nil {
			at, asked = append(at, i), append(asked, &r)
		}
	}
	until := k.until
	k.mu.Unlock()

	ctx, cancel := context.WithDeadline(context.WithoutCancel(k.ctx), until)
	k.l.driver.Extend(ctx, asked, k.l.o.Lease)
	cancel()

	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.l.o.Lease / 3
	for n, r := range asked {
		i := at[n]
		switch {
		case r.Err == nil:
			k.rs[i].Until = r.Until
			continue
		case errors.Is(r.Err, broker.ErrLeaseLost):
			k.errs[i] = fmt.Errorf("dedup: %w", r.Err)
		case !time.Now().Before(k.rs[i].Until):
			k.errs[i] = fmt.Errorf("dedup: %w: not extended in time: %w", broker.ErrLeaseLost, r.Err)
		default:
			next = min(next, max(time.Until(k.rs[i].Until)/4, time.Millisecond))
		}
		if k.errs[i] != nil && k.running == i {
			k.cancel(k.errs[i])
		}
	}
	if k.first() && !k.stopped {
		k.timer.Reset(next)
	}
}

// run runs one effect, whose context ends when its lease is lost.
func (k *keeper) run(i int, f func(ctx context.Context) ([]byte, error)) (result []byte, err error) {
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	k.mu.Lock()
	if k.errs[i] == nil && !time.Now().Before(k.rs[i].Until) {
		k.errs[i] = fmt.Errorf("dedup: %w: it ended before the effect began", broker.ErrLeaseLost)
	}
	if k.errs[i] != nil {
		err := k.errs[i]
		k.mu.Unlock()
		return nil, err
	}
	k.running, k.cancel = i, cancel
	k.mu.Unlock()
	err = contain(func() (err error) { result, err = f(ctx); return err })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = -1
	return result, err
}

// lost returns why reservation i was lost, nil if it wasn't.
func (k *keeper) lost(i int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.errs[i]
}

// stop ends the extending and waits for an extension that runs.
func (k *keeper) stop() {
	k.mu.Lock()
	k.stopped = true
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	k.working.Wait()
}

// LeaseHandler makes a handler for [broker.Consume] that applies effect once for each
// message by l, as [Handler] does by an inbox; what it says of outcomes is the same.
func LeaseHandler(l *Lease, effect func(ctx context.Context, fence int64, d *broker.Delivery) ([]byte, error), options ...HandlerOption) broker.Handler {
	h := newHandling(options).on(&l.stats, &l.ids, windowOf(l.driver))
	return func(ctx context.Context, d *broker.Delivery) error {
		k := h.key(d)
		h.came(d, k)
		outcome, _, err := l.Once(ctx, k, func(ctx context.Context, fence int64) ([]byte, error) { return effect(ctx, fence, d) })
		h.went(d, outcome)
		return h.answer(outcome, err)
	}
}
