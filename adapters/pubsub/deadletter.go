package pubsub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// moves reports whether an op's message goes to the dead-letter topic by our own
// hand: by the action, or by a nack of the last delivery where the service can't
// count that low.
func (r *receiver) moves(op *driver.Op) bool {
	switch op.Settlement.Action {
	case broker.DeadLetter:
		return true
	case broker.Nack:
		return r.limit > 0 && int(heldOf(op).msg.DeliveryAttempt) >= r.limit
	}
	return false
}

// copyOps publishes the copies of dead letters and returns the ops whose copy is
// stored, to be acked. The others stay as they were. A copy that is stored isn't
// published again when the settle is asked again.
func (r *receiver) copyOps(ctx context.Context, ops []*driver.Op) []*driver.Op {
	var letters []*pb.PubsubMessage
	var fresh []*driver.Op
	stored := ops[:0:0]
	for _, op := range ops {
		h := heldOf(op)
		switch {
		case h.copied.Load():
			stored = append(stored, op)
			continue
		case r.deadLetter == "":
			r.untouched(op, broker.ErrUnsupported, errNoDeadLetter)
			continue
		}
		reason := op.Settlement.Reason
		if op.Settlement.Action == broker.Nack {
			reason = fmt.Sprintf("nacked at the last of %d deliveries", r.limit)
		}
		m, err := r.letter(h.msg, reason, int(h.msg.DeliveryAttempt))
		if err != nil {
			r.untouched(op, broker.ErrTooLarge, err)
			continue
		}
		letters, fresh = append(letters, m), append(fresh, op)
	}
	receipts := r.publishLetters(ctx, letters)
	for i, op := range fresh {
		if err := receipts[i].Err; err != nil {
			r.untouched(op, kindOfLetter(err), err)
			continue
		}
		heldOf(op).copied.Store(true)
		stored = append(stored, op)
	}
	for _, op := range stored {
		heldOf(op).spend()
	}
	return stored
}

func (r *receiver) publishLetters(ctx context.Context, letters []*pb.PubsubMessage) []broker.Receipt {
	receipts := make([]broker.Receipt, len(letters))
	if len(letters) > 0 {
		p := &publisher{c: r.c, topic: r.deadLetter, closing: r.abort}
		p.byKey(ctx, letters, receipts)
	}
	return receipts
}

// letter is the message that goes to the dead-letter topic: body, key and all
// attributes as they are, and why, whence and after how many deliveries.
func (r *receiver) letter(m *pb.ReceivedMessage, reason string, deliveries int) (*pb.PubsubMessage, error) {
	from := m.GetMessage()
	a := maps.Clone(from.GetAttributes())
	if a == nil {
		a = map[string]string{}
	}
	if _, has := a[driver.HeaderID]; !has {
		put(a, driver.HeaderID, from.GetMessageId())
	}
	put(a, driver.HeaderReason, short(reason))
	put(a, driver.HeaderSource, r.name)
	delete(a, driver.HeaderAttempts)
	if deliveries > 0 {
		a[driver.HeaderAttempts] = strconv.Itoa(deliveries)
	}
	if len(a) > maxAttributes {
		return nil, fmt.Errorf("a dead letter with %d attributes, over %d", len(a), maxAttributes)
	}
	return &pb.PubsubMessage{Data: from.GetData(), Attributes: a, OrderingKey: from.GetOrderingKey()}, nil
}

// short is the reason in a length that fits an attribute, escaped too.
func short(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxReason-3], "") + "..."
}

// kindOfLetter is the kind of an outcome whose copy could not be published.
func kindOfLetter(err error) error {
	for _, kind := range []error{broker.ErrUnknownOutcome, broker.ErrNotFound, broker.ErrTooLarge, broker.ErrBusy, broker.ErrUnauthorized, broker.ErrInvalid, broker.ErrClosed} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return broker.ErrUnavailable
}

// moveOver moves messages that were delivered more often than the limit that is
// kept here: their last lease ended without a settle. It returns the others. What
// can't be moved stays as it is and comes again after its lease, which the error
// says.
func (r *receiver) moveOver(ctx context.Context, msgs []*pb.ReceivedMessage) ([]*pb.ReceivedMessage, error) {
	var over []*pb.ReceivedMessage
	var letters []*pb.PubsubMessage
	rest := msgs[:0:0]
	var failed error
	for _, m := range msgs {
		if int(m.DeliveryAttempt) <= r.limit {
			rest = append(rest, m)
			continue
		}
		l, err := r.letter(m, fmt.Sprintf("not settled within the lease of the last of %d deliveries", r.limit), int(m.DeliveryAttempt)-1)
		if err != nil {
			failed = broker.Errorf(broker.ErrTooLarge, err, "receive from %s: a message past its last delivery stays", r.name)
			continue
		}
		over, letters = append(over, m), append(letters, l)
	}
	if len(over) == 0 {
		return rest, failed
	}
	// Within the lease, or somebody else has the message by then; and not cut off
	// by a caller who is gone, for a copy without an ack would be a second one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.lease/2)
	defer cancel()
	defer context.AfterFunc(r.abort, cancel)()
	receipts := r.publishLetters(ctx, letters)
	var done []string
	for i, m := range over {
		if err := receipts[i].Err; err != nil {
			failed = broker.Errorf(kindOfLetter(err), err, "receive from %s: a message past its last delivery stays", r.name)
			continue
		}
		done = append(done, m.AckId)
	}
	if len(done) > 0 {
		err := r.c.subs.Acknowledge(ctx, &pb.AcknowledgeRequest{Subscription: r.name, AckIds: done}, once)
		if err != nil {
			failed = failure(ctx, err, "receive from %s: ack of a dead letter", r.name)
		}
	}
	return rest, failed
}
