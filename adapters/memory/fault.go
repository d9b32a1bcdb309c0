package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// Op is a class of requests that a [Fault] strikes. One Publish, one Settle and
// one pull of a Receive is a request, whatever it carries.
type Op uint8

// The classes of requests. Any, the zero value, is all of the others.
const (
	Any Op = iota
	Publish
	Receive
	Settle
	Commit // of a transaction; what it publishes and settles is no request by itself
)

var opNames = [...]string{"any", "publish", "receive", "settle", "commit"}

// String returns the name of the class in lower case.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Kind says what a [Fault] does to the request that it strikes. The zero value
// is not a kind, so that a forgotten one is noticed.
type Kind uint8

const (
	// LoseRequest drops the request. Publish and Settle wait until their context
	// ends, Unknown; a Receive sends its next pull after a quarter of the lease,
	// in real time.
	LoseRequest Kind = iota + 1

	// LoseResponse applies the request and drops the answer. Publish and Settle
	// wait until their context ends, Unknown. For Receive it drops what is
	// handed out, which stays under its lease with nobody to settle it, and the
	// Receive goes on waiting; a pull with nothing to hand out is not struck.
	LoseResponse

	// Delay holds the request back for Fault.Delay, in real time also where the
	// broker is on a [Clock]. The request arrives although its context has
	// ended meanwhile, as one does that is on a network.
	Delay

	// Cut ends the connection instead of passing the request on, and a new one
	// is made: handles given out before are fenced, Publish and Settle are
	// Unknown at once, Receive sends its pull over the new one.
	Cut

	// Error answers the request with Fault.Err instead of passing it on.
	Error
)

var kindNames = [...]string{"kind(0)", "lose request", "lose response", "delay", "cut", "error"}

// String returns the name of the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Fault describes what shall happen to which requests. Give it to
// [Broker.Inject].
type Fault struct {
	Op   Op
	Kind Kind

	// Match narrows the fault to one topic, subscription or transactor, by its full
	// name; "" strikes all. A Receive or Settle matches by its subscription and by the
	// subscription's topic.
	Match string

	// Delay is how long a request is held back. Kind Delay needs it, and no
	// other kind uses it.
	Delay time.Duration

	// Err is the answer of kind Error; nil means broker.ErrUnavailable. One that
	// is none of package broker's errors is given as the cause of ErrRefused. A
	// Publish is Refused with it and a Settle stays without effect, unless it is
	// ErrUnknownOutcome.
	Err error

	// Times bounds the hits; 0 means until [Injection.Remove].
	Times int
}

// Validate returns an ErrInvalid that says what is wrong with the fault, or nil.
func (f Fault) Validate() error {
	wrong := ""
	switch {
	case f.Op > Commit:
		wrong = "unknown operation"
	case f.Kind < LoseRequest || f.Kind > Error:
		wrong = "unknown kind"
	case f.Kind == Delay && f.Delay <= 0:
		wrong = "a delay that is not positive"
	case f.Kind != Delay && f.Delay != 0:
		wrong = "a delay with another kind"
	case f.Kind != Error && f.Err != nil:
		wrong = "an error with another kind"
	case f.Times < 0:
		wrong = "negative times"
	default:
		return nil
	}
	return broker.Errorf(broker.ErrInvalid, nil, "fault %s on %s: %s", f.Kind, f.Op, wrong)
}

// faults are the armed ones of a broker.
type faults struct {
	count atomic.Int32 // so that a broker without faults pays one load
	mu    sync.Mutex
	armed []*Injection
}

// Inject arms a fault until it is used up or removed. Of several that fit a
// request the oldest strikes. An invalid one is not armed: see [Injection.Err].
func (b *Broker) Inject(f Fault) *Injection {
	i := &Injection{fault: f, set: &b.faults, err: f.Validate(), changed: make(chan struct{})}
	if i.err == nil {
		b.faults.mu.Lock()
		b.faults.armed = append(b.faults.armed, i)
		b.faults.count.Add(1)
		b.faults.mu.Unlock()
	}
	return i
}

// disarm removes all faults.
func (fs *faults) disarm() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.armed = nil
	fs.count.Store(0)
}

// point is where a request can be struck.
type point uint8

const (
	request  point = iota // on its way to the broker; of Receive, without LoseResponse
	response              // of a Receive that has something to hand out
)

// strike returns the fault that strikes a request concerning the entity of either
// name, or nil, and counts the hit.
func (fs *faults) strike(op Op, at point, name, topic string) *Injection {
	if fs.count.Load() == 0 {
		return nil
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for n, i := range fs.armed {
		f := &i.fault
		if (f.Op != Any && f.Op != op) || (f.Match != "" && f.Match != name && f.Match != topic) {
			continue
		}
		if op == Receive && (f.Kind == LoseResponse) != (at == response) {
			continue
		}
		if i.hit() {
			fs.armed = slices.Delete(fs.armed, n, n+1)
			fs.count.Add(-1)
		}
		return i
	}
	return nil
}

// topicOf is the topic's part of a subscription's name.
func topicOf(subscription string) string {
	topic, _, _ := strings.Cut(subscription, "/")
	return topic
}

// Injection is an armed [Fault]. Its methods are safe for concurrent use.
type Injection struct {
	fault Fault
	set   *faults
	err   error

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when a counter moves
	hits     int
	applied  int
	rejected int
}

// Fault returns the fault as it was injected.
func (i *Injection) Fault() Fault { return i.fault }

// Err returns why the fault was not armed, an ErrInvalid, or nil. An injection
// with an error never hits, and waiting for it returns the error at once.
func (i *Injection) Err() error { return i.err }

// Hits returns the number of requests struck so far.
func (i *Injection) Hits() int { i.mu.Lock(); defer i.mu.Unlock(); return i.hits }

// Applied returns how many struck requests took effect: with LoseResponse once
// the broker has carried the request out and dropped the answer, with Delay once
// the request has arrived and was carried out. For the other kinds it stays 0.
func (i *Injection) Applied() int { i.mu.Lock(); defer i.mu.Unlock(); return i.applied }

// Rejected returns how many struck requests reached the broker and had no effect,
// for it refused all that they carried.
func (i *Injection) Rejected() int { i.mu.Lock(); defer i.mu.Unlock(); return i.rejected }

// WaitHit blocks until the fault has struck at least once. It returns the
// context's cause if that comes first, and [Injection.Err] if there is one.
func (i *Injection) WaitHit(ctx context.Context) error {
	return i.await(ctx, "a hit", func() bool { return i.hits > 0 })
}

// WaitApplied blocks until [Injection.Applied] is at least 1. It returns the
// context's cause if that comes first, and [Injection.Err] if there is one.
func (i *Injection) WaitApplied(ctx context.Context) error {
	return i.await(ctx, "an applied request", func() bool { return i.applied > 0 })
}

// Remove disarms the fault: no request is struck after it returns. What was
// struck before stays so. It may be called more than once.
func (i *Injection) Remove() {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	if n := slices.Index(i.set.armed, i); n >= 0 {
		i.set.armed = slices.Delete(i.set.armed, n, n+1)
		i.set.count.Add(-1)
	}
}

func (i *Injection) await(ctx context.Context, what string, happened func() bool) error {
	for {
		i.mu.Lock()
		ok, changed := happened(), i.changed
		i.mu.Unlock()
		if ok || i.err != nil {
			return i.err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("fault %s on %s: waiting for %s: %w", i.fault.Kind, i.fault.Op, what, context.Cause(ctx))
		}
	}
}

// hit counts a hit and reports whether it was the last.
func (i *Injection) hit() (last bool) {
	i.count(&i.hits)
	return i.fault.Times > 0 && i.Hits() == i.fault.Times
}

// apply counts a request that the broker has carried out, to some effect or
// none.
func (i *Injection) apply(effect bool) {
	if effect {
		i.count(&i.applied)
	} else {
		i.count(&i.rejected)
	}
}

func (i *Injection) count(n *int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	*n++
	close(i.changed)
	i.changed = make(chan struct{})
}

// answer is the error of kind Error, for what was asked.
func (i *Injection) answer(format string, args ...any) error {
	err := i.fault.Err
	if err == nil {
		return broker.Errorf(broker.ErrUnavailable, nil, format, args...)
	}
	for _, known := range []error{
		broker.ErrInvalid, broker.ErrRefused, broker.ErrTooLarge, broker.ErrUnroutable, broker.ErrUnknownOutcome,
		broker.ErrLeaseLost, broker.ErrWindowExceeded, broker.ErrUnsupported, broker.ErrNotFound, broker.ErrConflict,
		broker.ErrUnauthorized, broker.ErrBusy, broker.ErrUnavailable, broker.ErrClosed,
	} {
		if errors.Is(err, known) {
			return broker.Errorf(err, nil, format, args...)
		}
	}
	return broker.Errorf(broker.ErrRefused, err, format, args...)
}
