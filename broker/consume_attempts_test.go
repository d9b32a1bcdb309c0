package broker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// Attempts back off, and the last one dead-letters: by the broker's number where
// it is exact, by our own count where there is none.
func TestConsumeAttempts(t *testing.T) {
	for name, opts := range map[string][]memory.Option{"exact": nil, "none": {memory.WithoutAttempts()}} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{DeadLetter: "dead"}, opts...)
				r.publish(2)
				var at []time.Duration
				start := time.Now()
				stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
					if d.ID == "001" {
						return nil
					}
					at = append(at, time.Since(start))
					return errors.New("no\x00 luck")
				}, broker.ConsumeOptions{MaxAttempts: 5, Backoff: broker.Backoff{Min: time.Second, Max: 3 * time.Second}, Rand: fullJitter})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got, want := fmt.Sprint(at), "[0s 1s 3s 6s 9s]"; got != want {
					t.Errorf("attempts at %s, want %s", got, want)
				}
				dead := r.deadLetters()
				if len(dead) != 1 || dead[0].ID != "000" {
					t.Fatalf("dead-lettered: %v", dead)
				}
				if why := dead[0].Headers.Get("onceline-dead-letter-reason"); why != "after 5 attempts: no luck" {
					t.Errorf("reason %q", why)
				}
				if len(r.hooked()) != 5 || r.stats() != (memory.Stats{}) {
					t.Errorf("hook: %v; left %+v", r.hooked(), r.stats())
				}
			})
		})
	}
}

func TestConsumePoisonAndPostpone(t *testing.T) {
	for name, opts := range map[string][]memory.Option{"exact": nil, "none": {memory.WithoutAttempts()}} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{DeadLetter: "dead"}, opts...)
				r.publish(2)
				bad := errors.New("not JSON")
				inFlight := errors.New("in flight elsewhere")
				var at []time.Duration
				start := time.Now()
				stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
					if d.ID == "000" {
						return fmt.Errorf("decode: %w", broker.Poison(bad))
					}
					at = append(at, time.Since(start))
					switch len(at) {
					case 1, 2, 3, 4, 5:
						return broker.Postpone(inFlight, 2*time.Second)
					case 6:
						return errors.New("the one real failure")
					}
					return nil
				}, broker.ConsumeOptions{MaxAttempts: 2, Backoff: broker.Backoff{Min: time.Second, Max: time.Second}, Rand: fullJitter})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got, want := fmt.Sprint(at), "[0s 2s 4s 6s 8s 10s 11s]"; got != want {
					t.Errorf("attempts at %s, want %s", got, want)
				}
				dead := r.deadLetters()
				if len(dead) != 1 || dead[0].ID != "000" || dead[0].Headers.Get("onceline-dead-letter-reason") != "decode: not JSON" {
					t.Errorf("dead-lettered: %v", dead)
				}
				if r.reported(bad) != 1 || r.reported(inFlight) != 5 || r.stats() != (memory.Stats{}) {
					t.Errorf("hook: %v; left %+v", r.hooked(), r.stats())
				}
			})
		})
	}
}

// google/go-cloud#1733: a handler that settles by itself, twice, and then
// returns something else.
func TestConsumeHandlerSettles(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(3)
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			switch d.ID {
			case "000": // and nil: the same again
				for range 2 {
					if o, err := d.Ack(ctx); err != nil || o.State != broker.Confirmed {
						t.Errorf("%v, %v", o, err)
					}
				}
			case "001": // and a failure: a conflict, the ack stands
				if _, err := d.Ack(ctx); err != nil {
					t.Error(err)
				}
				if o, err := d.Nack(ctx, 0); !errors.Is(err, broker.ErrConflict) || o.State != broker.Confirmed {
					t.Errorf("%v, %v", o, err)
				}
				return errors.New("after the ack")
			}
			return nil
		}, broker.ConsumeOptions{Workers: 1})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if r.reported(broker.ErrConflict) != 1 || len(r.hooked()) != 2 {
			t.Errorf("hook: %v", r.hooked())
		}
		if s := r.stats(); s != (memory.Stats{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

// A message without an ID, from a foreign producer, is counted by its position;
// and the memory of failures is bounded.
func TestConsumeCountsWithoutIDs(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{DeadLetter: "dead"}, memory.WithoutAttempts())
		r.publish(1)
		r.rcv.receive = func(_ context.Context, _ int, next func() ([]broker.Delivery, error)) ([]broker.Delivery, error) {
			ds, err := next()
			for i := range ds {
				ds[i].ID = ""
			}
			return ds, err
		}
		tries := 0
		stop := r.consume(func(context.Context, *broker.Delivery) error { tries++; return errors.New("no") }, broker.ConsumeOptions{MaxAttempts: 3})
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if tries != 3 || len(r.deadLetters()) != 1 {
			t.Errorf("%d tries, hook: %v", tries, r.hooked())
		}
	})
}
