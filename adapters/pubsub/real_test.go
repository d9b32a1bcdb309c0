package pubsub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack"
)

// TestReal runs, in real time, against the vendor's own emulator, which it starts
// with ONCELINE_LOCAL=1, or against what ONCELINE_PUBSUB names as host:port:
//
//	ONCELINE_PUBSUB=127.0.0.1:8085 go test -run TestReal ./adapters/pubsub
func TestReal(t *testing.T) {
	addr := os.Getenv("ONCELINE_PUBSUB")
	switch {
	case addr != "":
	case os.Getenv("ONCELINE_LOCAL") == "1":
		e, err := localstack.StartPubSubEmulator(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := e.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		addr = e.Address()
	default:
		t.Skip("ONCELINE_PUBSUB names no server, and ONCELINE_LOCAL=1 isn't set")
	}
	both(t, func(t *testing.T, once bool, state broker.State) {
		c, err := Dial(t.Context(), "p", Endpoint(addr), ExactlyOnce(once))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		stamp := time.Now().UnixNano()
		real := func(change ...func(*broker.Entity)) (broker.Entity, broker.Publisher, broker.Receiver) {
			e := entity(change...)
			e.Topic, e.Subscription = fmt.Sprintf("%s-%d", e.Topic, stamp), fmt.Sprintf("%s-%d", e.Subscription, stamp)
			if e.DeadLetter != "" {
				e.DeadLetter = e.Topic + "-dead"
			}
			ensure(t, c, e)
			return e, publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		}
		e, p, r := real()
		m := message("x")
		m.Headers = broker.Headers{{Key: "b", Value: "\xff"}, {Key: "a", Value: "1"}}
		publish(t, p, m)
		d := receiveOne(t, r)
		if d.ID != "x" || len(d.Headers) != 2 || d.Headers[0] != m.Headers[0] {
			t.Errorf("%+v", d.Message)
		}
		if o, err := d.Extend(t.Context(), 20*time.Second); err != nil || o.State != state {
			t.Errorf("extend: %+v %v", o, err)
		}
		begin := time.Now()
		if o, err := d.Nack(t.Context(), 1500*time.Millisecond); err != nil || o.State != state {
			t.Errorf("nack: %+v %v", o, err)
		}
		d = receiveOne(t, r)
		if took := time.Since(begin); took < 1500*time.Millisecond || took > 5*time.Second {
			t.Errorf("came again after %v", took)
		}
		if o, err := d.Ack(t.Context()); err != nil || o.State != state {
			t.Errorf("ack: %+v %v", o, err)
		}
		// Cancels around the arrival of messages.
		other := receiverOf(t, c, e.Subscription)
		for i := range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i)*500*time.Microsecond, cancel)
			go func() { _, _ = p.Publish(t.Context(), message(fmt.Sprint(i))) }() // seen by its arrival
			ds, err := r.Receive(ctx, 1)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			from := r
			if len(ds) == 0 {
				ds, from = receiveAll(t, other, 1), other
			}
			ack(t, from, ds...)
		}
		// What is held as a receiver closes comes again at once.
		publish(t, p, message("y"))
		receiveOne(t, r)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		ack(t, other, *receiveOne(t, other))
		// Order, and acks in reverse.
		_, p, r = real(func(e *broker.Entity) { e.Ordered = true })
		ms := messages(20, "m")
		for i := range ms {
			ms[i].Key = fmt.Sprintf("k%d", i%3)
		}
		publish(t, p, ms...)
		last, n := map[string]int{}, 0
		for n < len(ms) {
			ds := receive(t, r, 20, mustCome)
			for i := range ds {
				var number int
				if _, err := fmt.Sscanf(ds[i].ID, "m%d", &number); err != nil || last[ds[i].Key] > number {
					t.Errorf("%q behind %d: %v", ds[i].ID, last[ds[i].Key], err)
				}
				last[ds[i].Key] = number
			}
			n += len(ds)
			for i, j := 0, len(ds)-1; i < j; i, j = i+1, j-1 {
				ds[i], ds[j] = ds[j], ds[i]
			}
			ack(t, r, ds...)
		}
		// Dead letters, by our own count and by the action.
		e, p, r = real(func(e *broker.Entity) { e.MaxDeliveries, e.DeadLetter = 2, "dead" })
		dead := broker.Entity{Topic: e.DeadLetter, Subscription: e.Subscription + "-dead"}
		ensure(t, c, dead)
		letters := receiverOf(t, c, dead.Subscription)
		publish(t, p, message("poison"))
		for range 2 {
			if _, err := receiveOne(t, r).Nack(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		d = receiveOne(t, letters)
		if d.ID != "poison" || d.Headers.Get(driver.HeaderAttempts) != "2" {
			t.Errorf("%+v", d.Message)
		}
		ack(t, letters, *d)
		if err := c.Delete(t.Context(), e); err != nil {
			t.Error(err)
		}
	})
}
