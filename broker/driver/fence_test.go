package driver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// ask is one settle of a script and what is to come of it.
type ask struct {
	action broker.Action
	after  time.Duration // before it the clock advances
	state  broker.State
	errs   []error  // none: no error
	frames []string // what reaches the adapter
}

func TestFence(t *testing.T) {
	unknown := []error{broker.ErrUnknownOutcome}
	conflict := []error{broker.ErrConflict}
	lost := []error{broker.ErrLeaseLost}
	tests := []struct {
		name    string
		answers []broker.Outcome
		asks    []ask
	}{
		{"acked once, asked twice: no second frame", []broker.Outcome{confirmed}, []ask{
			{broker.Ack, 0, broker.Confirmed, nil, []string{"Ack 1"}},
			{broker.Ack, 0, broker.Confirmed, nil, nil},
			{broker.Ack, time.Hour, broker.Confirmed, nil, nil},
		}},
		{"sent stays sent without a frame: a second would close a RabbitMQ channel", []broker.Outcome{sent}, []ask{
			{broker.Ack, 0, broker.Sent, nil, []string{"Ack 1"}},
			{broker.Ack, 0, broker.Sent, nil, nil},
		}},
		{"another action is a conflict, the first stands", []broker.Outcome{confirmed}, []ask{
			{broker.Nack, 0, broker.Confirmed, nil, []string{"Nack 1"}},
			{broker.Ack, 0, broker.Confirmed, conflict, nil},
			{broker.DeadLetter, 0, broker.Confirmed, conflict, nil},
			{broker.Extend, 0, broker.Confirmed, conflict, nil},
			{broker.Nack, 0, broker.Confirmed, nil, nil},
		}},
		{"pending is asked until it is confirmed", []broker.Outcome{pending, pending, confirmed}, []ask{
			{broker.Ack, 0, broker.Pending, nil, []string{"Ack 1"}},
			{broker.Ack, 0, broker.Pending, nil, []string{"Ack 1 again"}},
			{broker.Ack, time.Hour, broker.Confirmed, nil, []string{"Ack 1 again"}}, // the lease doesn't matter to a commit
			{broker.Ack, 0, broker.Confirmed, nil, nil},
		}},
		{"pending is lost with its partition", []broker.Outcome{pending, leaseLost}, []ask{
			{broker.Ack, 0, broker.Pending, nil, []string{"Ack 1"}},
			{broker.Ack, 0, broker.LeaseLost, lost, []string{"Ack 1 again"}},
			{broker.Ack, 0, broker.LeaseLost, lost, nil},
		}},
		{"a conflict with a pending one says so", []broker.Outcome{pending}, []ask{
			{broker.Ack, 0, broker.Pending, nil, []string{"Ack 1"}},
			{broker.Nack, 0, broker.Pending, conflict, nil},
		}},
		{"unknown is tried again", []broker.Outcome{lostAnswer, lostAnswer, confirmed}, []ask{
			{broker.Ack, 0, broker.Unknown, unknown, []string{"Ack 1"}},
			{broker.Ack, 0, broker.Unknown, unknown, []string{"Ack 1 again"}},
			{broker.Ack, 0, broker.Confirmed, nil, []string{"Ack 1 again"}},
		}},
		{"unknown isn't tried again past the lease: the frame could settle somebody else's", []broker.Outcome{lostAnswer}, []ask{
			{broker.Ack, 0, broker.Unknown, unknown, []string{"Ack 1"}},
			{broker.Ack, lease, broker.Unknown, []error{broker.ErrUnknownOutcome, broker.ErrLeaseLost}, nil},
		}},
		{"a stale-looking refusal of one's own retry is unknown", []broker.Outcome{lostAnswer, leaseLost, confirmed}, []ask{
			{broker.Ack, 0, broker.Unknown, unknown, []string{"Ack 1"}},
			{broker.Ack, 0, broker.Unknown, []error{broker.ErrUnknownOutcome, broker.ErrLeaseLost}, []string{"Ack 1 again"}},
			{broker.Ack, 0, broker.Confirmed, nil, []string{"Ack 1 again"}},
		}},
		{"the broker says lost: one attempt", []broker.Outcome{leaseLost}, []ask{
			{broker.Ack, 0, broker.LeaseLost, lost, []string{"Ack 1"}},
			{broker.Ack, 0, broker.LeaseLost, lost, nil},
			{broker.Nack, 0, broker.LeaseLost, conflict, nil},
		}},
		{"expired: no frame", []broker.Outcome{confirmed}, []ask{
			{broker.Extend, lease, broker.LeaseLost, lost, nil},
			{broker.Ack, 0, broker.LeaseLost, lost, nil},
			{broker.Nack, 0, broker.LeaseLost, lost, nil},
			{broker.DeadLetter, 0, broker.LeaseLost, lost, nil},
		}},
		{"just in time", []broker.Outcome{confirmed}, []ask{
			{broker.Ack, lease - 1, broker.Confirmed, nil, []string{"Ack 1"}},
		}},
		{"extend is sent anew each time and is never terminal", []broker.Outcome{confirmed}, []ask{
			{broker.Extend, 0, broker.Confirmed, nil, []string{"Extend 1"}},
			{broker.Extend, 0, broker.Confirmed, nil, []string{"Extend 1"}},
			{broker.DeadLetter, 0, broker.Confirmed, nil, []string{"DeadLetter 1"}},
			{broker.Extend, 0, broker.Confirmed, conflict, nil},
		}},
		{"an extend without an answer changes nothing", []broker.Outcome{lostAnswer, confirmed}, []ask{
			{broker.Extend, 0, broker.Unknown, unknown, []string{"Extend 1"}},
			{broker.Ack, lease - 1, broker.Confirmed, nil, []string{"Ack 1"}},
		}},
		{"an extend that is refused ends the lease", []broker.Outcome{leaseLost, confirmed}, []ask{
			{broker.Extend, 0, broker.LeaseLost, lost, []string{"Extend 1"}},
			{broker.Ack, 0, broker.LeaseLost, lost, nil},
		}},
		{"an adapter that gives no reason is given one", []broker.Outcome{{}, {State: broker.LeaseLost}}, []ask{
			{broker.Ack, 0, broker.Unknown, unknown, []string{"Ack 1"}},
			{broker.Ack, 0, broker.Unknown, unknown, []string{"Ack 1 again"}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.deliver(1, nil)
			f.answers(tt.answers...)
			r := f.receiver(t)
			d := receive(t, r, 1)[0]
			for i, a := range tt.asks {
				f.advance(a.after)
				s := []broker.Settlement{{Delivery: &d, Action: a.action, Outcome: broker.Outcome{State: 99, Err: errors.New("old")}}}
				err := r.Settle(t.Context(), s)
				o := s[0].Outcome
				if o.State != a.state || o.Err != err {
					t.Errorf("%d: %s: %v, %v; want %s", i, a.action, o, err, a.state)
				}
				if (err == nil) != (len(a.errs) == 0) {
					t.Errorf("%d: %s: error %v", i, a.action, err)
				}
				for _, want := range a.errs {
					if !errors.Is(err, want) {
						t.Errorf("%d: %s: %v is no %v", i, a.action, err, want)
					}
				}
				if got := f.took(); !slices.Equal(got, a.frames) {
					t.Errorf("%d: %s: frames %q, want %q", i, a.action, got, a.frames)
				}
			}
		})
	}
}

func TestFenceExtendMovesTheDeadline(t *testing.T) {
	f := newFake()
	f.deliver(1, nil)
	r := f.receiver(t)
	d := receive(t, r, 1)[0]
	f.settle = func(_ context.Context, ops []driver.Op) {
		ops[0].Settlement.Outcome = broker.Outcome{State: broker.Confirmed, Lease: f.Now().Add(ops[0].Settlement.Delay)}
	}
	f.advance(9 * time.Second)
	o, err := d.Extend(t.Context(), time.Minute)
	if err != nil || !o.Lease.Equal(f.Now().Add(time.Minute)) {
		t.Fatalf("%v, %v", o, err)
	}
	f.advance(59 * time.Second)
	copied := d // copies share the handle
	if o, err := copied.Ack(t.Context()); err != nil || o.State != broker.Confirmed {
		t.Errorf("within the new lease: %v, %v", o, err)
	}
	if o, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) || o.State != broker.Confirmed {
		t.Errorf("the other copy: %v, %v", o, err)
	}
	// A shorter one moves it too.
	d = receive(t, r, 1)[0]
	if _, err := d.Extend(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	f.advance(time.Second)
	if o, _ := d.Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("after the shorter lease: %v", o)
	}
}

func TestFenceEpoch(t *testing.T) {
	f := newFake()
	var epoch driver.Epoch
	f.deliver(3, &epoch)
	r := f.receiver(t)
	ds := receive(t, r, 3)
	f.answers(pending, lostAnswer, leaseLost)
	if o, _ := ds[0].Ack(t.Context()); o.State != broker.Pending {
		t.Fatal(o)
	}
	if o, _ := ds[1].Ack(t.Context()); o.State != broker.Unknown {
		t.Fatal(o)
	}
	f.took()
	epoch.End()
	if o, err := ds[2].Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("held: %v, %v", o, err)
	}
	if o, err := ds[1].Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("unknown: %v, %v", o, err)
	}
	if got := f.took(); got != nil {
		t.Errorf("frames of a dead connection: %q", got)
	}
	// Of a pending one the adapter knows whether the commit came before the end.
	if o, err := ds[0].Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("pending: %v, %v", o, err)
	}
	if got := fmt.Sprint(f.took()); got != "[Ack 1 again]" {
		t.Errorf("asked %s", got)
	}
	var none *driver.Epoch
	if none.Ended() {
		t.Error("no epoch has ended")
	}
}

func TestFenceUntouched(t *testing.T) {
	f := newFake()
	f.deliver(1, nil)
	r := f.receiver(t)
	d := receive(t, r, 1)[0]
	down := broker.Errorf(broker.ErrUnavailable, nil, "fake")
	touched := true
	f.settle = func(_ context.Context, ops []driver.Op) {
		for i := range ops {
			ops[i].Untouched = !touched
			ops[i].Settlement.Outcome = broker.Outcome{Err: down}
		}
	}
	touched = false
	if o, err := d.DeadLetter(t.Context(), "why"); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("%v, %v", o, err)
	}
	// Surely nothing happened: another action is possible, and is no second try.
	touched = true
	if _, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrUnavailable) {
		t.Error(err)
	}
	// The second try of what may have happened stays that.
	touched = false
	if _, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := d.Ack(t.Context()); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("after a nack that may have been taken: %v", err)
	}
	f.settle = nil
	if o, err := d.Nack(t.Context(), 0); o.State != broker.Confirmed || err != nil {
		t.Errorf("%v, %v", o, err)
	}
	if got := fmt.Sprint(f.took()); got != "[DeadLetter 1 Nack 1 Nack 1 again Nack 1 again]" {
		t.Errorf("frames %s", got)
	}
}

func TestFenceSameDeliveryTwiceInOneCall(t *testing.T) {
	f := newFake()
	f.deliver(2, nil)
	r := f.receiver(t)
	ds := receive(t, r, 2)
	twin := ds[0]
	s := []broker.Settlement{
		{Delivery: &ds[0]}, {Delivery: &ds[1]}, {Delivery: &twin},
		{Delivery: &ds[1], Action: broker.Nack},
	}
	err := r.Settle(t.Context(), s)
	if !errors.Is(err, broker.ErrConflict) {
		t.Errorf("%v", err)
	}
	for i, want := range []broker.State{broker.Confirmed, broker.Confirmed, broker.Confirmed, broker.Unknown} {
		if s[i].Outcome.State != want {
			t.Errorf("%d: %v, want %s", i, s[i].Outcome, want)
		}
	}
	if got := fmt.Sprint(f.took()); got != "[Ack 1 Ack 2]" {
		t.Errorf("frames %s", got)
	}
}

func TestSettleRefusesNonsense(t *testing.T) {
	f := newFake()
	f.deliver(1, nil)
	r, other := f.receiver(t), f.receiver(t)
	d, foreign := receive(t, r, 1)[0], receive(t, other, 1)[0]
	s := []broker.Settlement{
		{},
		{Delivery: &foreign},
		{Delivery: &broker.Delivery{}},
		{Delivery: &d, Action: 17},
		{Delivery: &d, Action: broker.Nack, Delay: -1},
		{Delivery: &d},
	}
	err := r.Settle(t.Context(), s)
	for i := range s[:5] {
		if !errors.Is(s[i].Outcome.Err, broker.ErrInvalid) || s[i].Outcome.State != broker.Unknown {
			t.Errorf("%d: %v", i, s[i].Outcome)
		}
	}
	if err != s[0].Outcome.Err || s[5].Outcome != confirmed {
		t.Errorf("%v; the good one: %v", err, s[5].Outcome)
	}
	if got := fmt.Sprint(f.took()); got != "[Ack 1]" {
		t.Errorf("frames %s", got)
	}
	if err := r.Settle(t.Context(), nil); err != nil {
		t.Error(err)
	}
	var none broker.Delivery
	if _, err := none.Ack(t.Context()); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("a delivery from nowhere: %v", err)
	}
	var tag uint64
	if !d.As(&tag) || tag != 1 || d.As(new(string)) || none.As(&tag) {
		t.Error("As")
	}
}

func TestSettleAfterClose(t *testing.T) {
	f := newFake()
	f.deliver(4, nil)
	r := f.receiver(t)
	ds := receive(t, r, 4)
	f.answers(pending, lostAnswer, confirmed)
	for i := range 3 {
		ds[i].Ack(t.Context())
	}
	f.answers(confirmed)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.took()
	for i, want := range []broker.State{broker.Confirmed, broker.Confirmed, broker.Confirmed, broker.LeaseLost} {
		if o, err := ds[i].Ack(t.Context()); o.State != want || (err == nil) != want.OK() {
			t.Errorf("%d: %v, %v; want %s", i, o, err, want)
		}
	}
	// The held one sends nothing, the answered one neither.
	if got := fmt.Sprint(f.took()); got != "[Ack 1 again Ack 2 again]" {
		t.Errorf("asked %s", got)
	}
	if _, err := r.Receive(t.Context(), 1); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Receive: %v", err)
	}
	if err := r.Close(t.Context()); err != nil || f.took() != nil {
		t.Errorf("second Close: %v", err)
	}
}
