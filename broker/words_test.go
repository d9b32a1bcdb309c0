package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/onceline/onceline/broker"
)

func TestWords(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"Unknown": broker.Verdict(broker.Unknown), "Stored": broker.Stored, "Duplicate": broker.Duplicate, "Accepted": broker.Accepted,
		"Refused": broker.Refused, "Verdict(9)": broker.Verdict(9),
		"Confirmed": broker.Confirmed, "Sent": broker.Sent, "Pending": broker.Pending, "LeaseLost": broker.LeaseLost, "State(9)": broker.State(9),
		"Ack": broker.Ack, "Nack": broker.Nack, "Extend": broker.Extend, "DeadLetter": broker.DeadLetter, "Action(9)": broker.Action(9),
		"none": broker.None, "approximate": broker.Approximate, "exact": broker.Exact, "Trust(9)": broker.Trust(9),
		"at-least-once": broker.AtLeastOnce, "at-most-once": broker.AtMostOnce, "Semantics(9)": broker.Semantics(9),
	} {
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s := broker.State(broker.Unknown).String(); s != "Unknown" {
		t.Errorf("%q", s)
	}
}

// What was forgotten, the zero, reads as no success.
func TestOK(t *testing.T) {
	for v, want := range map[broker.Verdict]bool{broker.Unknown: false, broker.Stored: true, broker.Duplicate: true, broker.Accepted: true, broker.Refused: false, 9: false} {
		if v.OK() != want {
			t.Errorf("%s: %v", v, !want)
		}
	}
	for s, want := range map[broker.State]bool{broker.Unknown: false, broker.Confirmed: true, broker.Sent: true, broker.Pending: true, broker.LeaseLost: false, 9: false} {
		if s.OK() != want {
			t.Errorf("%s: %v", s, !want)
		}
	}
	if (broker.Receipt{}).Verdict.OK() || (broker.Outcome{}).State.OK() {
		t.Error("the zero reads as a success")
	}
}

func TestErrorf(t *testing.T) {
	err := broker.Errorf(broker.ErrUnavailable, io.ErrUnexpectedEOF, "publish %q", "a")
	if !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != `publish "a": unavailable: unexpected EOF` {
		t.Errorf("%v", err)
	}
	err = broker.Errorf(broker.ErrClosed, nil, "100%% of %s", "it")
	if !errors.Is(err, broker.ErrClosed) || err.Error() != "100% of it: closed" {
		t.Errorf("%v", err)
	}
	err = broker.Errorf(broker.ErrInvalid, nil, "parameter %q: %w", "ca", io.ErrNoProgress)
	if !errors.Is(err, broker.ErrInvalid) || !errors.Is(err, io.ErrNoProgress) || err.Error() != `parameter "ca": multiple Read calls return no data or error: invalid` {
		t.Errorf("%v", err)
	}
	all := []error{broker.ErrInvalid, broker.ErrRefused, broker.ErrTooLarge, broker.ErrUnroutable, broker.ErrUnknownOutcome, broker.ErrLeaseLost,
		broker.ErrWindowExceeded, broker.ErrUnsupported, broker.ErrNotFound, broker.ErrConflict, broker.ErrUnauthorized, broker.ErrBusy,
		broker.ErrUnavailable, broker.ErrClosed}
	for i, a := range all {
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("%v and %v", a, b)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	hs := broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: ""}, {Key: "a", Value: "2"}, {Key: "A", Value: "3"}}
	if hs.Get("a") != "1" || hs.Get("b") != "" || hs.Get("c") != "" || hs.Get("A") != "3" {
		t.Errorf("Get: %q", hs)
	}
	if got := fmt.Sprint(hs.Values("a"), hs.Values("c"), broker.Headers(nil).Values("a")); got != "[1 2] [] []" {
		t.Errorf("Values: %s", got)
	}
}

func TestPoisonAndPostponeWrap(t *testing.T) {
	for _, err := range []error{broker.Poison(io.EOF), broker.Postpone(io.EOF, 1), fmt.Errorf("x: %w", broker.Poison(io.EOF))} {
		if !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	}
	if broker.Poison(io.EOF).Error() != "EOF" {
		t.Error(broker.Poison(io.EOF))
	}
	if broker.Poison(nil).Error() != "poison" || broker.Postpone(nil, 0).Error() != "postponed" {
		t.Error("a nil error")
	}
	if !broker.IsPoison(fmt.Errorf("x: %w", broker.Poison(io.EOF))) || broker.IsPoison(broker.Postpone(io.EOF, 1)) || broker.IsPoison(nil) {
		t.Error("what is poison")
	}
	if d, ok := broker.Postponed(fmt.Errorf("x: %w", broker.Postpone(io.EOF, 7))); d != 7 || !ok {
		t.Error(d, ok)
	}
	if _, ok := broker.Postponed(broker.Poison(io.EOF)); ok {
		t.Error("poison is postponed")
	}
	p := &broker.PanicError{Value: io.EOF, Stack: []byte("stack")}
	if !errors.Is(p, io.EOF) || p.Error() != "handler panicked: EOF\n\nstack" {
		t.Error(p)
	}
	if p.Value = 7; errors.Unwrap(p) != nil {
		t.Error("a value that is no error was unwrapped")
	}
}

func TestOptions(t *testing.T) {
	var p broker.PublisherOptions
	broker.PublishAtMostOnce()(&p)
	var r broker.ReceiverOptions
	broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{Offset: 7}, true })(&r)
	gained := 0
	broker.WatchAssignment(func(a broker.Assignment) { gained += a.Gained })(&r)
	broker.WatchAssignment(func(a broker.Assignment) { gained += 10 * a.Gained })(&r)
	if r.Assigned(broker.Assignment{Gained: 3}); gained != 33 {
		t.Error(gained)
	}
	if at, ok := r.StartFrom("0"); p.Semantics != broker.AtMostOnce || !ok || at.Offset != 7 {
		t.Error(p, at)
	}
}

// handle is a broker.Handle of a test.
type handle struct{ got []broker.Settlement }

func (h *handle) Settle(_ context.Context, s []broker.Settlement) error {
	h.got = append(h.got, s...)
	s[0].Outcome = broker.Outcome{State: broker.Sent, Err: io.EOF}
	return io.EOF
}

func (h *handle) As(any) bool { return true }

func TestDeliveryShorthands(t *testing.T) {
	h := &handle{}
	d := &broker.Delivery{Handle: h}
	for _, settle := range []func() (broker.Outcome, error){
		func() (broker.Outcome, error) { return d.Ack(t.Context()) },
		func() (broker.Outcome, error) { return d.Nack(t.Context(), 1) },
		func() (broker.Outcome, error) { return d.Extend(t.Context(), 2) },
		func() (broker.Outcome, error) { return d.DeadLetter(t.Context(), "why") },
	} {
		if o, err := settle(); o.State != broker.Sent || o.Err != io.EOF || err != io.EOF {
			t.Errorf("%v, %v", o, err)
		}
	}
	want := []broker.Settlement{{Delivery: d}, {Delivery: d, Action: broker.Nack, Delay: 1}, {Delivery: d, Action: broker.Extend, Delay: 2},
		{Delivery: d, Action: broker.DeadLetter, Reason: "why"}}
	if fmt.Sprint(h.got) != fmt.Sprint(want) || !d.As(nil) {
		t.Errorf("%v", h.got)
	}
}
