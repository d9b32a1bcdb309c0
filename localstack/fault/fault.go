// Package fault is the vocabulary of injected faults, which all emulators share:
// what happens to which requests, how often, and what the broker made of them.
//
// Users inject through an emulator. The methods of [Set], and [Injection.Take] and
// [Injection.Answered], are for the emulators themselves.
package fault

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Op is a class of protocol operations that a [Fault] strikes. The classes are
// the same on every broker; which requests fall in each, package localstack says.
type Op uint8

// The classes of operations. Any, the zero value, is all of the others.
const (
	Any Op = iota
	Publish
	Receive
	Settle
	Admin
)

// String returns the name of the class in lower case.
func (o Op) String() string {
	switch o {
	case Any:
		return "any"
	case Publish:
		return "publish"
	case Receive:
		return "receive"
	case Settle:
		return "settle"
	case Admin:
		return "admin"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Kind says what a [Fault] does to the request that it strikes. The zero value
// is not a kind, so that a forgotten one is noticed.
type Kind uint8

const (
	// LoseRequest drops the request: the broker never sees it and the client
	// gets no answer.
	LoseRequest Kind = iota + 1

	// LoseResponse lets the broker apply the request and drops its response.
	// Requests that ask for no response (a NATS ack without reply, a Kafka
	// produce with acks=0, an ack of RabbitMQ) are not struck.
	//
	// For [Receive] it drops what the broker hands out: each delivered message is
	// one hit where messages come one by one (NATS, Service Bus, RabbitMQ), each
	// response with messages where they come in responses (Kafka, SQS, Pub/Sub).
	// Answers without a message pass and do not count.
	LoseResponse

	// Delay holds the request back for [Fault.Delay], then sends it on. Where a
	// broker takes a connection's requests in order (Kafka, RabbitMQ, Service Bus),
	// everything behind it on the same connection waits too; elsewhere later
	// requests overtake it.
	Delay

	// Cut closes the connection instead of passing the request on.
	Cut

	// Error answers the request with [Fault.Code] instead of passing it on.
	Error
)

// String returns the name of the kind in words.
func (k Kind) String() string {
	switch k {
	case LoseRequest:
		return "lose request"
	case LoseResponse:
		return "lose response"
	case Delay:
		return "delay"
	case Cut:
		return "cut"
	case Error:
		return "error"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Fault describes what shall happen to which requests. Give it to
// an emulator's Inject.
type Fault struct {
	Op   Op
	Kind Kind

	// Match narrows the fault to requests that concern one entity; "" strikes
	// all. On NATS it is a substring of the request's subject: the stream subject
	// of a publish, or stream and consumer in the subjects of the JetStream API
	// and of acks. On Kafka it equals a topic, a group or a transactional ID that
	// the request names; a ShareFetch names its group and the topics of its share
	// session, a Fetch only topics. On the others it equals the name of a queue,
	// topic, subscription or exchange that the request names.
	Match string

	// API narrows the fault to one operation by its name in the protocol: "EndTxn",
	// "SendMessage", "Acknowledge", "basic.publish", "com.microsoft:renew-lock".
	// With it and Op Any also requests of no class can be struck (the upkeep of a
	// connection or membership). NATS has none: Match does it there, as the API is
	// in the subject.
	API string

	// Delay is how long a request is held back. Kind [Delay] needs it, and no
	// other kind uses it.
	Delay time.Duration

	// Code is the error of kind [Error], in the terms of the protocol; 0 is an
	// error that a client may retry. On NATS it is a JetStream error code (10077)
	// for Publish and Admin, and a status (409, 503) for Receive and Settle. On
	// Kafka it is a protocol error code; an answer that has codes per partition,
	// topic or group carries it in each of them. On SQS it is an HTTP status, on
	// Pub/Sub a code of gRPC, on RabbitMQ a reply code that closes the channel, on
	// Service Bus a status of the management protocol.
	Code int

	// Times bounds the hits; 0 means until [Injection.Remove].
	Times int

	// Cut closes the connection as well, after the fault has been carried out:
	// after the request was dropped, the response was seen, the delayed request
	// was sent, or the error was answered.
	Cut bool
}

// Validate returns an error that says what is wrong with the fault, or nil.
func (f Fault) Validate() error {
	switch {
	case f.Op > Admin:
		return fmt.Errorf("fault: unknown operation %s", f.Op)
	case f.Kind < LoseRequest || f.Kind > Error:
		return fmt.Errorf("fault on %s: unknown kind %s", f.Op, f.Kind)
	case f.Kind == Delay && f.Delay <= 0:
		return fmt.Errorf("fault on %s: delay is %v, must be positive", f.Op, f.Delay)
	case f.Kind != Delay && f.Delay != 0:
		return fmt.Errorf("fault on %s: a delay with kind %s", f.Op, f.Kind)
	case f.Kind != Error && f.Code != 0:
		return fmt.Errorf("fault on %s: a code with kind %s", f.Op, f.Kind)
	case f.Times < 0:
		return fmt.Errorf("fault on %s: times is %d, must not be negative", f.Op, f.Times)
	}
	return nil
}

// Injection is an armed [Fault]. Its methods are safe for concurrent use.
type Injection struct {
	fault Fault
	set   *Set
	err   error

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when a counter moves
	hits     int
	applied  int
	rejected int
	removed  bool
}

// Fault returns the fault as it was injected.
func (i *Injection) Fault() Fault { return i.fault }

// Err returns why the fault was not armed: it is invalid, or the emulator does
// not know what it asks for. Such an injection never hits, and waiting for it
// returns the same error at once.
func (i *Injection) Err() error { return i.err }

// Hits returns the number of requests struck so far.
func (i *Injection) Hits() int { i.mu.Lock(); defer i.mu.Unlock(); return i.hits }

// Applied returns how many struck requests the broker is known to have applied.
// For [LoseResponse] a request counts after the broker's response to it was seen,
// was no error, and was dropped. For [Delay] it counts when it was sent to the
// broker at last. For the other kinds it stays 0.
func (i *Injection) Applied() int { i.mu.Lock(); defer i.mu.Unlock(); return i.applied }

// Rejected returns how many responses were dropped by [LoseResponse] in which
// the broker refused the request. It is 0 for the other kinds.
func (i *Injection) Rejected() int { i.mu.Lock(); defer i.mu.Unlock(); return i.rejected }

// WaitHit blocks until the fault has struck at least once. It returns the
// context's cause if that comes first, and [Injection.Err] if there is one.
func (i *Injection) WaitHit(ctx context.Context) error {
	return i.wait(ctx, "a hit", func() bool { return i.hits > 0 })
}

// WaitApplied blocks until [Injection.Applied] is at least 1: for [LoseResponse],
// until the broker has applied a request and its response is gone. It returns the
// context's cause if that comes first, and [Injection.Err] if there is one.
func (i *Injection) WaitApplied(ctx context.Context) error {
	return i.wait(ctx, "an applied request", func() bool { return i.applied > 0 })
}

func (i *Injection) wait(ctx context.Context, what string, done func() bool) error {
	for {
		i.mu.Lock()
		ok, changed := done(), i.changed
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

// Remove disarms the fault: no request is struck after it returns. What was
// struck before stays so: its response is still dropped, its delay still runs.
// It may be called more than once.
func (i *Injection) Remove() {
	i.mu.Lock()
	i.removed = true
	i.mu.Unlock()
	if i.set != nil {
		i.set.drop(i)
	}
}

// Take claims one hit. It is false when the fault is used up or removed.
func (i *Injection) Take() bool {
	i.mu.Lock()
	if i.removed || i.fault.Times > 0 && i.hits >= i.fault.Times {
		i.mu.Unlock()
		return false
	}
	i.hits++
	last := i.hits == i.fault.Times
	i.signal()
	i.mu.Unlock()
	if last {
		i.set.drop(i)
	}
	return true
}

// Answered records the broker's response to a struck request, or for Delay that
// the request has gone on.
func (i *Injection) Answered(ok bool) {
	i.mu.Lock()
	if ok {
		i.applied++
	} else {
		i.rejected++
	}
	i.signal()
	i.mu.Unlock()
}

func (i *Injection) signal() {
	close(i.changed)
	i.changed = make(chan struct{})
}
