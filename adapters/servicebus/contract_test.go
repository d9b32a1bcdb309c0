package servicebus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	when := time.UnixMilli(1700000000123)
	m := broker.Message{ID: "order-17", Key: "customer-4", Body: []byte("body"), Time: when, Headers: broker.Headers{{Key: "a", Value: "1"}}}
	publish(t, p, m)
	d := receiveOne(t, r)
	if d.ID != m.ID || d.Key != m.Key || string(d.Body) != "body" || !d.Time.Equal(when) || len(d.Headers) != 1 || d.Headers[0] != m.Headers[0] {
		t.Errorf("came as %+v", d.Message)
	}
	if d.Attempt != (broker.Attempt{Number: 1, Trust: broker.Exact}) || d.Position.Offset == 0 {
		t.Errorf("attempt %+v, position %+v", d.Attempt, d.Position)
	}
	if left := time.Until(d.Lease); left <= 45*time.Second || left > time.Minute {
		t.Errorf("lease left: %v", left)
	}
	ack(t, *d)
	publish(t, p, m)
	if ds := receive(t, r, 1, 100*time.Millisecond); len(ds) != 0 {
		t.Errorf("came again: %+v", ds)
	}
}

func TestCopyIsAnotherMessage(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	m := message("x")
	replay := m
	replay.Copy = "replay 1"
	publish(t, p, m, replay, replay)
	ds := receiveAll(t, r, 2)
	if ds[1].ID != "x" || ds[1].Copy != "replay 1" || ds[0].Copy != "" {
		t.Errorf("came %q/%q and %q/%q", ds[0].ID, ds[0].Copy, ds[1].ID, ds[1].Copy)
	}
	if more := receive(t, r, 1, 50*time.Millisecond); len(more) != 0 {
		t.Errorf("a third: %+v", more)
	}
}

// Batches over the service's limit of size are split, and joined in one call.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	ms := messages(500, "m")
	for i := range ms {
		ms[i].Body = []byte(strings.Repeat("x", 2000+i))
	}
	publish(t, p, ms...)
	ds := receiveAll(t, r, len(ms))
	s := make([]broker.Settlement, len(ds))
	seen := map[string]bool{}
	for i := range ds {
		k := len(ds[i].Body) - 2000
		if k < 0 || k >= len(ms) || ds[i].ID != ms[k].ID || seen[ds[i].ID] {
			t.Fatalf("delivery %d is %q with %d bytes", i, ds[i].ID, len(ds[i].Body))
		}
		seen[ds[i].ID] = true
		s[i] = broker.Settlement{Delivery: &ds[i]}
	}
	if err := r.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for i := range s {
		if s[i].Outcome.State != broker.Confirmed {
			t.Fatalf("outcome %d is %+v", i, s[i].Outcome)
		}
	}
}

// A message over the limit is refused and harms no other of the call.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	n, c, e, p, r := ends(t)
	big := message("big")
	big.Body = make([]byte, emulator.StandardSize+1)
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []broker.Publisher{p, publisherOf(t, raw, e.Topic)} {
		id := fmt.Sprintf("%T%p", p, p)
		rs, err := p.Publish(t.Context(), message("before"+id), big, message("after"+id))
		wantErr(t, err, broker.ErrTooLarge)
		for i, want := range []broker.Verdict{broker.Accepted, broker.Refused, broker.Accepted} {
			if rs[i].Verdict != want {
				t.Errorf("receipt %d: %v, %v", i, rs[i].Verdict, rs[i].Err)
			}
		}
	}
	ack(t, receiveAll(t, r, 4)...)
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

func TestNack(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	o, err := d.Nack(t.Context(), time.Second)
	if wantErr(t, err, broker.ErrUnsupported); o.State != broker.Unknown {
		t.Errorf("a delay: %v", o.State)
	}
	// The handle is as it was.
	if o, err := d.Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
		t.Fatalf("nack: %v %v", o.State, err)
	}
	if _, err := d.Ack(t.Context()); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("ack after nack: %v", err)
	}
	again := receiveOne(t, r)
	if again.ID != "x" || again.Attempt.Number != 2 {
		t.Errorf("%q at attempt %d", again.ID, again.Attempt.Number)
	}
	ack(t, *again)
}

func TestExtend(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			n, _, _, p, r := ends(t, func(e *broker.Entity) { e.Ordered, e.Lease = kind == "sessions", 10*time.Second })
			publish(t, p, keyed("x", "k"))
			d := receiveOne(t, r)
			for range 3 {
				n.Clock().Advance(7 * time.Second)
				o, err := d.Extend(t.Context(), 0)
				if err != nil || o.State != broker.Confirmed {
					t.Fatalf("%v %v", o.State, err)
				}
				if left := o.Lease.Sub(n.Clock().Now()); left < 9*time.Second || left > 10*time.Second {
					t.Errorf("lease left: %v", left)
				}
			}
			ack(t, *d)
		})
	}
}

// After its lock a delivery is lost, by the fence here and by the service itself.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			n, c, e, p, _ := ends(t, func(e *broker.Entity) { e.Ordered, e.Lease = kind == "sessions", 10*time.Second })
			raw, err := driver.Unfenced(c)
			if err != nil {
				t.Fatal(err)
			}
			publish(t, p, keyed("x", "k"))
			late := receiverOf(t, raw, e.Subscription)
			d := receiveOne(t, late)
			n.Clock().Advance(11 * time.Second)
			next := receiveOne(t, receiverOf(t, c, e.Subscription))
			if next.ID != "x" || next.Attempt.Number != 2 {
				t.Errorf("%q at attempt %d", next.ID, next.Attempt.Number)
			}
			begin := time.Now()
			o, err := d.Ack(t.Context())
			if wantErr(t, err, broker.ErrLeaseLost); o.State != broker.LeaseLost {
				t.Errorf("the service to a late ack: %v %v", o.State, err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("it took %v", took)
			}
			if o, err := d.Extend(t.Context(), 0); o.State != broker.LeaseLost {
				t.Errorf("the service to a late extend: %v %v", o.State, err)
			}
			ack(t, *next)
			if k := n.counts(t, e.Topic); k.Active != 0 {
				t.Errorf("left: %+v", k)
			}
		})
	}
}

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	_, c, e, p, r := ends(t, func(e *broker.Entity) { e.MaxDeliveries = 2 })
	dead := receiverOf(t, c, e.Subscription+"/$deadletterqueue")
	m := message("bad")
	m.Headers = broker.Headers{{Key: "kept", Value: "1"}}
	publish(t, p, m, message("poison"))
	ds := receiveAll(t, r, 2)
	if o, err := ds[0].DeadLetter(t.Context(), "won't parse"); err != nil || o.State != broker.Confirmed {
		t.Fatalf("%v %v", o.State, err)
	}
	if _, err := ds[1].Nack(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := receiveOne(t, r).Nack(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	d := receiveOne(t, dead)
	if d.ID != "bad" || d.Headers.Get("kept") != "1" || d.Headers.Get(driver.HeaderReason) != "won't parse" ||
		d.Headers.Get(driver.HeaderSource) != e.Topic || d.Headers.Get(driver.HeaderAttempts) != "1" {
		t.Errorf("%q %v", d.ID, d.Headers)
	}
	var sdk *azservicebus.ReceivedMessage
	if !d.As(&sdk) || sdk.DeadLetterErrorDescription == nil || !strings.Contains(*sdk.DeadLetterErrorDescription, e.Subscription) {
		t.Errorf("description of %+v", sdk)
	}
	if _, err := d.DeadLetter(t.Context(), "again"); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("dead-letter a dead letter: %v", err)
	}
	ack(t, *d)
	d = receiveOne(t, dead)
	if d.ID != "poison" || d.Headers.Get(driver.HeaderReason) != "MaxDeliveryCountExceeded" {
		t.Errorf("%q %v", d.ID, d.Headers)
	}
	// A dead letter can be published again as it came, as a copy.
	m = d.Message
	m.Copy = "resubmit 1"
	publish(t, p, m)
	if again := receiveOne(t, r); again.ID != "poison" || again.Copy != "resubmit 1" {
		t.Errorf("%q %q", again.ID, again.Copy)
	}
	ack(t, *d)
}

// A message with the ID of one that was acked is dropped within the window, and
// stored after it.
func TestWindow(t *testing.T) {
	t.Parallel()
	n, _, _, p, r := ends(t, func(e *broker.Entity) { e.Window = time.Minute })
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	n.Clock().Advance(55 * time.Second)
	publish(t, p, message("x"))
	if ds := receive(t, r, 1, 50*time.Millisecond); len(ds) != 0 {
		t.Fatal("stored again within the window")
	}
	n.Clock().Advance(61 * time.Second)
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t)
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 25 {
				if _, err := p.Publish(t.Context(), messages(4, fmt.Sprintf("g%d-%d-", g, i))...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[string]bool{}
	for len(seen) < 400 {
		ds := receive(t, r, 50, mustCome)
		if len(ds) == 0 {
			t.Fatalf("%d came", len(seen))
		}
		for i := range ds {
			seen[ds[i].ID] = true
			wait.Go(func() {
				if o, err := ds[i].Ack(context.Background()); o.State != broker.Confirmed {
					t.Errorf("%v %v", o.State, err)
				}
			})
		}
	}
	wait.Wait()
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}
