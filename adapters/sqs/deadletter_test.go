package sqs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// letterEnds is a queue with a dead-letter queue, and receivers of both.
func letterEnds(t *testing.T, fifo bool) (w *tap, p broker.Publisher, r, dead broker.Receiver, e broker.Entity) {
	t.Helper()
	c, w, e, p, r := tappedEnds(t, fifo, func(e *broker.Entity) { e.MaxDeliveries, e.DeadLetter = 2, e.Topic+"-dead" })
	return w, p, r, receiverOf(t, c, e.DeadLetter), e
}

func TestLastNackIsMoved(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, p, r, dead, _ := letterEnds(t, fifo)
		when := time.UnixMilli(1700000000123)
		poison := broker.Message{ID: "a poison", Key: "k", Copy: "c", Body: []byte{0, 1}, Time: when, Headers: broker.Headers{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}}}
		good := keyed("k", "good")[0]
		publish(t, p, poison)
		for n := 1; n <= 2; n++ {
			d := receiveOne(t, r)
			if d.Attempt.Number != n {
				t.Fatalf("attempt %d, want %d", d.Attempt.Number, n)
			}
			if o, err := d.Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
				t.Fatalf("nack %d: %+v", n, o)
			}
		}
		publish(t, p, good)
		ack(t, *receiveOne(t, r)) // it doesn't wait behind the poison
		d := receiveOne(t, dead)
		var q Queue
		r.As(&q)
		if d.ID != poison.ID || d.Copy != "c" || d.Key != "k" || string(d.Body) != "\x00\x01" || !d.Time.Equal(when) || len(d.Headers) != 5 ||
			d.Headers[0] != poison.Headers[0] || d.Headers[1] != poison.Headers[1] {
			t.Errorf("the letter is %+v", d.Message)
		}
		if got := d.Headers.Get(driver.HeaderSource) + " " + d.Headers.Get(driver.HeaderAttempts); got != q.Name+" 2" || !strings.Contains(d.Headers.Get(driver.HeaderReason), "2 deliveries") {
			t.Errorf("marks %q", d.Headers)
		}
		ack(t, *d)
		// A letter without a key keeps none.
		publish(t, p, message("plain"))
		if o, err := receiveOne(t, r).DeadLetter(t.Context(), "because \u00fc"); err != nil || o.State != broker.Confirmed {
			t.Fatalf("%+v", o)
		}
		d = receiveOne(t, dead)
		if d.ID != "plain" || d.Key != "" || d.Headers.Get(driver.HeaderReason) != "because \u00fc" {
			t.Errorf("the letter is %+v", d.Message)
		}
		// Sent again as it is, it is another copy.
		again := d.Message
		again.Copy = "from the dead"
		publish(t, p, again)
		if d := receiveOne(t, r); d.ID != "plain" || d.Copy != "from the dead" || d.Headers.Get(driver.HeaderReason) == "" {
			t.Errorf("it came back as %+v", d.Message)
		}
	})
}

// Where the copy can't be made a nack is a plain one, and the service's own
// policy moves the message; a DeadLetter leaves the delivery as it was.
func TestLetterRefused(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		w, p, r, dead, _ := letterEnds(t, fifo)
		publish(t, p, message("x"))
		w.on("SendMessageBatch", refuse(2, 403, "AccessDeniedException", "x"))
		d := receiveOne(t, r)
		o, err := d.DeadLetter(t.Context(), "why")
		wantErr(t, err, broker.ErrUnauthorized)
		if o.State.OK() {
			t.Errorf("%+v", o)
		}
		if o, err := d.Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
			t.Fatalf("nack: %+v", o)
		}
		if o, err := receiveOne(t, r).Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
			t.Fatalf("last nack: %+v", o)
		}
		if n := w.count("SendMessageBatch"); n != 3 { // the message, and a try for each
			t.Errorf("%d sends", n)
		}
		if ds := receive(t, r, 1, 100*time.Millisecond); len(ds) > 0 {
			t.Errorf("a third delivery")
		}
		if d := receiveOne(t, dead); d.ID != "x" || d.Headers.Get(driver.HeaderReason) != "" {
			t.Errorf("%+v", d.Message)
		}
	})
}

// The copy is stored and the delete's answer is lost: asked again, the delete is
// sent alone.
func TestLetterAskedAgain(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		w, p, r, dead, _ := letterEnds(t, fifo)
		publish(t, p, message("x"))
		w.on("DeleteMessageBatch", loseResponse(1))
		d := receiveOne(t, r)
		if o, err := d.DeadLetter(t.Context(), "why"); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Fatalf("%+v", o)
		}
		sends := w.count("SendMessageBatch")
		if o, err := d.DeadLetter(t.Context(), "why"); err != nil || o.State != broker.Confirmed {
			t.Errorf("asked again: %+v", o)
		}
		if w.count("SendMessageBatch") != sends {
			t.Error("a second copy was sent")
		}
		ack(t, *receiveOne(t, dead))
		if ds := receive(t, dead, 1, 100*time.Millisecond); len(ds) > 0 {
			t.Error("two copies")
		}
	})
}

// The copy's answer is lost: on a FIFO queue the second try is the same copy.
func TestLetterOfLostCopy(t *testing.T) {
	t.Parallel()
	w, p, r, dead, _ := letterEnds(t, true)
	publish(t, p, keyed("k", "x", "y")...)
	d := receiveOne(t, r)
	w.on("SendMessageBatch", loseResponse(1))
	o, err := d.DeadLetter(t.Context(), "why")
	wantErr(t, err, broker.ErrUnknownOutcome)
	if o.State.OK() {
		t.Errorf("%+v", o)
	}
	if o, err := d.DeadLetter(t.Context(), "why"); err != nil || o.State != broker.Confirmed {
		t.Errorf("second try: %+v", o)
	}
	ack(t, *receiveOne(t, dead), *receiveOne(t, r))
	if ds := receive(t, dead, 1, 100*time.Millisecond); len(ds) > 0 {
		t.Error("two copies")
	}
}

// Letters go in batches.
func TestLettersInBatches(t *testing.T) {
	t.Parallel()
	w, p, r, dead, _ := letterEnds(t, true)
	publish(t, p, messages(25, "m")...)
	ds := receiveAll(t, r, 25)
	sends, deletes := w.count("SendMessageBatch"), w.count("DeleteMessageBatch")
	for i, s := range settle(t, r, broker.DeadLetter, 0, ds...) {
		if s.Outcome.State != broker.Confirmed {
			t.Errorf("outcome %d: %+v", i, s.Outcome)
		}
	}
	if a, b := w.count("SendMessageBatch")-sends, w.count("DeleteMessageBatch")-deletes; a != 3 || b != 3 {
		t.Errorf("%d sends, %d deletes", a, b)
	}
	if n := len(receiveAll(t, dead, 25)); n != 25 {
		t.Errorf("%d letters", n)
	}
}
