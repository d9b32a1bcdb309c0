// Package driver is what an adapter implements, and the machinery around it
// that is the same for every broker: validation, the fence of the handles, the
// encoding of what a broker's own fields can't hold.
//
// An adapter implements [Conn], [Publisher] and [Receiver] and gives its Conn
// to [New]; what New returns is the broker.Conn that users get. The rules that
// an adapter need not check, for New does:
//
//   - Publish gets valid messages only: an ID of 1 to broker.MaxID bytes
//     without NUL, no reserved header, a body and headers within Limits, a
//     Time;
//   - Receive is called by one caller at a time, with max > 0;
//   - Settle gets each handle that is held, in its lease and of a living epoch,
//     and a settled one only to ask again;
//   - Close is called once, after the calls that open, ensure and delete have
//     ended; after it nothing is, but for a Settle that asks again about a handle
//     whose answer was Pending or Unknown. Its context has ended, and it is to be
//     answered from memory.
package driver

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// Conn is one broker's connection. It is safe for concurrent use.
type Conn interface {
	// OpenPublisher and OpenReceiver return broker.ErrNotFound where the
	// entity doesn't exist and the broker can tell, ErrInvalid for a name that
	// the broker can't have, ErrUnsupported for an option it can't meet.
	OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (Publisher, error)
	OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (Receiver, error)
	// Ensure and Delete are broker.Admin's.
	Ensure(ctx context.Context, e broker.Entity) error
	Delete(ctx context.Context, e broker.Entity) error
	// As hands out the SDK's own client.
	As(target any) bool
	// Close closes the SDK's client if the adapter made it. Publishers and
	// receivers are closed before it is called. It leaves no goroutine behind
	// and is bounded by ctx.
	Close(ctx context.Context) error
}

// Publisher sends to one topic. Publish is called concurrently.
type Publisher interface {
	// Publish sends msgs and fills receipts, which has the same length and
	// holds zero values. It returns when each has its answer or ctx ends; a
	// message that may have reached the broker and has no answer is left
	// Unknown with an error that wraps broker.ErrUnknownOutcome. A message
	// that surely didn't leave is Refused. Neither msgs nor the bodies are
	// kept after it returned, unless the adapter says how a retry joins them.
	Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt)
	// Limits is read once, after opening.
	Limits() broker.Limits
	As(target any) bool
	// Close ends calls in flight when ctx ends, their messages Unknown.
	Close(ctx context.Context) error
}

// GivenPublisher is a Publisher that would copy bodies for the messages which an SDK
// holds still as Publish returns, and needn't where they are given away.
type GivenPublisher interface {
	Publisher
	// PublishGiven is Publish; Body of a message that it leaves Unknown isn't
	// written to afterwards.
	PublishGiven(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt)
}

// Receiver takes from one subscription. Receive has one caller at a time,
// Settle many.
type Receiver interface {
	// Receive adds up to max deliveries to out. It blocks for the first, for
	// the rest at most about a round trip. If ctx ends, what has arrived is
	// added and the error is nil, or nothing is added and the error is ctx's;
	// what arrives later is given back. An error with deliveries added is
	// returned by the next call instead. A connection that comes back by itself
	// is waited for within ctx; an error that won't heal is returned.
	Receive(ctx context.Context, max int, out *Batch) error
	// Settle carries out ops, all of them in one go where the broker can, and
	// sets each Outcome; it returns when each has its answer or ctx ends. An
	// op whose Again is set was sent before: the same action on the same
	// delivery, whose answer was Pending or Unknown.
	Settle(ctx context.Context, ops []Op)
	As(target any) bool
	// AsDelivery sets target to the SDK's own message of a delivery.
	AsDelivery(t *Token, target any) bool
	// Close commits what is settled, gives the rest back at once where the
	// broker can, and ends a Receive and the Settles in flight. When it
	// returns all its epochs have ended.
	Close(ctx context.Context) error
}

// Op is one settlement on its way to the broker.
type Op struct {
	Settlement *broker.Settlement // Action, Delay and Reason; Outcome to be set
	Token      *Token
	Again      bool // asked before: Pending or Unknown
	// Untouched is set by the adapter where surely nothing took effect, so
	// that the handle stays held and another action is possible: the
	// connection was down, or the dead-letter copy could not be published.
	Untouched bool
}

// Token is what an adapter needs to settle a delivery. New keeps it in the
// slab of the Receive that made it, one allocation per batch.
type Token struct {
	Epoch *Epoch // nil: no epoch to end
	Tag   uint64 // delivery tag, sequence, offset
	Sub   uint64 // partition, consumer sequence
	Ref   any    // the SDK's message; a pointer, so that no allocation is added
}

// Epoch is the life of a channel, a connection or an assignment. Handles that
// were given out under it are refused once it has ended, without a frame.
type Epoch struct{ ended atomic.Bool }

// End ends the epoch. A nil epoch never ends.
func (e *Epoch) End() { e.ended.Store(true) }

// Ended reports whether the epoch has ended.
func (e *Epoch) Ended() bool { return e != nil && e.ended.Load() }

// Clock is where the fence reads the time and where waiting happens; an adapter
// whose broker has a movable clock implements it on its Conn.
type Clock interface {
	Now() time.Time
}
