package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Through returns a publisher that keeps messages in a database: it marks each one in
// an inbox and adds it to an outbox, in one transaction. A message that was marked
// before is a Duplicate, however long ago that was, as long as the markers are kept. A
// [dedup.Relay] sends what is in the outbox, in this process or elsewhere; or consumers
// read it there.
//
// The mark is of a message's ID and Copy together, for a copy that was made on purpose
// has to get to the far side. In and out are of the same store. The inbox's name is the
// bridge's: keep it for as long as messages may come again.
//
// Publish is one transaction for each 100 messages, or what the inbox's MaxBatch says.
// A transaction without an answer is asked again, and Unknown if there is none. It
// keeps the order of each key, also of several in one call ([Options].Together), if one
// bridge at a time has the key.
func Through[T any](in *dedup.Inbox[T], out *dedup.Outbox[T]) broker.Publisher {
	return &through[T]{in: in, out: out}
}

type through[T any] struct {
	in     *dedup.Inbox[T]
	out    *dedup.Outbox[T]
	closed atomic.Bool
}

func (t *through[T]) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	receipts := make([]broker.Receipt, len(msgs))
	if t.closed.Load() {
		err := broker.Errorf(broker.ErrClosed, nil, "publish to the outbox")
		for i := range receipts {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
		}
		return receipts, err
	}
	b := dedup.Batch{Keys: make([]dedup.Key, len(msgs)), Lanes: make([]string, len(msgs))}
	for i := range msgs {
		b.Lanes[i] = msgs[i].Key
		// No ID in an outbox holds a NUL, so no other one reads like this; and an empty
		// one is Failed.
		switch m := &msgs[i]; {
		case strings.IndexByte(m.ID+m.Copy, 0) >= 0:
		case m.Copy != "" && m.ID != "":
			b.Keys[i].ID = m.ID + "\x00" + m.Copy
		default:
			b.Keys[i].ID = m.ID
		}
	}
	// All that is fresh is added in one statement. What AddTx refuses gives up the whole
	// transaction, and Apply does it again message by message.
	results, _ := t.in.Apply(ctx, b, func(ctx context.Context, tx T, fresh []int, _ []error) error {
		add := make([]broker.Message, len(fresh))
		for j, i := range fresh {
			add[j] = msgs[i]
		}
		return t.out.AddTx(ctx, tx, add...)
	})
	stored := false
	var first error
	for i, r := range results {
		stored = stored || r.Outcome == dedup.Applied
		receipts[i] = receiptOf(r, msgs[i].ID)
		if first == nil {
			first = receipts[i].Err
		}
	}
	if stored {
		t.out.Notify()
	}
	return receipts, first
}

// receiptOf says in a broker's words what became of a message.
func receiptOf(r dedup.Result, id string) broker.Receipt {
	switch r.Outcome {
	case dedup.Applied:
		return broker.Receipt{Verdict: broker.Stored}
	case dedup.Duplicate:
		return broker.Receipt{Verdict: broker.Duplicate}
	case dedup.InFlight: // another has it in a transaction; or one of its key failed
		return broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrBusy, r.Err, "publish %q to the outbox", id)}
	case dedup.Failed:
		// What isn't the message's own fault (a full disk, a table that lacks) must not
		// cost the message.
		kind := broker.ErrUnavailable
		if errors.Is(r.Err, broker.ErrInvalid) {
			kind = broker.ErrInvalid
		}
		return broker.Receipt{Verdict: broker.Refused, Err: refusal{kind, fmt.Errorf("publish %q to the outbox: %w", id, r.Err)}}
	}
	return broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, r.Err, "publish %q to the outbox", id)}
}

// refusal is an error that is of one kind, whatever it wraps is of.
type refusal struct{ kind, cause error }

func (r refusal) Error() string   { return r.cause.Error() }
func (r refusal) Is(e error) bool { return e == r.kind }
func (r refusal) Unwrap() error   { return nil }

// Limits are none: the markers are kept as the store says, and what the far side takes
// the relay finds out.
func (t *through[T]) Limits() broker.Limits { return broker.Limits{} }

func (t *through[T]) As(any) bool { return false }

func (t *through[T]) Close(context.Context) error {
	t.closed.Store(true)
	return nil
}
