package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// CallState is how far an external call has come.
type CallState uint8

// The states.
const (
	// CallStarted: it was begun. After [Call].Due nobody works on it any more, and
	// it may have taken place or not.
	CallStarted CallState = iota + 1
	// CallDone: it took place, and Result is the provider's answer.
	CallDone
	// CallUnresolved: it may have taken place, and asking again could do it twice.
	// Somebody has to find out: see [Calls.Open].
	CallUnresolved
	// CallFree: it surely didn't take place, and the next copy may do it.
	CallFree
)

func (s CallState) String() string {
	names := [...]string{"none", "started", "done", "unresolved", "free"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("CallState(%d)", uint8(s))
}

// Call is the record of one external call.
type Call struct {
	Consumer, ID string
	State        CallState
	// Version rises with each change. A change names the version that it is of.
	Version int64
	// Token is who began it last: random, new for each attempt.
	Token    [8]byte
	Attempts int
	// First is when the first of the attempts began that may have reached the
	// provider, Changed when the record was last written, Due when an attempt must
	// have ended. Times are kept to the microsecond.
	First, Changed, Due time.Time
	// Request is a hash of what is asked, nil if none was given.
	Request []byte
	// Result is the provider's answer of a call that is done.
	Result []byte
	// Note says, of a call that isn't done, what went wrong, and of one that was
	// resolved by hand, what the one who did it wrote.
	Note string
}

// Marker is what the record is kept under.
func (c Call) Marker() (Marker, error) { return Key{Consumer: c.Consumer, ID: c.ID}.Marker() }

// CallDriver is what a store implements for [Calls]. All methods are safe for
// concurrent use and commit what they do. Their errors are as those of
// [Driver].Transact.
type CallDriver interface {
	// AddCall stores c with the version 1 if there is no record of its Consumer and
	// ID, and returns what is stored.
	AddCall(ctx context.Context, c Call) (Call, error)
	// LoadCall returns the record of a consumer and ID, one without a State if there
	// is none.
	LoadCall(ctx context.Context, consumer, id string) (Call, error)
	// ChangeCall stores c in place of the record that has c's Version, with the next
	// version, and reports whether there was one.
	ChangeCall(ctx context.Context, c Call) (bool, error)
	// OpenCalls returns the records of a consumer that are Unresolved, or Started and
	// due at the time or before, no more than limit, in the order of their markers
	// and behind the one named.
	OpenCalls(ctx context.Context, consumer string, due time.Time, after Marker, limit int) ([]Call, error)
	// ExpireCalls deletes records of a consumer that are Done or Free and were last
	// changed before a time, and returns how many.
	ExpireCalls(ctx context.Context, consumer string, before time.Time) (int64, error)
	// Fault is [Driver].Fault.
	Fault(err error) Fault
}

var (
	// ErrUnresolved comes with [Unknown]: the call may have taken place, and isn't
	// made again before somebody has found out. It is also [broker.ErrUnknownOutcome].
	ErrUnresolved = fmt.Errorf("dedup: the call may have taken place and has to be reconciled: %w", broker.ErrUnknownOutcome)
	// ErrOtherRequest comes with [Failed]: the ID was used for another request. It
	// is also [broker.ErrConflict].
	ErrOtherRequest = fmt.Errorf("dedup: the ID was used for another request: %w", broker.ErrConflict)
)

// NotDone is what a call returns if it surely didn't take place: it wasn't sent, or
// the provider said so. Any other error leaves that open.
func NotDone(err error) error {
	if err == nil {
		err = errors.New("not done")
	}
	return &notDone{err}
}

type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

// CallOptions says how [Calls] work.
type CallOptions struct {
	// Idempotent is how long the provider knows a call again by the key that it was
	// sent, counted from the first time. Within it a call whose outcome is unknown is
	// made again, later or without a key it isn't. Zero is a provider that knows
	// none.
	Idempotent time.Duration
	// Bound is how long one attempt may take. Its context ends then, and a while
	// later, for clocks differ, another may begin. Zero means a minute.
	Bound time.Duration
	// Window is how long the record of a call that is done is kept, and with it its
	// answer. Zero means seven days, or Idempotent if that is longer. It must not be
	// shorter than Idempotent.
	Window time.Duration
	// Horizon, where it isn't zero, is how long copies may come. NewCalls refuses a
	// shorter Window.
	Horizon Horizon
	// MaxResult is how many bytes of an answer are kept. One that is longer isn't
	// kept, and copies get none. Zero means 64 KiB.
	MaxResult int
	// Attempts is how often the store is asked that isn't there or pushes back.
	// Zero means 5.
	Attempts int
	// Backoff is the pause between those. Zero means 20 ms to 1 s.
	Backoff broker.Backoff
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
	// Took is that of [Options].
	Took func(messages int, took time.Duration)
}

// Calls makes calls to a provider outside of any transaction: a payment, a mail. A
// record is written before the call and one after it, with the provider's answer,
// which copies get. A crash between the two leaves a call of which nobody knows
// whether it took place. If the provider knows calls by a key
// ([CallOptions].Idempotent), it is made again with the same key and the provider
// sees to it that it happens once. If not, it isn't made again: [Calls.Open] lists
// it, and [Calls.Resolve] or [Calls.Resume] decide.
//
// It is safe for concurrent use.
type Calls struct {
	driver   CallDriver
	consumer string
	o        CallOptions
	attempts Options
	stats    counters
	ids      idWatch
}

// NewCalls returns the calls of the named consumer, whose name is part of every key
// as in [New]. Without a driver or a name, or with a window that is too short, the
// error is [broker.ErrInvalid].
func NewCalls(d CallDriver, consumer string, o CallOptions) (*Calls, error) {
	if d == nil || consumer == "" {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: calls without a driver or a consumer's name")
	}
	if o.Bound == 0 {
		o.Bound = time.Minute
	}
	if o.Window == 0 {
		o.Window = max(7*24*time.Hour, o.Idempotent)
	}
	if o.MaxResult <= 0 {
		o.MaxResult = 64 << 10
	}
	switch {
	case o.Bound < 0 || o.Idempotent < 0 || o.Window < 0:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: calls with bound %v, idempotent for %v, window %v", o.Bound, o.Idempotent, o.Window)
	case o.Window < o.Idempotent:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: calls are forgotten after %v, before the provider does after %v", o.Window, o.Idempotent)
	}
	if err := o.Horizon.Check(o.Window); err != nil {
		return nil, err
	}
	attempts := Options{Attempts: o.Attempts, Backoff: o.Backoff, Rand: o.Rand}.withDefaults()
	return &Calls{driver: d, consumer: consumer, o: o, attempts: attempts}, nil
}

// Stats returns the counts of what Once did.
func (c *Calls) Stats() Stats { return c.stats.snapshot() }

// Consumer returns the name of whose calls they are.
func (c *Calls) Consumer() string { return c.consumer }

// Window is how long the records of calls that are done are kept.
func (c *Calls) Window() time.Duration { return c.o.Window }

// Options returns how c works, the defaults filled in.
func (c *Calls) Options() CallOptions { return c.o }
