package broker

import (
	"context"
	"fmt"
	"time"
)

// Receiver takes messages from one subscription and settles them.
type Receiver interface {
	// Receive returns up to max deliveries. It blocks for the first, for the
	// rest at most about a round trip, and asks the broker for no more than
	// max: a lease runs from the moment the broker hands a message over. What
	// arrives as ctx ends is returned with a nil error or given back to the
	// broker, never stranded. Expired deliveries are not handed out.
	//
	// One caller at a time; a second one gets ErrConflict.
	Receive(ctx context.Context, max int) ([]Delivery, error)
	// Settle tells the broker what became of deliveries and fills each
	// settlement's Outcome; the error is that of the first bad one. It is safe
	// for concurrent use and never waits for another message.
	//
	// Ack, Nack and DeadLetter are terminal. The same action on the same
	// delivery once more is the query and the retry: Pending becomes Confirmed
	// or LeaseLost, Unknown is tried again, Confirmed and Sent stay without a
	// frame. Another action on a settled delivery is ErrConflict. Each Extend
	// is sent anew.
	Settle(ctx context.Context, s []Settlement) error
	// As sets target, a non-nil pointer, to the SDK's own handle where the
	// adapter's documentation names that type, and reports whether it did.
	As(target any) bool
	// Close commits what is settled and gives the rest back at once where the
	// broker can. It is idempotent and bounded by ctx.
	Close(ctx context.Context) error
}

// Delivery is one message in a consumer's hands. Copies of it share one handle.
type Delivery struct {
	Message
	Attempt  Attempt
	Lease    time.Time // when the broker may give it out again; conservative, counted from before the hand-over; zero: no deadline of its own
	Position Position
	// Handle is the receiver's own mark on the delivery. Callers leave it
	// alone; wrappers of a receiver may replace it.
	Handle Handle
}

// Handle ties a delivery to the receiver that handed it out.
type Handle interface {
	// Settle is Receiver.Settle of that receiver.
	Settle(ctx context.Context, s []Settlement) error
	// As sets target, a non-nil pointer, to the SDK's own message.
	As(target any) bool
}

// Attempt is the number of this delivery of the message, counted from 1, and
// how far the number can be trusted.
type Attempt struct {
	Number int
	Trust  Trust
}

// Trust says how far an attempt number can be trusted.
type Trust uint8

// The degrees of trust.
const (
	None        Trust = iota // the broker doesn't count
	Approximate              // may be off, or counts deliveries the application never saw
	Exact
)

func (t Trust) String() string {
	switch t {
	case None:
		return "none"
	case Approximate:
		return "approximate"
	case Exact:
		return "exact"
	}
	return fmt.Sprintf("Trust(%d)", uint8(t))
}

// Ack tells the broker that the message is done with.
func (d *Delivery) Ack(ctx context.Context) (Outcome, error) {
	return d.settle(ctx, Settlement{Action: Ack})
}

// Nack gives the message back, to be delivered again after delay; zero means
// at once.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration) (Outcome, error) {
	return d.settle(ctx, Settlement{Action: Nack, Delay: delay})
}

// Extend moves the lease's end to about delay from now; zero means by the
// subscription's own lease. Outcome.Lease holds the new deadline; the
// delivery's Lease field stays as it was.
func (d *Delivery) Extend(ctx context.Context, delay time.Duration) (Outcome, error) {
	return d.settle(ctx, Settlement{Action: Extend, Delay: delay})
}

// DeadLetter moves the message to the subscription's dead-letter entity with
// the reason.
func (d *Delivery) DeadLetter(ctx context.Context, reason string) (Outcome, error) {
	return d.settle(ctx, Settlement{Action: DeadLetter, Reason: reason})
}

// As sets target, a non-nil pointer, to the SDK's own message where the
// adapter's documentation names that type, and reports whether it did.
func (d *Delivery) As(target any) bool { return d.Handle != nil && d.Handle.As(target) }

func (d *Delivery) settle(ctx context.Context, s Settlement) (Outcome, error) {
	if d.Handle == nil {
		err := fmt.Errorf("settle %q: %w: the delivery comes from no receiver", d.ID, ErrInvalid)
		return Outcome{Err: err}, err
	}
	s.Delivery = d
	one := []Settlement{s}
	err := d.Handle.Settle(ctx, one)
	return one[0].Outcome, err
}

// Action is what a consumer tells the broker about a delivery.
type Action uint8

// The four actions.
const (
	Ack Action = iota
	Nack
	Extend
	DeadLetter
)

var actions = [...]string{"Ack", "Nack", "Extend", "DeadLetter"}

func (a Action) String() string {
	if int(a) < len(actions) {
		return actions[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Settlement is one action on one delivery. Settle fills Outcome in place.
type Settlement struct {
	Delivery *Delivery
	Action   Action
	Delay    time.Duration // Nack: until redelivery; Extend: the new lease, zero for the subscription's own
	Reason   string        // DeadLetter: why
	Outcome  Outcome
}

// State is what the broker said of a settle. It stays Unknown also where the broker
// wasn't asked: with ErrInvalid or ErrUnsupported surely nothing was done.
type State uint8

// The four states beside Unknown.
const (
	// Confirmed: the broker answered that the settle took effect.
	Confirmed State = iota + 1
	// Sent: the protocol has no answer.
	Sent
	// Pending: recorded here, covered by a later cumulative commit.
	Pending
	// LeaseLost: too late; the message will be or has been delivered again.
	LeaseLost
)

var states = [...]string{"Unknown", "Confirmed", "Sent", "Pending", "LeaseLost"}

func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// OK reports whether the settle took effect as far as the broker can say:
// Confirmed, or Sent or Pending where it gives no better answer.
func (s State) OK() bool { return s == Confirmed || s == Sent || s == Pending }

// Outcome is what the broker said of one settlement.
type Outcome struct {
	State State
	Lease time.Time // the new deadline after an Extend
	Err   error     // why Unknown or LeaseLost, or ErrConflict beside the state that stands
}
