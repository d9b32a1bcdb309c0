package pubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

// Public bug reports, turned into the value that must hold here.

// googleapis/google-cloud-go#7301: a plain subscription's ack is sent, and isn't
// called confirmed.
func TestCasePlainAckIsSent(t *testing.T) {
	g := ends(t, false)
	publish(t, g.pub, message("x"))
	d := receiveOne(t, g.rcv)
	i := g.inject(t, fault.Fault{API: "Acknowledge", Kind: fault.Delay, Delay: time.Nanosecond})
	if o, err := d.Ack(t.Context()); err != nil || o.State != broker.Sent {
		t.Errorf("%+v %v", o, err)
	}
	if i.Applied() != 1 {
		t.Errorf("%d Acknowledge requests", i.Applied())
	}
	g.Clock().Advance(30 * time.Second)
	nothing(t, g.rcv)
}

// open-telemetry/opentelemetry-collector-contrib#44706: acks whose request failed
// are sent again within the lease.
func TestCaseFailedFlushLosesNoAck(t *testing.T) {
	both(t, func(t *testing.T, once bool, _ broker.State) {
		g := ends(t, once)
		publish(t, g.pub, messages(20, "m")...)
		ds := receiveAll(t, g.rcv, 20)
		g.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Cut, Times: 1})
		ack(t, g.rcv, ds...)
		g.Clock().Advance(30 * time.Second)
		nothing(t, g.rcv)
	})
}

// googleapis/google-cloud-go#1453: a small message beside one of the largest size.
func TestCaseSmallBesideLarge(t *testing.T) {
	g := ends(t, false)
	limit := g.pub.Limits().Body
	large := broker.Message{ID: "large", Body: make([]byte, limit)}
	over := broker.Message{ID: "over", Body: make([]byte, limit+1)}
	rs, err := g.pub.Publish(t.Context(), message("small"), large, over, message("last"))
	if !errors.Is(err, broker.ErrTooLarge) {
		t.Fatal(err)
	}
	for i, want := range []broker.Verdict{broker.Stored, broker.Stored, broker.Refused, broker.Stored} {
		if rs[i].Verdict != want {
			t.Errorf("receipt %d: %+v", i, rs[i])
		}
	}
	if ds := receiveAll(t, g.rcv, 3); len(ds[1].Body) != limit {
		t.Error("the large one was cut")
	}
}

// googleapis/google-cloud-go#1464: a service that is slow for a while costs its
// callers their time, and no more: afterwards all works.
func TestCaseSlowServiceHeals(t *testing.T) {
	g := ends(t, false)
	slow := g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.LoseRequest})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			rs, err := g.pub.Publish(ctx, broker.Message{ID: fmt.Sprint(i), Body: make([]byte, 10_000)})
			if rs[0].Verdict.OK() || !errors.Is(err, broker.ErrUnknownOutcome) && !errors.Is(err, broker.ErrUnavailable) {
				t.Errorf("%+v %v", rs[0], err)
			}
		})
	}
	wait.Wait()
	slow.Remove()
	publish(t, g.pub, messages(10, "m")...)
	ack(t, g.rcv, receiveAll(t, g.rcv, 10)...)
}

// googleapis/google-cloud-go#6843: a publish that was given up may be stored, and
// its receipt says so.
func TestCaseGivenUpPublishIsUnknown(t *testing.T) {
	g := ends(t, false)
	i := g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	rs, err := g.pub.Publish(ctx, message("x"))
	if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) || i.Applied() != 1 {
		t.Fatalf("%+v %v, applied %d", rs[0], err, i.Applied())
	}
	publish(t, g.pub, message("x"))
	// Two copies of one ID: what a dedup store is for.
	for _, d := range receiveAll(t, g.rcv, 2) {
		if d.ID != "x" {
			t.Errorf("%q", d.ID)
		}
	}
}

// googleapis/google-cloud-go#1247 and googleapis/google-cloud-go#11642: nothing
// waits in a client's queue while its lease runs; lease requests that fail for a
// moment are made again.
func TestCaseLeasesOfWhatWaits(t *testing.T) {
	g := ends(t, true)
	publish(t, g.pub, messages(10, "m")...)
	for range 10 {
		if ds := receive(t, g.rcv, 1, time.Second); len(ds) != 1 {
			t.Fatalf("%d at a time", len(ds))
		} else {
			for range 3 { // a handler of three leases
				g.inject(t, fault.Fault{API: "ModifyAckDeadline", Kind: fault.Error, Code: 14, Times: 1})
				g.Clock().Advance(8 * time.Second)
				if o, err := ds[0].Extend(t.Context(), 0); err != nil || o.State != broker.Confirmed {
					t.Fatalf("%+v %v", o, err)
				}
			}
			ack(t, g.rcv, ds...)
		}
	}
	nothing(t, g.rcv)
}

// googleapis/google-cloud-go#7585: a delivery whose lease couldn't be confirmed
// isn't handed out. Where a pull took long the lease is asked for anew, and what
// the service refuses is dropped.
func TestCaseUnconfirmedLeaseIsNotHandedOut(t *testing.T) {
	g := patient(t, true)
	publish(t, g.pub, message("x"))
	i := g.inject(t, fault.Fault{API: "Pull", Kind: fault.Delay, Delay: 31 * time.Second, Times: 1}) // over half a lease
	refused := g.inject(t, fault.Fault{API: "ModifyAckDeadline", Kind: fault.Error, Code: 3, Times: 1})
	got := make(chan []broker.Delivery, 1)
	go func() {
		ds, err := g.rcv.Receive(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		got <- ds
	}()
	hit(t, i)
	g.Clock().Advance(31 * time.Second)
	hit(t, refused)
	g.Clock().Advance(61 * time.Second) // its lease ends, and it comes again
	ds := <-got
	if len(ds) != 1 || ds[0].Lease.Before(g.Clock().Now()) {
		t.Fatalf("%+v", ds)
	}
	ack(t, g.rcv, ds...)
}

// Without exactly-once delivery there is nothing to confirm: what may be somebody
// else's by now is given back, and comes again at once with a lease of its own.
func TestPullOverALease(t *testing.T) {
	g := patient(t, false)
	publish(t, g.pub, message("x"))
	i := g.inject(t, fault.Fault{API: "Pull", Kind: fault.Delay, Delay: 61 * time.Second, Times: 1})
	got := make(chan []broker.Delivery, 1)
	go func() {
		ds, err := g.rcv.Receive(t.Context(), 1)
		if err != nil {
			t.Error(err)
		}
		got <- ds
	}()
	hit(t, i)
	g.Clock().Advance(61 * time.Second)
	ds := <-got
	if len(ds) != 1 || ds[0].Lease.Sub(g.Clock().Now()) < 50*time.Second {
		t.Fatalf("%+v", ds)
	}
	ack(t, g.rcv, ds...)
}

// cloudevents/sdk-go#1234: a message that arrives as its Receive is cancelled is
// another receiver's within a second, though the lease is a minute.
func TestCaseHandOffAsContextEnds(t *testing.T) {
	g := patient(t, true)
	i := g.inject(t, fault.Fault{API: "Pull", Kind: fault.Delay, Delay: time.Second, Times: 1})
	publish(t, g.pub, message("x"))
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := g.rcv.Receive(ctx, 1)
		errs <- err
	}()
	hit(t, i)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	g.Clock().Advance(time.Second) // now the pull gets it
	begin := time.Now()
	other := receiverOf(t, g.dial(t), g.e.Subscription)
	ack(t, other, *receiveOne(t, other))
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// googleapis/google-cloud-go#5905 and redpanda-data/connect#2935: a key that
// failed harms no other, says its first error, and goes on with the next call.
func TestCaseNoKeyStaysPaused(t *testing.T) {
	g := ends(t, false, func(e *broker.Entity) { e.Ordered = true })
	k1 := make([]broker.Message, 1200)
	for i := range k1 {
		k1[i] = message(fmt.Sprintf("m%04d", i))
		k1[i].Key = "k1"
	}
	g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: 7, Times: 1})
	rs, err := g.pub.Publish(t.Context(), k1...)
	if !errors.Is(err, broker.ErrUnauthorized) || rs[0].Verdict != broker.Refused {
		t.Fatalf("%+v %v", rs[0], err)
	}
	if rs[1199].Verdict != broker.Refused || !errors.Is(rs[1199].Err, errEarlierKey) {
		t.Errorf("behind the failed part: %+v", rs[1199])
	}
	other := message("other")
	other.Key = "k2"
	publish(t, g.pub, other)
	publish(t, g.pub, k1...)
	var got []string
	for len(got) < 1200 {
		ds := receive(t, g.rcv, 500, mustCome)
		for _, d := range ds {
			if d.Key == "k1" {
				got = append(got, d.ID)
			}
		}
		ack(t, g.rcv, ds...)
	}
	if !slices.IsSorted(got) {
		t.Error("out of order")
	}
}

// redpanda-data/connect#2935: cuts during ordered publishing, with a retry that
// keeps the ID: all is there, and in order but for repeats.
func TestCaseOrderOverCuts(t *testing.T) {
	g := ends(t, true, func(e *broker.Entity) { e.Ordered = true })
	for i := range 100 {
		m := message(fmt.Sprintf("m%03d", i))
		m.Key = "k"
		if i%7 == 0 {
			g.inject(t, fault.Fault{Op: fault.Publish, Kind: []fault.Kind{fault.Cut, fault.LoseResponse}[i%2], Times: 1, Cut: i%2 == 1})
		}
		for try := 0; ; try++ {
			rs, _ := g.pub.Publish(t.Context(), m)
			if rs[0].Verdict.OK() {
				break
			}
			if try > 100 {
				t.Fatalf("%+v", rs[0])
			}
		}
	}
	last, seen := "", map[string]bool{}
	for len(seen) < 100 {
		for _, d := range receiveAll(t, g.rcv, 1) {
			if d.ID < last {
				t.Fatalf("%q after %q", d.ID, last)
			}
			last, seen[d.ID] = d.ID, true
			ack(t, g.rcv, d)
		}
	}
}

// googleapis/google-cloud-go#9472 and #6255: order with exactly-once delivery.
func TestCaseOrderWithExactlyOnce(t *testing.T) {
	g := ends(t, true, func(e *broker.Entity) { e.Ordered = true })
	for range 5 {
		ms := messages(200, "m")
		for i := range ms {
			ms[i].Key = "k"
		}
		publish(t, g.pub, ms...)
		for next := 0; next < len(ms); {
			ds := receive(t, g.rcv, 17, time.Second)
			for i := range ds {
				if ds[i].ID != ms[next].ID {
					t.Fatalf("%q, want %q", ds[i].ID, ms[next].ID)
				}
				next++
			}
			ack(t, g.rcv, ds...)
		}
	}
}

// googleapis/google-cloud-dotnet#11793: a key goes on after its poison was
// dead-lettered, with order and exactly-once delivery.
func TestCaseKeyGoesOnAfterPoison(t *testing.T) {
	g := ends(t, true, func(e *broker.Entity) { e.Ordered, e.MaxDeliveries, e.DeadLetter = true, 5, e.Topic+"-dead" })
	letters := entity(func(e *broker.Entity) { e.Topic = g.e.DeadLetter })
	ensure(t, g.conn, letters)
	dead := receiverOf(t, g.conn, letters.Subscription)
	poison, good := message("poison"), message("good")
	poison.Key, good.Key = "a1", "a1"
	publish(t, g.pub, poison)
	for range 5 {
		if _, err := receiveOne(t, g.rcv).Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, g.pub, good)
	if d := receiveOne(t, g.rcv); d.ID != "good" {
		t.Errorf("came %q", d.ID)
	} else {
		ack(t, g.rcv, *d)
	}
	if d := receiveOne(t, dead); d.ID != "poison" {
		t.Errorf("dead-lettered %q", d.ID)
	} else {
		ack(t, dead, *d)
	}
	nothing(t, dead)
}

// googleapis/google-cloud-go#13114 and #4718: whenever a receiver is cancelled and
// closed, it ends soon and cleanly, and what it held comes back.
func TestCaseCancelUnderLoad(t *testing.T) {
	g := ends(t, true)
	publish(t, g.pub, messages(1000, "m")...)
	for i := range 20 {
		r := receiverOf(t, g.conn, g.e.Subscription)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
		for {
			if _, err := r.Receive(ctx, 10); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				break
			}
		}
		begin := time.Now()
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	}
	ack(t, g.rcv, receiveAll(t, g.rcv, 1000)...)
	nothing(t, g.rcv)
}

// ThreeDotsLabs/watermill#184: a message without any of our attributes is
// delivered, with the service's ID, and blocks nothing.
func TestCaseForeignMessage(t *testing.T) {
	g := ends(t, true)
	c := connOf(t, g.conn)
	res, err := c.topics.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: "projects/p/topics/" + g.e.Topic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("raw")}}})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, g.pub, message("good"))
	ds := receiveAll(t, g.rcv, 2)
	if ds[0].ID != res.MessageIds[0] || string(ds[0].Body) != "raw" || ds[0].Time.IsZero() || ds[1].ID != "good" {
		t.Errorf("%+v", ds)
	}
	ack(t, g.rcv, ds...)
}

// google/go-cloud#1733: settling twice has one answer, and the receiver goes on.
func TestCaseSettleTwice(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		publish(t, g.pub, message("x"))
		d := receiveOne(t, g.rcv)
		for range 2 {
			if o, err := d.Ack(t.Context()); err != nil || o.State != state {
				t.Errorf("%+v %v", o, err)
			}
		}
		if o, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) || o.State != state {
			t.Errorf("%+v %v", o, err)
		}
		publish(t, g.pub, message("y"))
		ack(t, g.rcv, *receiveOne(t, g.rcv))
	})
}

// googleapis/nodejs-pubsub#1646: this emulator enforces what exactly-once delivery
// says, so confirmed acks are tested: an ack ID that isn't the newest is refused.
func TestCaseExactlyOnceIsEnforced(t *testing.T) {
	g := ends(t, true)
	publish(t, g.pub, message("x"))
	d := receiveOne(t, g.rcv)
	ack(t, g.rcv, *d)
	var m *pubsubpb.ReceivedMessage
	d.As(&m)
	c := connOf(t, g.conn)
	err := c.subs.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: "projects/p/subscriptions/" + g.e.Subscription, AckIds: []string{m.AckId}}, once)
	if why := reasons(err); !strings.HasPrefix(why[m.AckId], permanent) {
		t.Errorf("%v: %v", err, why)
	}
}
