package sqs

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/bubbletest"
)

// settle settles all deliveries in one call and returns the outcomes.
func settle(t testing.TB, r broker.Receiver, a broker.Action, delay time.Duration, ds ...broker.Delivery) []broker.Settlement {
	t.Helper()
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i] = broker.Settlement{Delivery: &ds[i], Action: a, Delay: delay}
	}
	_ = r.Settle(t.Context(), s)
	return s
}

// The answer to a settle is lost: Unknown, and Confirmed as it is asked again
// within the lease; the message is gone.
func TestLostAckResponse(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		publish(t, p, messages(3, "m")...)
		ds := receiveAll(t, r, 3)
		w.on("DeleteMessageBatch", loseResponse(1))
		for i, s := range settle(t, r, broker.Ack, 0, ds...) {
			if s.Outcome.State != broker.Unknown || !errors.Is(s.Outcome.Err, broker.ErrUnknownOutcome) {
				t.Errorf("outcome %d: %+v", i, s.Outcome)
			}
		}
		for i, s := range settle(t, r, broker.Ack, 0, ds...) {
			if s.Outcome.State != broker.Confirmed {
				t.Errorf("asked again, outcome %d: %+v", i, s.Outcome)
			}
		}
		if n := w.count("DeleteMessageBatch"); n != 2 {
			t.Errorf("%d requests, want two", n)
		}
		settle(t, r, broker.Ack, 0, ds...)
		if n := w.count("DeleteMessageBatch"); n != 2 {
			t.Errorf("a third request for what is confirmed")
		}
	})
}

// A nack whose answer was lost: on a standard queue nothing is sent again, for
// somebody else may hold the message.
func TestLostNackResponse(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		c, w, e, p, r := tappedEnds(t, fifo)
		publish(t, p, message("x"))
		d := receiveOne(t, r)
		w.on("ChangeMessageVisibilityBatch", loseResponse(1))
		if o, err := d.Nack(t.Context(), 0); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Fatalf("%+v", o)
		}
		other := receiverOf(t, c, e.Subscription)
		held := receiveOne(t, other)
		if o, err := d.Nack(t.Context(), 0); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Errorf("asked again: %+v", o)
		}
		if n := w.count("ChangeMessageVisibilityBatch"); n != map[bool]int{true: 2, false: 1}[fifo] {
			t.Errorf("%d requests", n)
		}
		if ds := receive(t, r, 1, 100*time.Millisecond); len(ds) > 0 {
			t.Errorf("the nack took %q from its holder", ds[0].ID)
		}
		ack(t, *held)
	})
}

// With the fence off: what a late ack does while another holds the message.
func TestVendorStaleAck(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		s, c, _, e := movable(t, fifo)
		raw, err := driver.Unfenced(c)
		if err != nil {
			t.Fatal(err)
		}
		publish(t, publisherOf(t, c, e.Topic), message("x"))
		late := receiverOf(t, raw, e.Subscription)
		d := receiveOne(t, late)
		s.Clock().Advance(31 * time.Second)
		holder := receiverOf(t, c, e.Subscription)
		held := receiveOne(t, holder)
		o, _ := d.Ack(t.Context())
		if want := map[bool]broker.State{true: broker.LeaseLost, false: broker.Confirmed}[fifo]; o.State != want {
			t.Errorf("late ack: %+v, want %v", o, want)
		}
		_, _ = held.Nack(t.Context(), 0)
		n := len(receive(t, holder, 1, 300*time.Millisecond))
		if want := map[bool]int{true: 1, false: 0}[fifo]; n != want {
			t.Errorf("%d came again, want %d", n, want)
		}
	})
}

// The FIFO queue itself refuses a handle that has expired.
func TestExpiredFIFOHandle(t *testing.T) {
	t.Parallel()
	s, c, _, e := movable(t, true)
	p := publisherOf(t, c, e.Topic)
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, p, messages(2, "m")...)
	r := receiverOf(t, raw, e.Subscription)
	ds := receiveAll(t, r, 2)
	s.Clock().Advance(31 * time.Second)
	for _, a := range []broker.Action{broker.Extend, broker.Ack} {
		for i, s := range settle(t, r, a, 0, ds...) {
			if s.Outcome.State != broker.LeaseLost || !errors.Is(s.Outcome.Err, broker.ErrLeaseLost) {
				t.Errorf("%v %d: %+v", a, i, s.Outcome)
			}
		}
	}
}

// A fault of the service for one entry is tried again, and then is Unknown; none
// of it touches the other entries.
func TestSettleEntryFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, message string
		sender        bool
		times         int
		state         broker.State
		kind          error
		requests      int
	}{
		{"InternalError", "x", false, 1, broker.Confirmed, nil, 2},
		{"InternalError", "x", false, 99, broker.Unknown, broker.ErrUnknownOutcome, settleTries},
		{"ReceiptHandleIsInvalid", "x", true, 1, broker.LeaseLost, broker.ErrLeaseLost, 1},
		{"InvalidParameterValue", "Reason: The receipt handle has expired.", true, 1, broker.LeaseLost, broker.ErrLeaseLost, 1},
		{"AWS.SimpleQueueService.MessageNotInflight", "x", true, 1, broker.LeaseLost, broker.ErrLeaseLost, 1},
		{"RequestThrottled", "x", false, 1, broker.Unknown, broker.ErrBusy, 1},
	} {
		_, w, _, p, r := tappedEnds(t, true)
		publish(t, p, messages(10, "m")...)
		ds := receiveAll(t, r, 10)
		w.on("DeleteMessageBatch", func() hook {
			id, n := "4", 0
			return func(q *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
				var ok, bad []any
				for _, x := range body(q)["Entries"].([]any) {
					en := x.(map[string]any)
					if en["Id"] == id && n < c.times {
						bad = append(bad, map[string]any{"Id": id, "Code": c.code, "Message": c.message, "SenderFault": c.sender})
						continue
					}
					ok = append(ok, map[string]any{"Id": en["Id"]})
				}
				id, n = "0", n+1 // alone, it is the first
				return answer(q, 200, map[string]any{"Successful": ok, "Failed": bad}), nil
			}
		}())
		for i, s := range settle(t, r, broker.Ack, 0, ds...) {
			want, kind := broker.State(broker.Confirmed), error(nil)
			if i == 4 {
				want, kind = c.state, c.kind
			}
			if s.Outcome.State != want || (kind == nil) != (s.Outcome.Err == nil) || !errors.Is(s.Outcome.Err, kind) {
				t.Errorf("%s %d times: outcome %d is %+v", c.code, c.times, i, s.Outcome)
			}
		}
		if n := w.count("DeleteMessageBatch"); n != c.requests {
			t.Errorf("%s: %d requests, want %d", c.code, n, c.requests)
		}
	}
}

// A lease that the service's own failure may have hidden the ack behind is
// Unknown, not lost.
func TestLostAfterInternalError(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, true)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	codes := []string{"InternalError", "ReceiptHandleIsInvalid"}
	w.on("DeleteMessageBatch", func(q *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		code := codes[0]
		codes = codes[1:]
		return answer(q, 200, map[string]any{"Failed": []any{map[string]any{"Id": "0", "Code": code, "SenderFault": code != "InternalError"}}}), nil
	})
	if o, err := d.Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("%+v", o)
	}
}

// A request that was refused leaves its deliveries as they were; a queue that is
// gone has lost them.
func TestSettleRequestRefused(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, false)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	w.on("DeleteMessageBatch", refuse(1, 403, "AccessDeniedException", "x"))
	o, err := d.Ack(t.Context())
	wantErr(t, err, broker.ErrUnauthorized)
	if o.State.OK() {
		t.Errorf("%+v", o)
	}
	if o, err := d.Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
		t.Errorf("another action: %+v", o)
	}
	d = receiveOne(t, r)
	w.on("DeleteMessageBatch", refuse(1, 400, "QueueDoesNotExist", "x"))
	o, err = d.Ack(t.Context())
	wantErr(t, err, broker.ErrLeaseLost)
	if o.State != broker.LeaseLost {
		t.Errorf("%+v", o)
	}
}

// Extend moves the lease, in whole seconds, up to twelve hours in all; a nack's
// delay is never cut short.
func TestTwelveHours(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, w, e := bubble(t)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, message("x"))
		d := receiveOne(t, r)
		begin := time.Now()
		o, err := d.Extend(t.Context(), 1500*time.Millisecond)
		if err != nil || !o.Lease.Equal(begin.Add(2*time.Second)) {
			t.Fatalf("%+v", o)
		}
		if o, err = d.Extend(t.Context(), 0); err != nil || !o.Lease.Equal(begin.Add(30*time.Second)) {
			t.Fatalf("%+v", o)
		}
		if o, err = d.Extend(t.Context(), 100*time.Hour); err != nil {
			t.Fatalf("%+v", o)
		}
		if left := o.Lease.Sub(begin); left > maxLease || left < maxLease-5*time.Second {
			t.Errorf("extended to %v", left)
		}
		time.Sleep(11 * time.Hour)
		if o, err := d.Nack(t.Context(), 2*time.Hour); !errors.Is(err, broker.ErrUnsupported) || o.State.OK() {
			t.Errorf("a nack over the limit: %+v", o)
		}
		if o, err = d.Extend(t.Context(), 2*time.Hour); err != nil || o.Lease.Sub(begin) > maxLease {
			t.Errorf("%+v", o)
		}
		time.Sleep(time.Until(o.Lease) - 500*time.Millisecond)
		sent := w.count("ChangeMessageVisibilityBatch")
		if o, err := d.Extend(t.Context(), time.Hour); !errors.Is(err, broker.ErrUnsupported) || o.State.OK() {
			t.Errorf("at the end: %+v", o)
		}
		if w.count("ChangeMessageVisibilityBatch") != sent {
			t.Error("a request that can't be met was sent")
		}
		ack(t, *d)
		closing(t, c)
	})
}

// Two handles of one message never share a request.
func TestTwoHandlesApart(t *testing.T) {
	t.Parallel()
	s, c, w, e := movable(t, false)
	p := publisherOf(t, c, e.Topic)
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	r := receiverOf(t, raw, e.Subscription)
	publish(t, p, messages(2, "m")...)
	old := receiveAll(t, r, 2)
	s.Clock().Advance(31 * time.Second)
	newer := receiveAll(t, r, 2)
	var most atomic.Int64
	w.on("DeleteMessageBatch", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if n := int64(len(body(q)["Entries"].([]any))); n != 2 {
			most.Store(n)
		}
		return goOn(q)
	})
	for i, s := range settle(t, r, broker.Ack, 0, old[0], old[1], newer[0], newer[1]) {
		if s.Outcome.State != broker.Confirmed {
			t.Errorf("outcome %d: %+v", i, s.Outcome)
		}
	}
	if n := w.count("DeleteMessageBatch"); n != 2 || most.Load() != 0 {
		t.Errorf("%d requests, one with %d entries", n, most.Load())
	}
}

// Settles of all kinds in one call, more than ten of each.
func TestMixedSettles(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, false)
	publish(t, p, messages(48, "m")...)
	ds := receiveAll(t, r, 48)
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Action(i % 3)}
		if s[i].Action == broker.Nack {
			s[i].Delay = time.Duration(i) * time.Minute
		}
	}
	if err := r.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for i := range s {
		if s[i].Outcome.State != broker.Confirmed {
			t.Errorf("outcome %d: %+v", i, s[i].Outcome)
		}
	}
	if a, b := w.count("DeleteMessageBatch"), w.count("ChangeMessageVisibilityBatch"); a != 2 || b != 4 {
		t.Errorf("%d and %d requests", a, b)
	}
	if err := r.Settle(t.Context(), []broker.Settlement{{Delivery: &ds[2], Action: broker.DeadLetter}}); !errors.Is(err, broker.ErrUnsupported) ||
		!strings.Contains(err.Error(), "redrive") {
		t.Errorf("a dead letter without a queue for it: %v", err)
	}
}
