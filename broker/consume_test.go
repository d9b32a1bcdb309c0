package broker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

func TestConsumeHandlesAndAcks(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(500, "a", "b", "", "c")
		var mu sync.Mutex
		seen := map[string]int{}
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[d.ID]++
			return ctx.Err()
		}, broker.ConsumeOptions{})
		synctest.Wait()
		if err := stop(); err != nil {
			t.Errorf("a plain cancel: %v", err)
		}
		if len(seen) != 500 {
			t.Errorf("%d messages handled", len(seen))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s handled %d times", id, n)
			}
		}
		if s := r.stats(); s != (memory.Stats{}) {
			t.Errorf("left: %+v", s)
		}
		if errs := r.hooked(); len(errs) > 0 {
			t.Errorf("hook: %v", errs)
		}
	})
}

// dapr/components-contrib#3922: with one worker there are never two handlers.
func TestConsumeWorkersAreBounded(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{})
				r.publish(30)
				var now, most, hand atomic.Int32
				r.rcv.receive = func(_ context.Context, _ int, next func() ([]broker.Delivery, error)) ([]broker.Delivery, error) {
					ds, err := next()
					hand.Store(max(hand.Load(), int32(r.stats().InFlight)))
					return ds, err
				}
				start := time.Now()
				var finished atomic.Int32
				stop := r.consume(func(context.Context, *broker.Delivery) error {
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(200 * time.Millisecond)
					now.Add(-1)
					finished.Add(1)
					return nil
				}, broker.ConsumeOptions{Workers: workers, MaxInFlight: 5})
				time.Sleep(time.Duration(30/workers)*200*time.Millisecond + time.Millisecond)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if int(most.Load()) != workers {
					t.Errorf("%d handlers at a time, want %d", most.Load(), workers)
				}
				if finished.Load() != 30 {
					t.Errorf("%d handled after %s", finished.Load(), time.Since(start))
				}
				if hand.Load() > 5 {
					t.Errorf("%d deliveries in hand, want no more than 5", hand.Load())
				}
			})
		})
	}
}

// dapr/components-contrib#1729: the ack of a handler that was running when the
// context ended is carried out. googleapis/google-cloud-go#13114: the rest comes
// back at once.
func TestConsumeDrains(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(20)
		var handled []string
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			time.Sleep(5 * time.Second)
			if ctx.Err() != nil {
				t.Errorf("%s: the context of a running handler has ended: %v", d.ID, context.Cause(ctx))
			}
			handled = append(handled, d.ID)
			return nil
		}, broker.ConsumeOptions{Workers: 1, MaxInFlight: 10, Batch: 10})
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 4*time.Second {
			t.Errorf("drained in %s, want as long as the handler takes", d)
		}
		if got := fmt.Sprint(handled); got != "[000]" {
			t.Errorf("handled %s", got)
		}
		if s := r.stats(); s != (memory.Stats{Ready: 19}) {
			t.Errorf("after the drain: %+v", s)
		}
	})
}

// googleapis/google-cloud-go#4718: whenever the cancel comes, the value is nil,
// and no message is lost or left in a lease.
func TestConsumeCancelledAtAnyTime(t *testing.T) {
	for seed := range uint64(60) {
		bubbletest.Run(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			r := newRig(t, broker.Entity{})
			var handled atomic.Int32
			go func() {
				for i := range 40 {
					_, err := r.pub.Publish(t.Context(), broker.Message{ID: fmt.Sprint(i)}, broker.Message{ID: fmt.Sprint(i, "k"), Key: "k"})
					if err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			}()
			naps := make([]time.Duration, 100)
			for i := range naps {
				naps[i] = time.Duration(rnd.IntN(5000)) * time.Microsecond
			}
			stop := r.consume(func(context.Context, *broker.Delivery) error {
				time.Sleep(naps[int(handled.Add(1))%len(naps)])
				return nil
			}, broker.ConsumeOptions{Workers: 4})
			time.Sleep(time.Duration(rnd.IntN(60_000)) * time.Microsecond)
			if err := stop(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			time.Sleep(time.Second)
			s := r.stats()
			if s.InFlight != 0 || s.Delayed != 0 || s.Ready+int(handled.Load()) != 80 {
				t.Errorf("seed %d: %d handled, left %+v", seed, handled.Load(), s)
			}
		})
	}
}

// dapr/components-contrib#3849 and #3529: a handler that is cut by the end is no
// failed attempt, whatever it makes of its context's error.
func TestConsumeDrainTimeout(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{DeadLetter: "dead"})
		r.publish(1)
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			<-ctx.Done()
			return broker.Poison(ctx.Err())
		}, broker.ConsumeOptions{MaxAttempts: 1, DrainTimeout: 3 * time.Second})
		synctest.Wait()
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("took %s", d)
		}
		if s := r.stats(); s != (memory.Stats{Ready: 1}) {
			t.Errorf("left: %+v", s)
		}
		if ds := r.deadLetters(); len(ds) != 0 {
			t.Errorf("dead-lettered: %v", ds)
		}
		if r.reported(context.Canceled) != 1 {
			t.Errorf("hook: %v", r.hooked())
		}
	})
}

// A handler that ignores its context doesn't keep Consume for ever.
func TestConsumeLeavesAStuckHandler(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(3)
		release := make(chan struct{})
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			if d.ID == "001" {
				<-release
			}
			return nil
		}, broker.ConsumeOptions{DrainTimeout: 3 * time.Second, SettleTimeout: 2 * time.Second})
		synctest.Wait()
		start := time.Now()
		err := stop()
		if !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("took %s", d)
		}
		close(release)
		synctest.Wait()
		if n := r.rcv.count("Ack 001"); n != 0 {
			t.Error("the late result was settled")
		}
	})
}

// dapr/js-sdk#720: a handler that panics or ends its goroutine has failed; the
// process and the worker survive, and the message comes again.
func TestConsumeSurvivesTheHandler(t *testing.T) {
	for _, way := range []string{"panic", "goexit", "error"} {
		t.Run(way, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{})
				r.publish(3)
				tries := map[string]int{}
				boom := errors.New("boom")
				stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
					tries[d.ID]++
					if d.ID == "001" && tries[d.ID] == 1 {
						switch way {
						case "panic":
							panic(boom)
						case "goexit":
							runtime.Goexit()
						case "error":
							return boom
						}
					}
					return nil
				}, broker.ConsumeOptions{Workers: 1})
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if fmt.Sprint(tries) != "map[000:1 001:2 002:1]" || r.stats() != (memory.Stats{}) {
					t.Errorf("%v, left %+v", tries, r.stats())
				}
				errs := r.hooked()
				if len(errs) != 1 || !strings.Contains(errs[0].Error(), `handle "001", attempt 1`) {
					t.Fatalf("hook: %v", errs)
				}
				var p *broker.PanicError
				switch way {
				case "panic":
					if !errors.As(errs[0], &p) || !strings.Contains(errs[0].Error(), "consume_test.go") || !errors.Is(errs[0], boom) {
						t.Errorf("hook: %v", errs[0])
					}
				case "error":
					if !errors.Is(errs[0], boom) {
						t.Errorf("hook: %v", errs[0])
					}
				}
			})
		})
	}
}

func TestConsumeRefusesNonsense(t *testing.T) {
	r := &spy{}
	h := func(context.Context, *broker.Delivery) error { return nil }
	for name, err := range map[string]error{
		"no receiver": broker.Consume(t.Context(), nil, h, broker.ConsumeOptions{}),
		"no handler":  broker.Consume(t.Context(), r, nil, broker.ConsumeOptions{}),
		"semantics":   broker.Consume(t.Context(), r, h, broker.ConsumeOptions{Semantics: 7}),
	} {
		if !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(r.asked) > 0 {
		t.Error("something was received")
	}
}
