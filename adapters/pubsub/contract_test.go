package pubsub

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
)

func TestRoundTrip(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		when := time.UnixMilli(1700000000123)
		m := broker.Message{ID: "order-17", Key: "customer-4", Body: []byte{0, 255}, Time: when, Headers: broker.Headers{{Key: "a", Value: "1"}}}
		rs := publish(t, g.pub, m)
		if rs[0].Verdict != broker.Stored || rs[0].Position.Token == "" {
			t.Fatalf("receipt %+v", rs[0])
		}
		asked := g.Clock().Now()
		d := receiveOne(t, g.rcv)
		if d.ID != m.ID || d.Key != m.Key || string(d.Body) != string(m.Body) || !d.Time.Equal(when) || len(d.Headers) != 1 || d.Headers[0] != m.Headers[0] {
			t.Errorf("came as %+v", d.Message)
		}
		if d.Attempt != (broker.Attempt{}) || d.Position != rs[0].Position {
			t.Errorf("attempt %+v, position %+v, receipt's %+v", d.Attempt, d.Position, rs[0].Position)
		}
		if left := d.Lease.Sub(asked); left < 10*time.Second || left > 11*time.Second {
			t.Errorf("lease %v after the receive", left)
		}
		if o, err := d.Ack(t.Context()); err != nil || o.State != state {
			t.Errorf("ack: %+v %v", o, err)
		}
		if o, err := d.Ack(t.Context()); err != nil || o.State != state {
			t.Errorf("ack again: %+v %v", o, err)
		}
		if o, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) {
			t.Errorf("nack after ack: %+v %v", o, err)
		}
		// The same ID is another message: there is no dedup.
		publish(t, g.pub, m)
		ack(t, g.rcv, *receiveOne(t, g.rcv))
		nothing(t, g.rcv)
	})
}

func TestNack(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		publish(t, g.pub, message("now"), message("later"), message("over"))
		ds := receiveAll(t, g.rcv, 3)
		for i, delay := range []time.Duration{0, 2500 * time.Millisecond} {
			if o, err := ds[i].Nack(t.Context(), delay); err != nil || o.State != state {
				t.Fatalf("nack: %v %v", o.State, err)
			}
		}
		if o, err := ds[2].Nack(t.Context(), 601*time.Second); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("nack by over 600 s: %+v %v", o, err)
		}
		ack(t, g.rcv, ds[2]) // it was left as it was
		d := receiveOne(t, g.rcv)
		if d.ID != "now" {
			t.Errorf("came %q", d.ID)
		}
		ack(t, g.rcv, *d)
		g.Clock().Advance(2400 * time.Millisecond)
		nothing(t, g.rcv)
		g.Clock().Advance(700 * time.Millisecond) // a delay is rounded up to seconds
		if d = receiveOne(t, g.rcv); d.ID != "later" {
			t.Errorf("came %q", d.ID)
		}
		ack(t, g.rcv, *d)
	})
}

func TestLease(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		publish(t, g.pub, message("x"))
		d := receiveOne(t, g.rcv)
		g.Clock().Advance(8 * time.Second)
		o, err := d.Extend(t.Context(), 0)
		if err != nil || o.State != state || o.Lease.Sub(d.Lease) < 7*time.Second {
			t.Fatalf("extend: %+v %v, the lease was %v", o, err, d.Lease)
		}
		g.Clock().Advance(8 * time.Second)
		other := receiverOf(t, g.dial(t), g.e.Subscription)
		nothing(t, other)
		g.Clock().Advance(3 * time.Second)
		next := receiveOne(t, other)
		if o, err := d.Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("late ack: %v %v", o.State, err)
		}
		if _, err := next.Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		next = receiveOne(t, other) // the late ack did nothing
		if o, err := next.Extend(t.Context(), time.Hour); err != nil || o.Lease.Sub(g.Clock().Now()) > maxLease {
			t.Errorf("extend by an hour: %+v %v", o, err)
		}
		ack(t, other, *next)
	})
}

// What the service itself does with a late ack: PS-F-16, PS-F-08.
func TestVendorStaleAck(t *testing.T) {
	both(t, func(t *testing.T, once bool, _ broker.State) {
		g := ends(t, once)
		raw, err := driver.Unfenced(g.conn)
		if err != nil {
			t.Fatal(err)
		}
		r1, r2 := receiverOf(t, raw, g.e.Subscription), receiverOf(t, raw, g.e.Subscription)
		publish(t, g.pub, message("x"))
		stale := receiveOne(t, r1)
		g.Clock().Advance(11 * time.Second)
		held := receiveOne(t, r2)
		o, err := stale.Ack(t.Context())
		if once {
			if o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("stale ack: %+v %v", o, err)
			}
			if o, err := held.Ack(t.Context()); o.State != broker.Confirmed {
				t.Errorf("the holder's ack: %+v %v", o, err)
			}
			return
		}
		if o.State != broker.Sent {
			t.Errorf("stale ack: %+v %v", o, err)
		}
		if _, err := held.Nack(t.Context(), 0); err != nil {
			t.Error(err)
		}
		nothing(t, r2) // the stale ack took the message from its holder
	})
}

// An ack whose answer is lost: the one who asks again on an exactly-once
// subscription can't know (PS-F-18).
func TestLostAckAnswer(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		for _, cut := range []bool{false, true} {
			g := ends(t, once)
			publish(t, g.pub, message("x"))
			d := receiveOne(t, g.rcv)
			i := g.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Match: g.e.Subscription, Times: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan broker.Outcome)
			go func() {
				o, _ := d.Ack(ctx)
				done <- o
			}()
			applied(t, i)
			if cut {
				g.Restart(true) // Settle asks again by itself
			} else {
				cancel()
			}
			o := <-done
			want, again := broker.State(broker.Unknown), state
			if cut && !once {
				want = broker.Sent
			}
			if once {
				again = broker.Unknown
			}
			if o.State != want || want == broker.Unknown && !errors.Is(o.Err, broker.ErrUnknownOutcome) {
				t.Errorf("cut %v: the lost answer makes it %+v", cut, o)
			}
			if o, _ := d.Ack(t.Context()); o.State != again {
				t.Errorf("cut %v: asked again: %+v", cut, o)
			}
			nothing(t, g.rcv)
		}
	})
}

func TestTransientSettleErrors(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		publish(t, g.pub, messages(3, "m")...)
		ds := receiveAll(t, g.rcv, 3)
		i := g.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Error, Code: 14, Times: 2}) // UNAVAILABLE
		// They may have been applied, for all that the caller knows, and weren't.
		for _, s := range settle(t, g.rcv, broker.Ack, ds...) {
			if s.Outcome.State != state {
				t.Errorf("%+v", s.Outcome)
			}
		}
		if i.Hits() != 2 {
			t.Errorf("%d hits", i.Hits())
		}
		// One that doesn't heal leaves the handle held.
		publish(t, g.pub, message("x"))
		d := receiveOne(t, g.rcv)
		g.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Error, Code: 7, Times: 1}) // PERMISSION_DENIED
		if o, err := d.Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnauthorized) {
			t.Errorf("%+v %v", o, err)
		}
		if o, err := d.Nack(t.Context(), 0); err != nil || o.State != state {
			t.Errorf("another action: %+v %v", o, err)
		}
		ack(t, g.rcv, *receiveOne(t, g.rcv))
		nothing(t, g.rcv)
	})
}

func TestLargeBatches(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		ms := messages(2500, "m")
		seen := map[string]bool{}
		for i, r := range publish(t, g.pub, ms...) {
			if r.Verdict != broker.Stored || seen[r.Position.Token] {
				t.Fatalf("receipt %d is %+v", i, r)
			}
			seen[r.Position.Token] = true
		}
		ds := receiveAll(t, g.rcv, len(ms))
		for i := range ds {
			if ds[i].ID != ms[i].ID {
				t.Fatalf("delivery %d is %q", i, ds[i].ID)
			}
		}
		for i, s := range settle(t, g.rcv, broker.Ack, ds...) {
			if s.Outcome.State != state {
				t.Fatalf("outcome %d is %+v", i, s.Outcome)
			}
		}
		nothing(t, g.rcv)
		// Ten bodies of 2 MB are over the limit of a request.
		big := messages(10, "big")
		for i := range big {
			big[i].Body = make([]byte, 2_000_000)
		}
		publish(t, g.pub, big...)
		if ds := receiveAll(t, g.rcv, 10); len(ds[9].Body) != 2_000_000 {
			t.Error("a body was cut")
		}
	})
}

func TestReceiveSurvivesRestart(t *testing.T) {
	g := ends(t, true)
	got := make(chan []broker.Delivery, 1)
	go func() {
		ds, err := g.rcv.Receive(t.Context(), 5)
		if err != nil {
			t.Error(err)
		}
		got <- ds
	}()
	for range 3 {
		g.Restart(true)
	}
	publish(t, publisherOf(t, g.dial(t), g.e.Topic), message("x"))
	ds := <-got
	if len(ds) != 1 || ds[0].ID != "x" {
		t.Fatalf("%+v", ds)
	}
	g.Restart(true)
	if o, err := ds[0].Ack(t.Context()); err != nil || o.State != broker.Confirmed {
		t.Errorf("a handle outlives its connection here: %+v %v", o, err)
	}
}

func TestOrdered(t *testing.T) {
	both(t, func(t *testing.T, once bool, _ broker.State) {
		g := ends(t, once, func(e *broker.Entity) { e.Ordered = true })
		ms := messages(8, "m")
		for i := range ms {
			ms[i].Key = fmt.Sprintf("k%d", i%2)
		}
		publish(t, g.pub, ms...)
		last := map[string]string{}
		given := false
		for done := 0; done < len(ms); {
			d := receiveOne(t, g.rcv)
			if d.ID == "m2" && !given {
				given = true
				if _, err := d.Nack(t.Context(), time.Second); err != nil {
					t.Fatal(err)
				}
				g.Clock().Advance(1100 * time.Millisecond)
				continue
			}
			if d.ID <= last[d.Key] {
				t.Fatalf("%q after %q", d.ID, last[d.Key])
			}
			last[d.Key] = d.ID
			ack(t, g.rcv, *d)
			done++
		}
		// A batch acked in reverse: put in order here, for the service refuses it
		// (PS-F-38).
		publish(t, g.pub, ms...)
		ds := receiveAll(t, g.rcv, 8)
		for i, j := 0, 7; i < j; i, j = i+1, j-1 {
			ds[i], ds[j] = ds[j], ds[i]
		}
		ack(t, g.rcv, ds...)
		nothing(t, g.rcv)
		if !once {
			return
		}
		publish(t, g.pub, ms...)
		ds = receiveAll(t, g.rcv, 8)
		var later, first *broker.Delivery
		for i := range ds {
			switch ds[i].ID {
			case "m0":
				first = &ds[i]
			case "m2":
				later = &ds[i]
			}
		}
		if o, err := later.Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrConflict) {
			t.Errorf("an ack ahead of its key: %+v %v", o, err)
		}
		ack(t, g.rcv, *first)
		ack(t, g.rcv, *later)
	})
}

func TestAs(t *testing.T) {
	g := ends(t, false)
	publish(t, g.pub, message("x"))
	var subs *vkit.SubscriptionAdminClient
	var raw *pubsubpb.ReceivedMessage
	d := receiveOne(t, g.rcv)
	if !g.conn.As(&subs) || subs == nil || !g.rcv.As(&subs) || !g.pub.As(&subs) || !d.As(&raw) || raw.GetMessage().GetAttributes()[driver.HeaderID] != "x" {
		t.Errorf("raw access: %v", raw)
	}
	if g.conn.As(new(int)) || d.As(new(int)) {
		t.Error("an int")
	}
}

// What has no answer isn't asked again after the lease: that could settle
// somebody else's delivery.
func TestNoRetryAfterTheLease(t *testing.T) {
	both(t, func(t *testing.T, once bool, _ broker.State) {
		g := ends(t, once)
		publish(t, g.pub, message("x"))
		d := receiveOne(t, g.rcv)
		i := g.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Error, Code: 14})
		outcomes := make(chan broker.Outcome, 1)
		go func() {
			o, _ := d.Ack(t.Context())
			outcomes <- o
		}()
		hit(t, i)
		g.Clock().Advance(11 * time.Second)
		select {
		case o := <-outcomes:
			if o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) {
				t.Errorf("%+v", o)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it is asked on and on")
		}
		i.Remove()
		ack(t, g.rcv, *receiveOne(t, g.rcv)) // it comes again
	})
}
