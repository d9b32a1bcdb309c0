package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
)

func TestDeadLetter(t *testing.T) {
	for _, limit := range []int{2, 5, 0} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			g := ends(t, true, func(e *broker.Entity) {
				e.MaxDeliveries = limit
				e.DeadLetter = e.Topic + "-dead"
			})
			letters := entity(func(e *broker.Entity) { e.Topic = g.e.DeadLetter })
			ensure(t, g.conn, letters)
			dead := receiverOf(t, g.conn, letters.Subscription)
			poison := message("poison")
			poison.Key, poison.Headers = "k", broker.Headers{{Key: "kept", Value: "header"}}
			publish(t, g.pub, poison)
			count := limit
			if count == 0 {
				count = 5 // the service's default
			}
			for i := range count {
				d := receiveOne(t, g.rcv)
				if d.Attempt != (broker.Attempt{Number: i + 1, Trust: broker.Approximate}) {
					t.Errorf("attempt %+v", d.Attempt)
				}
				if o, err := d.Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
					t.Fatalf("nack: %+v %v", o, err)
				}
			}
			d := receiveOne(t, dead)
			source := "projects/p/subscriptions/" + g.e.Subscription
			if d.ID != "poison" || d.Key != "k" || string(d.Body) != string(poison.Body) || d.Headers.Get("kept") != "header" ||
				d.Headers.Get(driver.HeaderSource) != source || d.Headers.Get(driver.HeaderAttempts) != fmt.Sprint(count) {
				t.Errorf("the dead letter is %+v", d.Message)
			}
			ack(t, dead, *d)
			nothing(t, g.rcv)
			// By the action, and by the end of the last lease.
			publish(t, g.pub, message("by action"))
			d = receiveOne(t, g.rcv)
			s := []broker.Settlement{{Delivery: d, Action: broker.DeadLetter, Reason: strings.Repeat("no good: ", 100)}}
			if err := g.rcv.Settle(t.Context(), s); err != nil || s[0].Outcome.State != broker.Confirmed {
				t.Fatalf("%+v %v", s[0].Outcome, err)
			}
			d = receiveOne(t, dead)
			if reason := d.Headers.Get(driver.HeaderReason); d.ID != "by action" || !strings.HasPrefix(reason, "no good: ") || len(reason) > maxReason {
				t.Errorf("the dead letter is %+v", d.Message)
			}
			ack(t, dead, *d)
			publish(t, g.pub, message("by expiry"))
			for range count {
				if d := receiveOne(t, g.rcv); d.ID != "by expiry" {
					t.Fatalf("came %q", d.ID)
				}
				g.Clock().Advance(11 * time.Second)
			}
			nothing(t, g.rcv)
			if d = receiveOne(t, dead); d.ID != "by expiry" || d.Headers.Get(driver.HeaderAttempts) != fmt.Sprint(count) {
				t.Errorf("the dead letter is %+v", d.Message)
			}
			ack(t, dead, *d)
			nothing(t, dead)
		})
	}
}

// A copy that can't be published leaves the delivery as it was.
func TestDeadLetterFails(t *testing.T) {
	g := ends(t, true, func(e *broker.Entity) { e.DeadLetter = e.Topic + "-dead" })
	publish(t, g.pub, message("x"))
	d := receiveOne(t, g.rcv)
	g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: 7, Match: g.e.DeadLetter, Times: 1})
	if o, err := d.DeadLetter(t.Context(), "why"); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("%+v %v", o, err)
	}
	ack(t, g.rcv, *d)
	plain := ends(t, false)
	publish(t, plain.pub, message("x"))
	if _, err := receiveOne(t, plain.rcv).DeadLetter(t.Context(), "why"); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("without a dead-letter topic: %v", err)
	}
}

// A dead letter whose ack has no answer isn't copied again when one asks.
func TestDeadLetterIsCopiedOnce(t *testing.T) {
	g := ends(t, true, func(e *broker.Entity) { e.DeadLetter = e.Topic + "-dead" })
	letters := entity(func(e *broker.Entity) { e.Topic = g.e.DeadLetter })
	ensure(t, g.conn, letters)
	dead := receiverOf(t, g.conn, letters.Subscription)
	publish(t, g.pub, message("x"))
	d := receiveOne(t, g.rcv)
	i := g.inject(t, fault.Fault{API: "Acknowledge", Kind: fault.LoseRequest, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := make(chan broker.Outcome, 1)
	go func() {
		o, _ := d.DeadLetter(ctx, "why")
		outcomes <- o
	}()
	hit(t, i)
	cancel()
	if o := <-outcomes; o.State != broker.Unknown {
		t.Fatalf("%+v", o)
	}
	if o, err := d.DeadLetter(t.Context(), "why"); err != nil || o.State != broker.Confirmed {
		t.Fatalf("%+v %v", o, err)
	}
	ack(t, dead, *receiveOne(t, dead))
	nothing(t, dead)
	nothing(t, g.rcv)
}
