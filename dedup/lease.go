package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onceline/onceline/broker"
)

// Reservation is what a [LeaseDriver] knows of one key. The caller of
// [Lease.Reserve] keeps it and hands it back.
type Reservation struct {
	Key Key
	// Marker and Token are what the store compares: the message, and who reserved
	// it. The token is random and new for each reservation.
	Marker Marker
	Token  [8]byte
	// Claim is Fresh where the key is now reserved for the caller, Seen where its
	// effect is recorded as done, Held where another holds it.
	Claim Claim
	// Fence is a number for the destination of the effect, if Claim is Fresh. It is
	// above that of each earlier reservation of the key, and a destination that
	// refuses lower numbers than the highest it saw keeps out a holder that was
	// replaced and doesn't know it. Nothing else does.
	Fence int64
	// Until is when the reservation ends, by this process's clock and on the safe
	// side, if Claim is Fresh; and about when the other's does, if it is Held.
	Until time.Time
	// TakenOver: an earlier holder's lease ended without a record of how it went,
	// so that its effect may have taken place, or may still.
	TakenOver bool
	// Result is what the effect returned: of Seen, as stored; of Fresh, what Complete
	// is to store.
	Result []byte
	// Err says why there is no answer, or why it is no: see [LeaseDriver].
	Err error
}

// LeaseDriver is what a store implements for [Lease]. All methods are safe for
// concurrent use and work on many reservations in few round trips. Each sets Err in
// every reservation: nil; [broker.ErrLeaseLost] where the store has the key in other
// hands, of Extend, Complete and Release; [ErrLost] or [broker.ErrBusy] where the same
// may work later; anything else is for people. A call that is repeated with the same
// token, as after a lost answer, has the same answer and no second effect.
type LeaseDriver interface {
	// Reserve asks for the keys by Marker and Token and sets the other fields.
	Reserve(ctx context.Context, rs []*Reservation, lease time.Duration)
	// Extend moves the end of leases to lease from now, and sets Until. One that has
	// ended without having been taken over is extended too.
	Extend(ctx context.Context, rs []*Reservation, lease time.Duration)
	// Complete records the keys as done, with their Results, if they are still the
	// caller's, or if the store has lost them.
	Complete(ctx context.Context, rs []*Reservation)
	// Release gives the keys back, so that they can be reserved at once.
	Release(ctx context.Context, rs []*Reservation)
}

// LeaseOptions says how a [Lease] works. The zero value is a good start.
type LeaseOptions struct {
	// Lease is for how long a key is reserved: how long a message waits whose holder
	// crashed. While an effect runs, its reservation is extended each third of it.
	// Zero means 30 s.
	Lease time.Duration
	// MaxBatch is how many keys are reserved together. Zero means 100.
	MaxBatch int
	// MaxResult is how many bytes of a result are kept. One that is longer isn't
	// kept at all. Zero means 64 KiB.
	MaxResult int
	// Attempts is how often the store is asked that isn't there or pushes back.
	// Zero means 5.
	Attempts int
	// Backoff is the pause between attempts. Zero means 20 ms to 1 s.
	Backoff broker.Backoff
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
	// Took is that of [Options].
	Took func(messages int, took time.Duration)
}

// Lease is for effects that can't share a transaction with a marker. It reserves a
// message's key for a short time, and records it as done, with the effect's result,
// after the effect.
//
// That is less than what an [Inbox] does. A holder that crashes, or is frozen beyond
// its lease, between its effect and the record leaves an effect that the next holder
// repeats: for exactly once, the destination must refuse a lower [Reservation].Fence,
// or know the effect by the message's ID. And it rests on a store that forgets
// nothing: see the store's package for what it can lose.
//
// It is safe for concurrent use.
type Lease struct {
	driver   LeaseDriver
	consumer string
	o        LeaseOptions
	attempts Options
	stats    counters
	ids      idWatch
}

// NewLease returns the leases of the named consumer, whose name is part of every key
// as in [New]. It panics if there is no driver or no name.
func NewLease(d LeaseDriver, consumer string, o LeaseOptions) *Lease {
	if d == nil || consumer == "" {
		panic("dedup: NewLease without a driver or a consumer's name")
	}
	if o.Lease <= 0 {
		o.Lease = 30 * time.Second
	}
	if o.MaxResult <= 0 {
		o.MaxResult = 64 << 10
	}
	attempts := Options{MaxBatch: o.MaxBatch, Attempts: o.Attempts, Backoff: o.Backoff, Rand: o.Rand}.withDefaults()
	return &Lease{driver: d, consumer: consumer, o: o, attempts: attempts}
}

// Reserve asks for keys, as many as there are, and returns what the store says of
// each: those that are Fresh are the caller's until their time, or until Complete or
// Release. A key that comes twice is Held by itself the second time. It blocks for
// the attempts on the store, never for another holder.
func (l *Lease) Reserve(ctx context.Context, keys ...Key) []Reservation {
	rs := make([]Reservation, len(keys))
	asked := make([]*Reservation, 0, len(keys))
	for i, k := range keys {
		if k.Consumer == "" {
			k.Consumer = l.consumer
		}
		r := &rs[i]
		r.Key = k
		if r.Marker, r.Err = k.Marker(); r.Err != nil {
			continue
		}
		token := rand.Uint64()
		for j := range r.Token {
			r.Token[j] = byte(token >> (8 * j))
		}
		asked = append(asked, r)
	}
	l.ask(ctx, asked, func(ctx context.Context, rs []*Reservation) { l.driver.Reserve(ctx, rs, l.o.Lease) })
	for _, r := range asked {
		switch {
		case r.Err != nil:
			r.Claim, r.Err = 0, wrap(ctx, r.Err)
		case r.Claim == Fresh && r.TakenOver:
			l.stats.stuck.Add(1)
		}
	}
	return rs
}

// Extend moves the end of the reservations to a lease from now. It returns the first
// error; each reservation has its own. [broker.ErrLeaseLost] means that another has
// the key.
func (l *Lease) Extend(ctx context.Context, rs ...*Reservation) error {
	return l.each(ctx, rs, func(ctx context.Context, rs []*Reservation) { l.driver.Extend(ctx, rs, l.o.Lease) })
}

// Complete records the keys as done, with their Results; those over the bound
// without one. Like Extend it returns the first error. Without an answer that is
// [ErrCommitUnknown]: to reserve the key again finds out.
func (l *Lease) Complete(ctx context.Context, rs ...*Reservation) error {
	for _, r := range rs {
		if len(r.Result) > l.o.MaxResult {
			r.Result = nil
		}
	}
	err := l.each(ctx, rs, l.driver.Complete)
	for _, r := range rs {
		switch {
		case errors.Is(r.Err, broker.ErrLeaseLost): // its effect took place, and another has the key
			l.stats.leaseLost.Add(1)
			l.stats.suspect.Add(1)
		case errors.Is(r.Err, ErrLost):
			r.Err = fmt.Errorf("%w: %w", ErrCommitUnknown, r.Err)
			err = r.Err
			l.stats.ambiguous.Add(1)
		}
	}
	return err
}

// Release gives the keys back. An error costs no more than the rest of the lease.
func (l *Lease) Release(ctx context.Context, rs ...*Reservation) error {
	return l.each(ctx, rs, l.driver.Release)
}

func (l *Lease) each(ctx context.Context, rs []*Reservation, f func(context.Context, []*Reservation)) error {
	l.ask(ctx, rs, f)
	for _, r := range rs {
		if r.Err != nil {
			return wrap(ctx, r.Err)
		}
	}
	return nil
}

// ask asks the store until each reservation has an answer, or the attempts are used.
func (l *Lease) ask(ctx context.Context, rs []*Reservation, f func(context.Context, []*Reservation)) {
	t := trying{ctx: ctx, o: &l.attempts, stats: &l.stats}
	for open := rs; len(open) > 0 && t.next(); {
		f(ctx, open)
		var again []*Reservation
		for _, r := range open {
			if errors.Is(r.Err, ErrLost) || errors.Is(r.Err, broker.ErrBusy) {
				again = append(again, r)
			}
		}
		open = again
	}
}

// Stats returns the counts of what l did; the outcomes are those of Once and
// OnceBatch.
func (l *Lease) Stats() Stats { return l.stats.snapshot() }

// Consumer returns the name of whose leases they are.
func (l *Lease) Consumer() string { return l.consumer }

// Window is how long the store keeps records; zero if it doesn't say.
func (l *Lease) Window() time.Duration { return windowOf(l.driver) }
