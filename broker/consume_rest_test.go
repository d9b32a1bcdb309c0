package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// A message with a key that fails is handled again in hand, before those behind
// it and under a lease that is kept: nobody pays with a delivery, so a broker that
// counts deliveries takes no message away that was never handled.
func TestConsumeRetriesAKeyInHand(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{MaxDeliveries: 2, DeadLetter: "dead", Lease: 10 * time.Second})
		r.publish(6, "k")
		var order []string
		tries := 0
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "000" {
				if tries++; tries < 6 {
					return errors.New("not yet")
				}
			}
			order = append(order, fmt.Sprint(d.ID, "/", d.Attempt.Number))
			return nil
		}, broker.ConsumeOptions{Backoff: broker.Backoff{Min: 25 * time.Second, Max: 25 * time.Second}, Rand: fullJitter})
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(order); tries != 6 || got != "[000/1 001/1 002/1 003/1 004/1 005/1]" {
			t.Errorf("%d tries, handled %s", tries, got)
		}
		if r.stats() != (memory.Stats{}) || strings.Contains(fmt.Sprint(r.rcv.log), "Nack") {
			t.Errorf("left %+v; %q", r.stats(), r.rcv.log)
		}
	})
}

// As Consume ends, what rests goes back at once, and those behind it.
func TestConsumeGivesBackWhatRests(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(3, "k")
		stop := r.consume(func(context.Context, *broker.Delivery) error { return errors.New("no") },
			broker.ConsumeOptions{Backoff: broker.Backoff{Min: time.Hour, Max: time.Hour}, Rand: fullJitter})
		time.Sleep(time.Minute)
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("ended after %s", took)
		}
		if s := r.stats(); s.Ready != 3 || s.InFlight != 0 {
			t.Errorf("left %+v", s)
		}
	})
}

// A lease that is lost while its message rests ends the wait: the message is
// somebody else's, and its key goes on.
func TestConsumeLosesWhatRests(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 10 * time.Second})
		r.publish(1, "k")
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			if s[0].Action == broker.Extend {
				for i := range s {
					s[i].Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.ErrLeaseLost}
				}
				return broker.ErrLeaseLost
			}
			return next()
		}
		handled := 0
		var hook []error
		stop := r.consume(func(context.Context, *broker.Delivery) error {
			if handled++; handled == 1 {
				return errors.New("no")
			}
			return nil
		}, broker.ConsumeOptions{Workers: 1, Backoff: broker.Backoff{Min: time.Hour, Max: time.Hour}, Rand: fullJitter,
			ErrorHook: func(err error) { hook = append(hook, err) }})
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		// The second time it is the broker's redelivery.
		if handled != 2 || r.stats() != (memory.Stats{}) {
			t.Errorf("handled %d times, left %+v", handled, r.stats())
		}
		if len(hook) != 2 || !errors.Is(hook[1], broker.ErrLeaseLost) {
			t.Errorf("the hook got %v", hook)
		}
	})
}

// A store that is away for a while costs a message no delivery, with a key or without
// one: the broker, which counts deliveries, would dead-letter it for that. A longer
// delay of a message without a key is the broker's to wait.
func TestConsumePostponesInHand(t *testing.T) {
	for _, key := range []string{"", "k"} {
		bubbletest.Run(t, func(t *testing.T) {
			r := newRig(t, broker.Entity{MaxDeliveries: 2, DeadLetter: "dead", Lease: 10 * time.Second})
			r.publish(20, key)
			back := time.Now().Add(time.Minute)
			var order []string
			stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
				if time.Now().Before(back) {
					return broker.Postpone(errors.New("no database"), time.Second)
				}
				order = append(order, fmt.Sprint(d.ID, "/", d.Attempt.Number))
				return nil
			}, broker.ConsumeOptions{Workers: 1})
			time.Sleep(5 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if dead := r.deadLetters(); len(dead) != 0 || len(order) != 20 || r.stats() != (memory.Stats{}) {
				t.Errorf("key %q: %d dead, handled %v, left %+v", key, len(dead), order, r.stats())
			}
			for _, o := range order {
				if !strings.HasSuffix(o, "/1") {
					t.Errorf("key %q: handled %s", key, o)
				}
			}
		})
	}
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 10 * time.Second})
		r.publish(1)
		n := 0
		stop := r.consume(func(context.Context, *broker.Delivery) error {
			if n++; n == 1 {
				return broker.Postpone(nil, 6*time.Second)
			}
			return nil
		}, broker.ConsumeOptions{})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n != 2 || r.rcv.count("Nack 000") != 1 {
			t.Errorf("%d times, %q", n, r.rcv.log)
		}
	})
}
