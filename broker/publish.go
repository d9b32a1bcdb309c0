package broker

import (
	"context"
	"fmt"
	"time"
)

// Publisher sends messages to one topic. It is safe for concurrent use.
type Publisher interface {
	// Publish sends msgs and returns a receipt for each, in order, also when
	// the error is not nil; the error is that of the first bad receipt. It
	// blocks until the broker has answered for all of them or ctx ends, and a
	// message without an answer then is Unknown, never guessed. After it
	// returned, nothing of the call is sent any more; where an SDK can't take
	// a message back, a later Publish of the same ID joins the one in flight
	// instead of adding a copy.
	//
	// An invalid message is Refused before a byte of it is sent ([ErrInvalid],
	// [ErrTooLarge], [ErrClosed]) and harms no other message of the call.
	Publish(ctx context.Context, msgs ...Message) ([]Receipt, error)
	// Limits returns what the entity admits. It doesn't block.
	Limits() Limits
	// As sets target, a non-nil pointer, to the SDK's own handle where the
	// adapter's documentation names that type, and reports whether it did.
	As(target any) bool
	// Close waits for the calls in flight until ctx ends, then gives up on
	// them. It is idempotent; Publish returns ErrClosed afterwards.
	Close(ctx context.Context) error
}

// GivenPublisher is a Publisher that spares a copy of what is given away. Those of
// package driver are, and wrappers pass it on.
type GivenPublisher interface {
	Publisher
	// PublishGiven is Publish of messages whose Body and Headers nobody writes to any
	// more where the receipt is Unknown, for an SDK may hold them still. [Batcher]
	// calls it.
	PublishGiven(ctx context.Context, msgs ...Message) ([]Receipt, error)
}

// givenTo returns how p is given messages.
func givenTo(p Publisher) func(context.Context, ...Message) ([]Receipt, error) {
	if g, ok := p.(GivenPublisher); ok {
		return g.PublishGiven
	}
	return p.Publish
}

// Limits is what one entity admits. Zero means unknown or none.
type Limits struct {
	Body    int           // bytes of a message's body
	Headers int           // bytes of all user headers together, names and values
	Window  time.Duration // how long the broker remembers a dedup ID
}

// Verdict is what the broker said of a publish.
type Verdict uint8

// Unknown is the zero of both Verdict and State, so that nothing which was
// forgotten reads as a success. As a verdict: the message may be stored; to
// retry with the same ID is right, with a new one never. As a state: the settle
// may have taken effect; to settle again asks.
const Unknown = 0

// The other four verdicts.
const (
	// Stored: the broker says that this is a new copy.
	Stored Verdict = iota + 1
	// Duplicate: the broker says that it had the ID, and where if it can.
	Duplicate
	// Accepted: the broker took the message and can't say which of the two.
	Accepted
	// Refused: surely not stored.
	Refused
)

var verdicts = [...]string{"Unknown", "Stored", "Duplicate", "Accepted", "Refused"}

func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// OK reports whether the broker has the message.
func (v Verdict) OK() bool { return v == Stored || v == Duplicate || v == Accepted }

// Receipt is what the broker said of one message of a publish.
type Receipt struct {
	Verdict  Verdict
	Position Position // of the stored copy, where the broker tells it
	Err      error    // why Refused or Unknown; nil otherwise
}
