package broker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// Whatever fails, the successes of a key are in its order, also over redelivery.
func TestConsumeOrderPerKey(t *testing.T) {
	for seed := range uint64(20) {
		bubbletest.Run(t, func(t *testing.T) {
			r := newRig(t, broker.Entity{Ordered: true, Lease: 5 * time.Second})
			r.publish(120, "a", "b", "c", "")
			rnd := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			order := map[string][]string{}
			running := map[string]bool{}
			stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
				mu.Lock()
				if d.Key != "" && running[d.Key] {
					t.Errorf("two handlers of key %s", d.Key)
				}
				running[d.Key] = true
				nap, dice := time.Duration(rnd.IntN(50))*time.Millisecond, rnd.IntN(10)
				mu.Unlock()
				time.Sleep(nap)
				mu.Lock()
				defer mu.Unlock()
				running[d.Key] = false
				switch dice {
				case 0:
					return errors.New("failed")
				case 1:
					return broker.Postpone(errors.New("later"), 30*time.Millisecond)
				case 2:
					panic("oh")
				}
				order[d.Key] = append(order[d.Key], d.ID)
				return nil
			}, broker.ConsumeOptions{Workers: 6, MaxInFlight: 60, Batch: 30, Backoff: broker.Backoff{Min: 50 * time.Millisecond, Max: time.Second}})
			time.Sleep(10 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			for _, key := range []string{"a", "b", "c"} {
				if ids := order[key]; len(ids) != 30 || !slices.IsSorted(ids) {
					t.Errorf("seed %d, key %s: %v", seed, key, ids)
				}
			}
			if len(order[""]) != 30 || r.stats() != (memory.Stats{}) {
				t.Errorf("seed %d: %d without a key, left %+v", seed, len(order[""]), r.stats())
			}
		})
	}
}

// When a message goes back to the broker, the later ones of its key that were in
// hand, or came while the nack was under way, aren't handled before the failed one; other keys go on.
func TestConsumeHoldsBackTheKey(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		// This broker keeps no order over redelivery by itself.
		r := newRig(t, broker.Entity{})
		r.publish(6, "k", "other")
		overtaken := false
		r.rcv.settle = func(ctx context.Context, s []broker.Settlement, next func() error) error {
			if s[0].Action == broker.Nack && !overtaken {
				overtaken = true
				// While the nack is on its way the broker hands out more of the key.
				_, err := r.pub.Publish(ctx, broker.Message{ID: "late", Key: "k"})
				if err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			return next()
		}
		var order []string
		failed := false
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "000" && !failed {
				failed = true
				return broker.Postpone(errors.New("failed"), time.Second)
			}
			if d.Key == "k" {
				order = append(order, d.ID)
			}
			return nil
		}, broker.ConsumeOptions{Workers: 1, Backoff: broker.Backoff{Max: 100 * time.Millisecond}})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(order); got != "[000 002 004 late]" {
			t.Errorf("handled %s", got)
		}
		if !overtaken || r.stats() != (memory.Stats{}) {
			t.Errorf("left %+v", r.stats())
		}
	})
}

// What a Receive brings that was under way as the nack was settled may have left
// the broker before it, and waits too; what the next one brings doesn't.
func TestConsumeHoldsBackWhatOvertook(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(1, "k")
		calls := 0
		r.rcv.receive = func(ctx context.Context, _ int, next func() ([]broker.Delivery, error)) ([]broker.Delivery, error) {
			calls++
			if calls != 2 {
				return next()
			}
			if _, err := r.pub.Publish(ctx, broker.Message{ID: "late", Key: "k"}); err != nil {
				t.Error(err)
			}
			ds, err := next()
			time.Sleep(time.Second) // on the wire, while 000 fails and its nack is settled
			return ds, err
		}
		var order []string
		failed := false
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "000" && !failed {
				failed = true
				time.Sleep(500 * time.Millisecond)
				return broker.Postpone(errors.New("failed"), 10*time.Second)
			}
			order = append(order, d.ID)
			return nil
		}, broker.ConsumeOptions{Workers: 1, Backoff: broker.Backoff{Max: time.Second}})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(order); got != "[000 late]" || r.rcv.count("Nack late") != 1 {
			t.Errorf("handled %s; %q", got, r.rcv.log)
		}
	})
}

// A key isn't blocked for ever by a message that doesn't come back.
func TestConsumeFreesAKey(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(1, "k")
		var order []string
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "000" {
				time.Sleep(time.Millisecond) // until the next Receive has begun
				return broker.Postpone(nil, time.Hour)
			}
			order = append(order, d.ID)
			return nil
		}, broker.ConsumeOptions{})
		time.Sleep(time.Second)
		for i := range 3 {
			if _, err := r.pub.Publish(t.Context(), broker.Message{ID: fmt.Sprint("later", i), Key: "k"}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		// The first comes by the Receive that was under way as 000 was given back.
		if got := fmt.Sprint(order); got != "[later1 later2]" || r.rcv.count("Nack later0") != 1 {
			t.Errorf("handled %s; %q", got, r.rcv.log)
		}
	})
}

// The later ones that were given back unhandled have not spent an attempt.
func TestConsumeGivenBackCostsNoAttempt(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Ordered: true, DeadLetter: "dead"})
		r.publish(2, "k")
		tries := map[string]int{}
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			tries[d.ID]++
			if tries[d.ID] < 3 {
				return errors.New("not yet")
			}
			return nil
		}, broker.ConsumeOptions{MaxAttempts: 3, MaxInFlight: 10, Batch: 10})
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(tries) != "map[000:3 001:3]" || len(r.deadLetters()) != 0 {
			t.Errorf("%v, hook: %v", tries, r.hooked())
		}
	})
}

// A dead-lettered message doesn't hold up its key.
func TestConsumeDeadLetterFreesTheKey(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Ordered: true, DeadLetter: "dead"})
		r.publish(3, "k")
		var order []string
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "000" {
				return errors.New("never")
			}
			order = append(order, d.ID)
			return nil
		}, broker.ConsumeOptions{MaxAttempts: 2})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(order) != "[001 002]" || len(r.deadLetters()) != 1 || r.stats() != (memory.Stats{}) {
			t.Errorf("%v, left %+v", order, r.stats())
		}
	})
}

// Unordered spreads one key over the workers.
func TestConsumeUnordered(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(8, "k")
		start := time.Now()
		var last atomic.Int64
		stop := r.consume(func(context.Context, *broker.Delivery) error {
			time.Sleep(time.Second)
			last.Store(int64(time.Since(start)))
			return nil
		}, broker.ConsumeOptions{Workers: 8, Unordered: true})
		time.Sleep(time.Minute)
		if err := stop(); err != nil || last.Load() != int64(time.Second) {
			t.Errorf("%v after %s", err, time.Duration(last.Load()))
		}
	})
}

func TestConsumeReceiveErrors(t *testing.T) {
	for _, kind := range []error{broker.ErrUnavailable, broker.ErrBusy, broker.ErrRefused, errors.New("no idea")} {
		t.Run(kind.Error(), func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{})
				r.publish(1)
				var at []time.Duration
				start := time.Now()
				r.rcv.receive = func(_ context.Context, _ int, next func() ([]broker.Delivery, error)) ([]broker.Delivery, error) {
					if at = append(at, time.Since(start)); len(at) <= 4 {
						return nil, broker.Errorf(kind, nil, "fake")
					}
					return next()
				}
				handled := false
				stop := r.consume(func(context.Context, *broker.Delivery) error { handled = true; return nil },
					broker.ConsumeOptions{Backoff: broker.Backoff{Min: time.Second, Max: 3 * time.Second}, Rand: fullJitter})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if got := fmt.Sprint(at[:5]); got != "[0s 1s 3s 6s 9s]" || !handled {
					t.Errorf("asked at %s, handled %v", got, handled)
				}
				if r.reported(kind) != 4 {
					t.Errorf("hook: %v", r.hooked())
				}
			})
		})
	}
	for _, kind := range []error{broker.ErrClosed, broker.ErrNotFound, broker.ErrUnauthorized, broker.ErrInvalid, broker.ErrConflict, broker.ErrUnsupported} {
		t.Run(kind.Error(), func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{})
				r.publish(1)
				r.rcv.receive = func(_ context.Context, _ int, next func() ([]broker.Delivery, error)) ([]broker.Delivery, error) {
					if len(r.rcv.asked) > 1 {
						time.Sleep(time.Millisecond) // the handler has begun
						return nil, broker.Errorf(kind, nil, "fake")
					}
					return next()
				}
				handled := false
				err := broker.Consume(t.Context(), r.rcv, func(context.Context, *broker.Delivery) error {
					time.Sleep(time.Second)
					handled = true
					return nil
				}, broker.ConsumeOptions{ErrorHook: r.hook})
				if !errors.Is(err, kind) {
					t.Errorf("%v", err)
				}
				if !handled || r.stats() != (memory.Stats{}) {
					t.Errorf("what was in hand was dropped: %v, %+v", handled, r.stats())
				}
			})
		})
	}
}

// An empty answer without an error makes no hot loop.
func TestConsumeEmptyReceive(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		n := 0
		r.rcv.receive = func(context.Context, int, func() ([]broker.Delivery, error)) ([]broker.Delivery, error) {
			n++
			return nil, nil
		}
		stop := r.consume(func(context.Context, *broker.Delivery) error { return nil }, broker.ConsumeOptions{})
		time.Sleep(time.Hour)
		if err := stop(); err != nil || n > 1000 {
			t.Errorf("%v, %d calls in an hour", err, n)
		}
	})
}
