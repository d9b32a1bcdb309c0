package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// rabbitmq/amqp091-go#302: a header of a type that the client doesn't know ended
// the connection, again and again.
func TestCaseUnknownFieldType(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	cured := time.Now().Add(500 * time.Millisecond)
	proxy := newTap(t, h.addr, func(frame []byte) []byte {
		if i := bytes.Index(frame, []byte("poison-markS")); i > 0 && time.Now().Before(cured) {
			frame[i+len("poison-mark")] = 'Z'
		}
		return frame
	})
	c := dialURL(t, "rabbitmq://"+proxy.addr+"/")
	e := entity(t, c)
	r := receiverOf(t, c, e.Subscription)
	ch := h.raw(t)
	for _, m := range []amqp.Publishing{{MessageId: "bad", Headers: amqp.Table{"poison-mark": "x"}}, {MessageId: "good"}} {
		if err := ch.Publish(e.Topic, "", false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for len(seen) < 2 {
		for _, d := range receive(t, r, 1) {
			seen[d.ID]++
			wantStates(t, settle(t, r, broker.Ack, d), broker.Sent)
		}
	}
	if seen["good"] != 1 || seen["bad"] != 1 {
		t.Fatal(seen)
	}
	if n := proxy.cut(); n < 2 || n > 20 {
		t.Fatalf("%d connections in half a second", n)
	}
}

// runabol/tork#209: messages held beyond the consumer timeout ended the channel.
func TestCaseConsumerTimeout(t *testing.T) {
	t.Parallel()
	h := emulate(t, emulator.WithRelease(emulator.V3), emulator.WithConsumerTimeout(300*time.Millisecond), emulator.WithTick(50*time.Millisecond))
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(1, 0)...)
	d := receive(t, r, 1)[0]
	if o, err := d.Extend(t.Context(), time.Minute); !errors.Is(err, broker.ErrUnsupported) || o.State.OK() {
		t.Fatal(o, err)
	}
	h.Clock().Advance(time.Second)
	eventually(t, "the channel has ended", func() bool {
		var ch *amqp.Channel
		return r.As(&ch) && ch.IsClosed()
	})
	if o, err := d.Ack(t.Context()); !errors.Is(err, broker.ErrLeaseLost) || o.State != broker.LeaseLost {
		t.Fatal(o, err)
	}
	publish(t, p, messages(1, 1)...)
	if ds := receive(t, r, 2); ds[0].ID != "m-0" || ds[0].Attempt.Number != 2 || ds[1].ID != "m-1" {
		t.Fatalf("%+v", ds)
	}
}

// ThreeDotsLabs/watermill#184: a foreign message was nacked for ever.
func TestCaseForeignMessage(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	foreign := amqp.Publishing{Body: []byte("raw"), Headers: amqp.Table{"n": int64(7), "t": amqp.Table{"a": true}, "onceline-headers": "%zz", "onceline-time": "never"}}
	ch := h.raw(t)
	if err := ch.Publish(e.Topic, "", false, false, foreign); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is there", func() bool { return ready(t, ch, e.Subscription) == 1 })
	publish(t, p, messages(1, 0)...)
	ds := receive(t, r, 2)
	if ds[0].ID != "" || string(ds[0].Body) != "raw" || ds[0].Headers.Get("n") != "7" || ds[1].ID != "m-0" {
		t.Fatalf("%+v", ds)
	}
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
}

// ThreeDotsLabs/watermill#262: after a reconnect the queue was gone for good.
func TestCaseQueueGone(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	other := h.dial(t)
	p := publisherOf(t, c, e.Topic)
	ours, stranger := receiverOf(t, c, e.Subscription), receiverOf(t, other, e.Subscription)
	if _, err := h.raw(t).QueueDelete(e.Subscription, false, false, false); err != nil {
		t.Fatal(err)
	}
	h.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := stranger.Receive(ctx, 1); !errors.Is(err, broker.ErrNotFound) {
		t.Fatal(err)
	}
	got := make(chan []broker.Delivery, 1)
	go func() { got <- receive(t, ours, 1) }()
	eventually(t, "the message is taken", func() bool {
		_, err := p.Publish(t.Context(), messages(1, 0)...)
		return err == nil
	})
	if ds := <-got; ds[0].ID != "m-0" {
		t.Fatal(ds)
	}
}

// google/go-cloud#1733: settling twice closed the channel.
func TestCaseSettleTwice(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(1, 0)...)
	ds := receive(t, r, 1)
	var before *amqp.Channel
	r.As(&before)
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
	if os := settle(t, r, broker.Nack, ds...); !errors.Is(os[0].Err, broker.ErrConflict) || os[0].State != broker.Sent {
		t.Fatal(os)
	}
	publish(t, p, messages(1, 1)...)
	if ds := receive(t, r, 1); ds[0].ID != "m-1" {
		t.Fatal(ds)
	}
	var after *amqp.Channel
	if r.As(&after); before != after || after.IsClosed() {
		t.Fatal("the channel was closed")
	}
}

// streadway/amqp#381: an old delivery's ack went out on a new channel. The adapter's
// part of Particular/NServiceBus#5648: who finishes late, after the reconnect, settles
// nothing.
func TestCaseOldHandle(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(1, 0)...)
	old := receive(t, r, 1)[0]
	h.cut()
	now := receive(t, r, 1)[0]
	if now.ID != old.ID {
		t.Fatal(now.ID)
	}
	if o, err := old.Ack(t.Context()); !errors.Is(err, broker.ErrLeaseLost) || o.State != broker.LeaseLost {
		t.Fatal(o, err)
	}
	publish(t, publisherOf(t, h.dial(t), e.Topic), messages(1, 1)...) // p may not know yet that its connection is gone
	if ds := receive(t, r, 1); ds[0].ID != "m-1" {                    // on the same channel, which lives
		t.Fatal(ds)
	}
	wantStates(t, settle(t, r, broker.Nack, now), broker.Sent)
	if ds := receive(t, r, 1); ds[0].ID != "m-0" {
		t.Fatal("the old ack took effect")
	}
}
