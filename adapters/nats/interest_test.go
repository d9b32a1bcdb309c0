package nats

import (
	"errors"
	"testing"

	"github.com/onceline/onceline/broker"
)

// Streams with interest retention: the receipt is Stored though nothing is kept
// without a subscription, and what all have acked is gone.
func TestInterest(t *testing.T) {
	t.Parallel()
	c := dialShared(t, Interest())
	e := entity(t)
	topic := broker.Entity{Topic: e.Topic}
	ensure(t, c, topic)
	p := publisherOf(t, c, e.Topic)
	if rs := publish(t, p, message("nobody")); rs[0].Verdict != broker.Stored || stored(t, c, e.Topic) != 0 {
		t.Errorf("%+v, %d stored", rs[0], stored(t, c, e.Topic))
	}
	e.Subscription = streamName(e.Topic) + "/billing"
	ensure(t, c, e)
	r := receiverOf(t, c, e.Subscription)
	publish(t, p, message("somebody"))
	d := receiveOne(t, r)
	if n := stored(t, c, e.Topic); d.ID != "somebody" || n != 1 {
		t.Errorf("%q came, %d stored", d.ID, n)
	}
	ack(t, *d)
	until(t, "the acked message to go", func() bool { return stored(t, c, e.Topic) == 0 })
	if err := dialShared(t, LimitsRetention()).Ensure(t.Context(), topic); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("another retention was wished for: %v", err)
	}
}
