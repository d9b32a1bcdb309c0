package rabbitmq

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// TestNackOfAPublish: one full queue nacks what another has stored.
func TestNackOfAPublish(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	ch := h.raw(t)
	if _, err := ch.QueueDeclare("full", true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"}); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("full", "", e.Topic, false, nil); err != nil {
		t.Fatal(err)
	}
	p := publisherOf(t, c, e.Topic)
	publish(t, p, messages(1, 0)...)
	rs, err := p.Publish(t.Context(), messages(2, 1)...)
	for _, r := range rs {
		if r.Verdict != broker.Unknown || !errors.Is(r.Err, broker.ErrUnknownOutcome) {
			t.Fatalf("%+v (%v)", r, err)
		}
	}
	if n := ready(t, ch, e.Subscription); n != 3 {
		t.Fatalf("%d messages in the other queue", n)
	}
	rs, err = publisherOf(t, c, "/full").Publish(t.Context(), messages(1, 3)...)
	if rs[0].Verdict != broker.Refused || !errors.Is(err, broker.ErrBusy) {
		t.Fatal(rs, err)
	}
}

// TestBodyOverTheNodesLimit: the message that is too large is refused, and those
// around it are stored, though the node ends the channel.
func TestBodyOverTheNodesLimit(t *testing.T) {
	t.Parallel()
	h := emulate(t, emulator.WithMaxMessageSize(3<<20))
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	for round := range 2 {
		ms := messages(5, 0)
		ms[2].Body = make([]byte, 4<<20)
		rs, err := p.Publish(t.Context(), ms...)
		for i, r := range rs {
			if want := broker.Verdict(broker.Stored); i != 2 && r.Verdict != want || i == 2 && (r.Verdict != broker.Refused || !errors.Is(r.Err, broker.ErrTooLarge)) {
				t.Fatalf("round %d, message %d: %+v (%v)", round, i, r, err)
			}
		}
	}
	if n := ready(t, h.raw(t), e.Subscription); n != 8 {
		t.Fatalf("%d messages", n)
	}
}

// TestPublishRequestLost: nothing was stored, and the receipt doesn't say so,
// since nobody knows.
func TestPublishRequestLost(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	h.inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseRequest, Match: e.Topic, Times: 1, Cut: true})
	rs, err := p.Publish(t.Context(), messages(1, 0)...)
	if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatal(rs, err)
	}
	publish(t, p, messages(1, 0)...)
	if n := ready(t, h.raw(t), e.Subscription); n != 1 {
		t.Fatalf("%d messages", n)
	}
}

func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	proxy := newTap(t, h.addr, nil)
	c := dialURL(t, "rabbitmq://"+proxy.addr+"/")
	e := entity(t, h.dial(t))
	p, err := c.OpenPublisher(t.Context(), e.Topic, broker.PublishAtMostOnce())
	if err != nil {
		t.Fatal(err)
	}
	publish(t, p, messages(1, 0)...)
	proxy.mu.Lock()
	proxy.shut = true
	proxy.mu.Unlock()
	proxy.cut()
	eventually(t, "the connection is down", func() bool { return !connOf(t, c).publish.up() })
	begin := time.Now()
	rs, err := p.Publish(t.Context(), messages(1, 1)...)
	if rs[0].Verdict != broker.Refused || !errors.Is(err, broker.ErrUnavailable) || time.Since(begin) > time.Second {
		t.Fatal(rs, err, time.Since(begin))
	}
}

// TestRestOfABatch: what had not left when the channel ended goes by another one,
// but for messages that would overtake one of their key.
func TestRestOfABatch(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t, MaxInFlight(1))
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	for key, rest := range map[string]broker.Verdict{"": broker.Stored, "k": broker.Refused} {
		h.inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Match: e.Topic, Times: 1, Cut: true})
		ms := messages(3, 0)
		for i := range ms {
			ms[i].Key = key
		}
		rs, err := p.Publish(t.Context(), ms...)
		if !errors.Is(err, broker.ErrUnknownOutcome) || rs[0].Verdict != broker.Unknown || rs[1].Verdict != rest || rs[2].Verdict != rest {
			t.Errorf("key %q: %+v", key, rs)
		}
	}
	if n := ready(t, h.raw(t), e.Subscription); n != 4 {
		t.Errorf("%d messages", n)
	}
}
