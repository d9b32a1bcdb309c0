package nats

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// letterbox is an entity with a dead-letter topic, and a receiver of that.
func letterbox(t *testing.T, limit int, lease time.Duration) (broker.Conn, broker.Entity, broker.Publisher, broker.Receiver, broker.Receiver) {
	t.Helper()
	c, e, p, r := ends(t, func(e *broker.Entity) {
		e.Lease, e.MaxDeliveries = lease, limit
		e.DeadLetter = strings.ReplaceAll(e.Topic, ".", "-") + "-dead"
	})
	dead := broker.Entity{Topic: e.DeadLetter, Subscription: e.DeadLetter + "/morgue"}
	ensure(t, c, dead)
	return c, e, p, r, receiverOf(t, c, dead.Subscription)
}

func stored(t *testing.T, c broker.Conn, topic string) uint64 {
	t.Helper()
	js := connOf(t, c).js
	name, err := js.StreamNameBySubject(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

var rich = broker.Message{ID: "poison \x01", Copy: "c", Key: "k", Body: []byte{0, 1, 2}, Time: time.UnixMilli(1700000000001),
	Headers: broker.Headers{{Key: "z", Value: "1"}, {Key: "a", Value: "\x00"}, {Key: "z", Value: "2"}}}

func TestDeadLetterAfterLastNack(t *testing.T) {
	t.Parallel()
	c, e, p, r, morgue := letterbox(t, 3, 30*time.Second)
	publish(t, p, rich)
	for n := 1; n <= 3; n++ {
		d := receiveOne(t, r)
		if d.Attempt.Number != n {
			t.Fatalf("attempt %d, want %d", d.Attempt.Number, n)
		}
		if o, err := d.Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
			t.Fatalf("nack %d: %v %v", n, o.State, err)
		}
	}
	d := receiveOne(t, morgue)
	if d.ID != rich.ID || d.Copy != rich.Copy || d.Key != rich.Key || string(d.Body) != string(rich.Body) || !d.Time.Equal(rich.Time) {
		t.Errorf("in the dead-letter stream: %+v", d.Message)
	}
	own := len(rich.Headers)
	for i, h := range rich.Headers {
		if d.Headers[i] != h {
			t.Errorf("header %d is %+v, want %+v", i, d.Headers[i], h)
		}
	}
	if len(d.Headers) != own+3 || d.Headers.Get(driver.HeaderSource) != e.Subscription || d.Headers.Get(driver.HeaderAttempts) != "3" ||
		!strings.Contains(d.Headers.Get(driver.HeaderReason), "last of 3") {
		t.Errorf("marks: %+v", d.Headers[own:])
	}
	if ds := receive(t, r, 1, 200*time.Millisecond); len(ds) != 0 {
		t.Errorf("and comes again: %+v", ds)
	}
	if n := pendingAcks(t, c, e); n != 0 {
		t.Errorf("%d pending", n)
	}
}

// The lease of the last delivery ends without a settle: the next Receive moves
// the message instead of handing it out.
func TestDeadLetterAfterLastLease(t *testing.T) {
	t.Parallel()
	c, e, p, r, morgue := letterbox(t, 2, 200*time.Millisecond)
	publish(t, p, message("poison"))
	receiveOne(t, r)
	if d := receiveOne(t, r); d.Attempt.Number != 2 {
		t.Fatalf("attempt %d", d.Attempt.Number)
	}
	publish(t, p, message("good"))
	ack(t, *receiveOne(t, r))
	if ds := receive(t, r, 1, 600*time.Millisecond); len(ds) != 0 {
		t.Fatalf("handed out beyond the limit: %+v", ds)
	}
	d := receiveOne(t, morgue)
	if d.ID != "poison" || d.Headers.Get(driver.HeaderAttempts) != "2" || !strings.Contains(d.Headers.Get(driver.HeaderReason), "lease") {
		t.Errorf("moved as %+v", d.Message)
	}
	until(t, "the message to be terminated", func() bool { return pendingAcks(t, c, e) == 0 })
}

func TestDeadLetterWithReason(t *testing.T) {
	t.Parallel()
	_, _, p, r, morgue := letterbox(t, 0, 30*time.Second)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	reason := "can't parse\r\nNats-Msg-Id: forged \x00 ü"
	if o, err := d.DeadLetter(t.Context(), reason); err != nil || o.State != broker.Confirmed {
		t.Fatalf("%v %v", o.State, err)
	}
	got := receiveOne(t, morgue)
	if got.ID != "x" || got.Headers.Get(driver.HeaderReason) != reason {
		t.Errorf("%q with reason %q", got.ID, got.Headers.Get(driver.HeaderReason))
	}
	long := short(strings.Repeat("ü\n", 5000))
	if len(long) > maxReason+3 {
		t.Errorf("a reason of %d bytes", len(long))
	}
}

// The stream for dead letters is gone: the delivery stays as it was and can be
// settled otherwise; a repeat after the stream is back adds one copy.
func TestDeadLetterStreamMissing(t *testing.T) {
	t.Parallel()
	c, e, p, r, _ := letterbox(t, 2, 30*time.Second)
	if err := connOf(t, c).js.DeleteStream(t.Context(), e.DeadLetter); err != nil {
		t.Fatal(err)
	}
	publish(t, p, message("x"), message("y"))
	ds := receiveAll(t, r, 2)
	for range 2 {
		o, err := ds[0].DeadLetter(t.Context(), "why")
		if o.State != broker.Unknown || !errors.Is(err, broker.ErrUnroutable) {
			t.Fatalf("%v %v", o.State, err)
		}
	}
	if n := pendingAcks(t, c, e); n != 2 {
		t.Fatalf("%d pending: the message was terminated", n)
	}
	ack(t, ds[1])
	ensure(t, c, e) // makes the dead-letter stream again
	for range 2 {   // the second answers from the handle
		if o, err := ds[0].DeadLetter(t.Context(), "why"); err != nil || o.State != broker.Confirmed {
			t.Fatalf("%v %v", o.State, err)
		}
	}
	if n := stored(t, c, e.DeadLetter); n != 1 {
		t.Errorf("%d copies", n)
	}
}

// The copy is stored, but the settle of the original is lost: the repeat is the
// same copy.
func TestDeadLetterRepeatAddsNoCopy(t *testing.T) {
	t.Parallel()
	c, e, p, r, _ := letterbox(t, 0, 30*time.Second)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	// A second holder of the same delivery dead-letters it as well.
	inner := connOf(t, c)
	dr, err := inner.OpenReceiver(t.Context(), e.Subscription, broker.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, dr)
	h := tokenOf(t, d)
	list := []letter{{msg: h.msg, reason: "first", attempts: 1}}
	dr.(*receiver).publishLetters(t.Context(), inner.link.Load(), e.DeadLetter, list, nil)
	if list[0].err != nil {
		t.Fatal(list[0].err)
	}
	if o, err := d.DeadLetter(t.Context(), "second"); err != nil || o.State != broker.Confirmed {
		t.Fatalf("%v %v", o.State, err)
	}
	if n := stored(t, c, e.DeadLetter); n != 1 {
		t.Errorf("%d copies", n)
	}
}

func tokenOf(t *testing.T, d *broker.Delivery) *held {
	t.Helper()
	h := new(held)
	if !d.As(&h.msg) {
		t.Fatal("no message")
	}
	return h
}

func TestDeadLetterUnsupported(t *testing.T) {
	t.Parallel()
	c, e, p, r := ends(t)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	if o, err := d.DeadLetter(t.Context(), "why"); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("%v %v", o.State, err)
	}
	if n := pendingAcks(t, c, e); n != 1 {
		t.Errorf("%d pending", n)
	}
	ack(t, *d) // the handle is still held
}

// Without a dead-letter topic the limit is the server's: it stops delivering
// and keeps the message (NATS-F-24).
func TestMaxDeliveriesInServer(t *testing.T) {
	t.Parallel()
	c, e, p, r := ends(t, func(e *broker.Entity) { e.MaxDeliveries = 2; e.Lease = 30 * time.Second })
	publish(t, p, message("x"))
	for range 2 {
		if _, err := receiveOne(t, r).Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if ds := receive(t, r, 1, 300*time.Millisecond); len(ds) != 0 {
		t.Errorf("a third delivery: %+v", ds)
	}
	if n := stored(t, c, e.Topic); n != 1 {
		t.Errorf("%d stored", n)
	}
}

// A message of another producer that is past the limit and can't be moved is
// said, not swallowed, and doesn't keep the rest from coming.
func TestOverLimitAndNoStream(t *testing.T) {
	t.Parallel()
	c, e, p, r, _ := letterbox(t, 1, 300*time.Millisecond)
	publish(t, p, message("x"))
	receiveOne(t, r)
	if err := connOf(t, c).js.DeleteStream(t.Context(), e.DeadLetter); err != nil {
		t.Fatal(err)
	}
	_, err := r.Receive(t.Context(), 1)
	wantErr(t, err, broker.ErrUnroutable)
	publish(t, p, message("y"))
	until(t, "the other message", func() bool {
		ds, err := r.Receive(t.Context(), 1)
		if err == nil {
			ack(t, ds...)
		}
		return err == nil && ds[0].ID == "y"
	})
}
