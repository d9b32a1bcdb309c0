package driver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestReceiveDropsTheExpired(t *testing.T) {
	f := newFake()
	var ended driver.Epoch
	ended.End()
	calls := 0
	f.rcv = func(_ context.Context, max int, out *driver.Batch) error {
		calls++
		for i := range 5 {
			d, token := out.Add()
			d.ID, d.Body = fmt.Sprint(i), []byte("body")
			switch {
			case calls == 1 || i == 1:
				d.Lease = f.Now() // over as it begins
			case i == 3:
				token.Epoch = &ended
			case i == 4:
				d.Lease = f.Now().Add(1)
			}
			token.Tag = uint64(i)
		}
		return nil
	}
	r := f.receiver(t)
	ds := receive(t, r, 5)
	if calls != 2 || len(ds) != 3 {
		t.Fatalf("%d calls, %d deliveries", calls, len(ds))
	}
	var got []string
	for i := range ds {
		var tag uint64
		ds[i].As(&tag)
		got = append(got, fmt.Sprint(ds[i].ID, "/", tag))
	}
	if fmt.Sprint(got) != "[0/0 2/2 4/4]" {
		t.Errorf("%v", got)
	}
	// When nothing else comes, the caller's context decides.
	ctx, cancel := context.WithCancel(t.Context())
	f.rcv = func(_ context.Context, max int, out *driver.Batch) error {
		d, _ := out.Add()
		d.Lease = f.Now()
		cancel()
		return nil
	}
	if ds, err := r.Receive(ctx, 1); len(ds) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ds, err)
	}
}

func TestReceiveOneAtATime(t *testing.T) {
	f := newFake()
	begun := make(chan struct{})
	f.rcv = func(ctx context.Context, _ int, _ *driver.Batch) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	r := f.receiver(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := r.Receive(ctx, 1); done <- err }()
	<-begun
	if _, err := r.Receive(t.Context(), 1); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("a second Receive: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	for _, max := range []int{0, -1} {
		if _, err := r.Receive(t.Context(), max); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("max %d: %v", max, err)
		}
	}
}

// Nothing that an adapter brings is stranded: neither an error beside deliveries
// nor deliveries beyond max.
func TestReceiveStrandsNothing(t *testing.T) {
	f := newFake()
	broken := errors.New("the connection broke behind the third")
	f.rcv = func(_ context.Context, max int, out *driver.Batch) error {
		for i := range 3 * max {
			d, token := out.Add()
			d.ID, token.Tag = fmt.Sprint(i), uint64(i)
		}
		if out.Len() != 3*max {
			t.Errorf("Len %d", out.Len())
		}
		return broken
	}
	r := f.receiver(t)
	for _, max := range []int{1, 8, 20} {
		ds := receive(t, r, max)
		if len(ds) != 3*max {
			t.Errorf("%d deliveries of %d", len(ds), 3*max)
		}
		for i := range ds {
			var tag uint64
			if !ds[i].As(&tag) || ds[i].ID != fmt.Sprint(tag) || tag != uint64(i) {
				t.Errorf("%d: %s with tag %d", i, ds[i].ID, tag)
			}
		}
		if ds, err := r.Receive(t.Context(), max); err != broken || ds != nil {
			t.Errorf("the error behind them: %v, %v", ds, err)
		}
	}
}

// The unfenced view sends everything, for the vendor's own answer.
func TestUnfenced(t *testing.T) {
	f := newFake()
	var ended driver.Epoch
	ended.End()
	f.deliver(1, &ended)
	conn := driver.New(f)
	view, err := driver.Unfenced(conn)
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := driver.Unfenced(view)
	if err != nil {
		t.Fatal(err)
	}
	r, err := deeper.OpenReceiver(t.Context(), "sub")
	if err != nil {
		t.Fatal(err)
	}
	f.took()
	d := receive(t, r, 1)[0]
	f.advance(time.Hour)
	f.answers(confirmed, confirmed, leaseLost)
	for i, a := range []broker.Action{broker.Extend, broker.Ack, broker.Nack} {
		s := []broker.Settlement{{Delivery: &d, Action: a}}
		r.Settle(t.Context(), s)
		if want := []broker.State{broker.Confirmed, broker.Confirmed, broker.LeaseLost}[i]; s[0].Outcome.State != want {
			t.Errorf("%s: %v", a, s[0].Outcome)
		}
	}
	if got := fmt.Sprint(f.took()); got != "[Extend 1 Ack 1 Nack 1 again]" {
		t.Errorf("frames %s", got)
	}
	p, err := view.OpenPublisher(t.Context(), "topic")
	if err != nil {
		t.Fatal(err)
	}
	if rs, err := p.Publish(t.Context(), broker.Message{}); err != nil || rs[0].Verdict != broker.Stored {
		t.Errorf("a message without an ID: %v, %v", rs, err)
	}
	if inner, ok := driver.Unwrap(deeper); !ok || inner != driver.Conn(f) {
		t.Errorf("Unwrap: %T, %v", inner, ok)
	}
	f.took()
	// Closing the view leaves the connection; closing the connection closes views.
	if err := deeper.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(f.took()); got != "[close receiver sub]" {
		t.Errorf("closing the view: %s", got)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(f.took()); got != "[close publisher topic close]" {
		t.Errorf("closing the connection: %s", got)
	}
	if _, err := view.OpenPublisher(t.Context(), "topic"); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("the view afterwards: %v", err)
	}
	if _, err := driver.Unfenced(conn); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("a view of a closed connection: %v", err)
	}
	if _, err := driver.Unfenced(nil); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a view of nothing: %v", err)
	}
}

// TestBatchInBetween: what lies between an adapter and New sees each delivery with its
// own token, also after the batch has grown.
func TestBatchInBetween(t *testing.T) {
	var b driver.Batch
	b.Grow(2)
	for i := range 5 {
		d, token := b.Add()
		d.ID, token.Tag = fmt.Sprint(i), uint64(i)
	}
	for i := range b.Len() {
		if id := b.At(i).ID; b.Len() != 5 || id != fmt.Sprint(i) || b.TokenAt(i).Tag != uint64(i) {
			t.Errorf("%d of %d: %q with the tag %d", i, b.Len(), id, b.TokenAt(i).Tag)
		}
	}
}
