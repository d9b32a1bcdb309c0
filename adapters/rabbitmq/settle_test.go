package rabbitmq

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
)

// TestCopyThatFails: a delayed nack and a dead letter whose copy isn't stored
// leave the message as it is.
func TestCopyThatFails(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c, func(e *broker.Entity) { e.DeadLetter = "/" + e.Topic + "-dead" })
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(2, 0)...)
	ds := receive(t, r, 2)
	wantStates(t, settle(t, r, broker.DeadLetter, ds[0]), broker.Sent) // opens the way
	i := h.inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1, Cut: true})
	o, err := ds[1].DeadLetter(t.Context(), "why")
	if o.State.OK() || !errors.Is(err, broker.ErrUnknownOutcome) || i.Applied() != 1 {
		t.Fatal(o, err, i.Applied())
	}
	// The handle is held still, and the letter is there already: a second one.
	wantStates(t, settle(t, r, broker.DeadLetter, ds[1]), broker.Sent)
	letters := receiverOf(t, c, e.Topic+"-dead")
	if got := receive(t, letters, 3); got[1].ID != "m-1" || got[2].ID != "m-1" {
		t.Fatal(got)
	}
}

// TestRetryQueueGone: a delayed nack whose queue was deleted stays as it is, and
// declares the queue the next time.
func TestRetryQueueGone(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(2, 0)...)
	ds := receive(t, r, 2)
	const delay = 16 * time.Millisecond
	if _, err := ds[0].Nack(t.Context(), delay); err != nil {
		t.Fatal(err)
	}
	if _, err := h.raw(t).QueueDelete(retryQueue(e.Subscription, delay), false, false, false); err != nil {
		t.Fatal(err)
	}
	if o, err := ds[1].Nack(t.Context(), delay); !errors.Is(err, broker.ErrUnroutable) || o.State.OK() {
		t.Fatal(o, err)
	}
	if o, err := ds[1].Nack(t.Context(), delay); err != nil || o.State != broker.Sent {
		t.Fatal(o, err)
	}
	for d := receive(t, r, 1)[0]; d.ID != "m-1"; d = receive(t, r, 1)[0] {
	}
}

// TestLease: a delivery past its lease is refused here and given back by the next
// Receive, so that the channel lives.
func TestLease(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t, Clock(h.Clock()), ConsumerTimeout(time.Minute), Queues(Quorum))
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(2, 0)...)
	late := receive(t, r, 1)[0]
	if left := late.Lease.Sub(h.Clock().Now()); left > time.Minute || left < 50*time.Second {
		t.Fatal(left)
	}
	h.Clock().Advance(61 * time.Second) // the node's own is half an hour
	if o, err := late.Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Fatal(o, err)
	}
	seen := map[string]int{}
	for _, d := range receive(t, r, 2) {
		seen[d.ID] = d.Attempt.Number
	}
	if seen["m-0"] != 2 || seen["m-1"] != 1 {
		t.Fatal(seen)
	}
	// With a lease of its own the queue takes it back by itself.
	own := entity(t, c, func(e *broker.Entity) { e.Lease = time.Second })
	publish(t, publisherOf(t, c, own.Topic), messages(1, 5)...)
	r2 := receiverOf(t, c, own.Subscription)
	d := receive(t, r2, 1)[0]
	if left := d.Lease.Sub(h.Clock().Now()); left > time.Second {
		t.Fatal(left)
	}
	h.Clock().Advance(2 * time.Second)
	if again := receive(t, receiverOf(t, c, own.Subscription), 1)[0]; again.ID != d.ID {
		t.Fatal(again)
	}
}

// TestNackCounts: a nack by a connection that knows of no limit counts for the
// queue's own.
func TestNackCounts(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c, func(e *broker.Entity) { e.MaxDeliveries, e.DeadLetter = 2, "/"+e.Topic+"-dead" })
	publish(t, publisherOf(t, c, e.Topic), messages(1, 0)...)
	r := receiverOf(t, h.dial(t), e.Subscription)
	for range 2 {
		d := receive(t, r, 1)[0]
		if o, err := d.DeadLetter(t.Context(), "no"); !errors.Is(err, broker.ErrUnsupported) || o.State.OK() {
			t.Fatal(o, err)
		}
		wantStates(t, settle(t, r, broker.Nack, d), broker.Sent)
	}
	d := receive(t, receiverOf(t, c, e.Topic+"-dead"), 1)[0]
	if d.ID != "m-0" || d.Headers.Get(driver.HeaderReason) != "delivery_limit" {
		t.Fatalf("%+v", d.Message)
	}
}

// TestUnfenced: with the fence off a second ack is not sent, for it would end the
// channel.
func TestUnfenced(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	view, err := driver.Unfenced(h.dial(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, view)
	e := entity(t, view)
	p, r := publisherOf(t, view, e.Topic), receiverOf(t, view, e.Subscription)
	publish(t, p, messages(2, 0)...)
	ds := receive(t, r, 2)
	wantStates(t, settle(t, r, broker.Ack, ds[0]), broker.Sent)
	wantStates(t, settle(t, r, broker.Ack, ds[0]), broker.Sent)
	var ch *amqp.Channel
	if !r.As(&ch) {
		t.Fatal("no channel")
	}
	ready(t, ch, e.Subscription) // the ack has arrived, and the channel lives
	h.cut()
	again := receive(t, r, 1)
	if again[0].ID != ds[1].ID {
		t.Fatal(again)
	}
	if os := settle(t, r, broker.Ack, ds[1]); os[0].State != broker.LeaseLost {
		t.Fatal(os)
	}
	wantStates(t, settle(t, r, broker.Ack, again...), broker.Sent)
}

// TestCancelByNode: a consumer that the node has cancelled, for a late delivery, is
// replaced on another channel, also by calls that are shorter than it takes to close the
// old one, where its tag may be taken still.
func TestCancelByNode(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t, Clock(h.Clock()), Queues(Quorum))
	e := entity(t, c, func(e *broker.Entity) { e.Lease, e.Ordered = time.Second, true })
	r := receiverOf(t, c, e.Subscription)
	publish(t, publisherOf(t, c, e.Topic), messages(2, 0)...)
	late := receive(t, r, 1)[0]
	h.inject(fault.Fault{API: "channel.close", Kind: fault.Delay, Delay: 200 * time.Millisecond, Times: 1})
	h.Clock().Advance(2 * time.Second)
	var again []broker.Delivery
	for begin := time.Now(); len(again) == 0; {
		if time.Since(begin) > mustCome {
			t.Fatal("nothing came again")
		}
		again = try(t, r, 1, 20*time.Millisecond)
	}
	if again[0].ID != late.ID {
		t.Errorf("%s came, want %s", again[0].ID, late.ID)
	}
	if o, err := late.Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("the late one: %v, %v", o.State, err)
	}
}
