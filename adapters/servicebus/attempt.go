package servicebus

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// attempt is the context of one call of the SDK. It keeps two habits of the SDK
// and of the AMQP library beneath it from doing harm, by looking at who asks.
//
// The SDK repeats on its own: a settle up to three times over a minute, whatever
// its retry options say; a send once more, at once, when the service detaches its
// link, and then nobody can tell whether the first one was stored (SB-F-50, SB-F-51).
// Neither can be switched off. But between two attempts the SDK always waits on the context, in a
// sleep or for a new session to be answered: from there on the attempt has ended.
// The same look says how far the call got, which decides between Refused and
// Unknown, and between LeaseLost and Unknown.
//
// The library doesn't write a frame whose context has ended, though it behaves
// afterwards as if it had: a session whose begin was held back is ended later, for
// which a peer may close the connection, and everybody's sessions with it. And a
// deadline becomes that of the socket's write, whose end closes the connection too
// (SB-F-55).
// So the end of the caller's context is seen only where the call waits for the
// service; elsewhere it is seen after a grace, if the call is stuck there.
//
// Where a later SDK or library calls its functions by other names, the calls still
// end with their contexts, a grace later. TestAttemptPlaces notices.
type attempt struct {
	context.Context               // the caller's
	outer           *outer        // ends the call wherever it is
	once            bool          // a send may not be repeated
	accepts         bool          // a session: the service is told how long to wait
	marks           atomic.Uint32 // of place
}

// grace is how long a call whose context has ended may go on where it doesn't wait
// for the service.
const grace = 250 * time.Millisecond

// place is from where the context was asked.
type place uint32

const (
	elsewhere place = 0
	handing   place = 1 << iota // a message is handed to the link
	disposing                   // a disposition has been written, its answer is waited for
	asking                      // a request to the management link
	sleeping                    // between two attempts
	opening                     // a session or link is to be answered
	waiting                     // for the answer to a message
	taking                      // messages are waited for
	accepting                   // the time to wait for a session is worked out
	writing                     // a frame
	shared                      // no place: the context is part of another one
	over                        // no place: the attempt has ended
)

// errAttemptOver is what the SDK is told. By its method NonRetriable the SDK
// knows it for an error that it should return, not repair.
var errAttemptOver error = overError{}

type overError struct{}

func (overError) Error() string { return "the SDK would try again" }
func (overError) NonRetriable() {}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// outer is the outer end of the calls made within soft: life's, or a grace after
// soft's. It is made when it is first asked for, which most calls don't.
type outer struct {
	soft, life context.Context

	made   atomic.Bool // hard is
	mu     sync.Mutex
	hard   context.Context
	cancel context.CancelFunc
	stop   func() bool
	over   bool
}

// get returns the outer end as a context.
func (o *outer) get() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hard != nil {
		return o.hard
	}
	hard, cancel := context.WithCancel(o.life)
	o.hard, o.cancel = hard, cancel
	o.made.Store(true)
	if o.over { // somebody looks after the call's end
		cancel()
		return hard
	}
	o.stop = context.AfterFunc(o.soft, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-hard.Done():
		}
	})
	return hard
}

// err is the outer end's error.
func (o *outer) err() error {
	if o.made.Load() {
		return o.get().Err()
	}
	return o.life.Err()
}

// end is called when the calls have returned. It reports whether anything has seen
// the context.
func (o *outer) end() (seen bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if o.hard == nil {
		return false
	}
	if o.stop != nil {
		o.stop()
	}
	o.cancel()
	return true
}

// within runs one call of the SDK in an attempt of its own.
func within(soft, life context.Context, call func(context.Context) error) error {
	_, err := seen(soft, life, call)
	return err
}

// seen is within, and tells the places from where the context was asked.
func seen(soft, life context.Context, call func(context.Context) error) (place, error) {
	one := &struct {
		attempt
		outer outer
	}{outer: outer{soft: soft, life: life}}
	one.attempt.Context, one.attempt.outer = soft, &one.outer
	defer one.outer.end()
	err := call(&one.attempt)
	return place(one.attempt.marks.Load()), err
}

// attempts makes the attempts of calls that follow each other.
type attempts struct {
	soft  context.Context
	outer *outer
	once  bool
	last  *attempt
	clean bool // nothing of the SDK looks at the last one any more
}

// next returns the attempt for one more call. One is used again only if its call
// succeeded without anything that may outlive it: contexts made from it, frames that
// weren't written yet.
func (as *attempts) next() *attempt {
	a := as.last
	if a == nil || !as.clean || a.has(shared) {
		a = &attempt{Context: as.soft, outer: as.outer, once: as.once}
		as.last = a
	}
	a.marks.Store(0)
	return a
}

// call makes one call in an attempt, and returns what that saw.
func (as *attempts) call(call func(context.Context) error) (*attempt, error) {
	a := as.next()
	err := call(a)
	as.clean = err == nil
	return a, err
}

func (a *attempt) has(p place) bool { return place(a.marks.Load())&p != 0 }

// Done implements context.Context.
//
//go:noinline
func (a *attempt) Done() <-chan struct{} {
	if a.has(taking) && !a.outer.made.Load() {
		// A pull that has waited for a message writes nothing under its context any
		// more: it makes one for the wait for the rest.
		a.marks.Or(uint32(shared))
		return a.Context.Done()
	}
	var at place
	if returnsHold {
		at = placeAt(returns())
	} else {
		at = caller()
	}
	if at == elsewhere {
		a.marks.Or(uint32(shared))
		return a.outer.get().Done()
	}
	// A sender makes requests only as it opens its link.
	if at == handing && (!a.once || a.has(opening)) && throughRPC() {
		at = asking
	}
	was := place(a.marks.Or(uint32(at)))
	if at == sleeping || (at == opening && a.once && was&handing != 0) {
		a.marks.Or(uint32(over))
	}
	if a.has(over) {
		return closedChannel
	}
	return a.Context.Done()
}

// Value implements context.Context. A context that is made from this one looks here
// for what it may hang on without a goroutine, which is the outer end.
func (a *attempt) Value(key any) any {
	if a.outer.made.Load() {
		if v := a.outer.get().Value(key); v != nil {
			return v
		}
	}
	return a.Context.Value(key)
}

// Err implements context.Context.
func (a *attempt) Err() error {
	if err := a.outer.err(); err != nil {
		return err
	}
	err := a.Context.Err()
	if a.has(over) {
		err = errAttemptOver
	}
	if err != nil && caller() == writing {
		return nil
	}
	return err
}

// Deadline implements context.Context.
func (a *attempt) Deadline() (time.Time, bool) {
	if a.accepts && caller() == accepting {
		return a.Context.Deadline()
	}
	return time.Time{}, false
}

// places remembers what is at a program counter, for its name is found slowly: the
// place in the low 16 bits, the program counter above. Two that share a slot displace
// each other.
var places [256]atomic.Uint64

// returnsHold reports whether [returns] says here what the runtime says: a later
// compiler may lay out frames otherwise.
var returnsHold = returnsAgree()

//go:noinline
func returnsAgree() bool {
	var pcs [1]uintptr
	return runtime.Callers(2, pcs[:]) == 1 && returns() == pcs[0]
}

// caller is the place that called a method of an attempt.
func caller() place {
	var pcs [1]uintptr
	if runtime.Callers(3, pcs[:]) == 0 {
		return elsewhere
	}
	return placeAt(pcs[0])
}

// placeAt is the place of a program counter. None of the functions that are one is
// small enough to be inlined.
func placeAt(pc uintptr) place {
	slot := &places[uint64(pc)*0x9e3779b97f4a7c15>>56]
	if v := slot.Load(); v>>16 == uint64(pc) {
		return place(v & 0xffff)
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	p := placeOf(frame.Function)
	slot.Store(uint64(pc)<<16 | uint64(p))
	return p
}

func placeOf(function string) place {
	pkg, name, _ := strings.Cut(function[strings.LastIndexByte(function, '/')+1:], ".")
	switch {
	case pkg == "go-amqp":
		switch name {
		case "(*Sender).send":
			return handing
		case "(*Receiver).messageDisposition":
			return disposing
		case "(*Session).waitForFrame", "(*link).waitForFrame":
			return opening
		case "(*SendReceipt).Wait":
			return waiting
		case "(*Receiver).Receive":
			return taking
		case "(*Conn).getWriteTimeout":
			return writing
		}
	case !strings.Contains(function, "/azservicebus"):
	case pkg == "utils" && name == "Retry":
		return sleeping
	case pkg == "internal" && name == "(*rpcLink).RPC":
		return asking
	case name == "(*SessionReceiver).newLink":
		return accepting
	}
	return elsewhere
}

// throughRPC reports whether the send under way carries a request to $cbs or
// $management, not a message.
func throughRPC() bool {
	var pcs [8]uintptr
	for _, pc := range pcs[:runtime.Callers(4, pcs[:])] {
		if placeAt(pc) == asking {
			return true
		}
	}
	return false
}
