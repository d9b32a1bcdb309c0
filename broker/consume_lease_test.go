package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// googleapis/google-cloud-go#1247: leases of what waits behind a slow handler
// are kept, and of a handler that takes several leases.
func TestConsumeExtendsLeases(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 10 * time.Second})
		r.publish(100)
		handled := map[string]int{}
		calls := 0
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			if s[0].Action == broker.Extend {
				calls++
			}
			return next()
		}
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			if d.Attempt.Number != 1 {
				t.Errorf("%s comes for the %dth time", d.ID, d.Attempt.Number)
			}
			if d.ID == "050" {
				time.Sleep(35 * time.Second)
			}
			time.Sleep(time.Second)
			handled[d.ID]++
			return ctx.Err()
		}, broker.ConsumeOptions{Workers: 1, MaxInFlight: 100, Batch: 100})
		time.Sleep(150 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(handled) != 100 || len(r.hooked()) > 0 || r.stats() != (memory.Stats{}) {
			t.Errorf("%d handled, left %+v, hook: %v", len(handled), r.stats(), r.hooked())
		}
		// One batch each two thirds of the lease, give or take.
		if calls == 0 || calls > 25 {
			t.Errorf("%d Extend calls in 136 s with a lease of 10 s", calls)
		}
	})
}

// When the lease is lost the handler's context ends with the cause, its result
// is not settled, and a message that lost its lease in the queue isn't handled.
func TestConsumeLeaseLost(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 10 * time.Second})
		r.publish(2)
		var lost, again atomic.Bool
		fault := r.b.Inject(memory.Fault{Op: memory.Settle, Kind: memory.Error})
		must(t, fault.Err())
		var got []string
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			got = append(got, d.ID)
			if d.ID == "000" && !lost.Load() {
				start := time.Now()
				<-ctx.Done()
				if d := time.Since(start); d < 9*time.Second || d > 11*time.Second {
					t.Errorf("the context ended after %s, the lease is 10s", d)
				}
				if !errors.Is(context.Cause(ctx), broker.ErrLeaseLost) {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
				lost.Store(true)
				fault.Remove()
				return nil // the effect is done, but too late
			}
			again.Store(again.Load() || d.ID == "000")
			return ctx.Err()
		}, broker.ConsumeOptions{Workers: 1})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if !again.Load() || r.stats() != (memory.Stats{}) {
			t.Errorf("not handled again; left %+v", r.stats())
		}
		if n := r.rcv.count("Ack 000"); n != 1 {
			t.Errorf("000 was acked %d times, want only the second delivery's", n)
		}
		if len(got) != 3 {
			t.Errorf("handled %v: 001 lost its lease in the queue and came again", got)
		}
		if n := r.reported(broker.ErrLeaseLost); n != 2 {
			t.Errorf("%d lost leases reported: %v", n, r.hooked())
		}
	})
}

// A heartbeat whose answer is lost is tried again in time.
func TestConsumeHeartbeatIsRetried(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 30 * time.Second})
		r.publish(1)
		fault := r.b.Inject(memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest, Times: 2})
		must(t, fault.Err())
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			if d.Attempt.Number > 1 {
				t.Error("delivered again")
			}
			time.Sleep(100 * time.Second)
			return ctx.Err()
		}, broker.ConsumeOptions{})
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if fault.Hits() != 2 || r.reported(broker.ErrUnknownOutcome) == 0 || r.stats() != (memory.Stats{}) {
			t.Errorf("%d hits, left %+v, hook: %v", fault.Hits(), r.stats(), r.hooked())
		}
	})
}

// dapr/components-contrib#3561: handlers as long as the heartbeat's period. No
// Extend follows an Ack on the wire, and nobody is told of a lost lease.
func TestConsumeNoExtendAfterAck(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 9 * time.Second})
		r.publish(300)
		done := map[string]bool{}
		extends := 0
		r.rcv.settle = func(ctx context.Context, s []broker.Settlement, next func() error) error {
			// What is on the wire at a time is ordered by when it was sent.
			r.mu.Lock()
			for i := range s {
				id := s[i].Delivery.ID
				switch {
				case s[i].Action == broker.Ack:
					done[id] = true
				case done[id]:
					t.Errorf("Extend %s after its Ack", id)
				default:
					extends++
				}
			}
			r.mu.Unlock()
			time.Sleep(time.Duration(len(s)%7) * time.Millisecond)
			return next()
		}
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			time.Sleep(6 * time.Second) // two thirds of the lease: when the heartbeat is due
			return nil
		}, broker.ConsumeOptions{Workers: 10})
		time.Sleep(4 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(r.hooked()) > 0 || r.stats() != (memory.Stats{}) || extends == 0 {
			t.Errorf("%d extends, left %+v, hook: %v", extends, r.stats(), r.hooked())
		}
	})
}

// A settle waits for the Extend of its message that is under way.
func TestConsumeAckWaitsForTheExtend(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 9 * time.Second})
		r.publish(1)
		extending := false
		r.rcv.settle = func(ctx context.Context, s []broker.Settlement, next func() error) error {
			if s[0].Action == broker.Extend {
				extending = true
				time.Sleep(time.Second)
				err := next()
				extending = false
				return err
			}
			if extending {
				t.Errorf("%s while an Extend is under way", s[0].Action)
			}
			return next()
		}
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			time.Sleep(6500 * time.Millisecond)
			return nil
		}, broker.ConsumeOptions{})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if r.rcv.count("Extend 000") != 1 || r.stats() != (memory.Stats{}) || len(r.hooked()) > 0 {
			t.Errorf("%v, left %+v, hook: %v", r.rcv.log, r.stats(), r.hooked())
		}
	})
}

// Where leases can't be extended the hook says so once, and a handler that is
// too slow is stopped as its lease ends.
func TestConsumeExtendUnsupported(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 10 * time.Second})
		r.publish(3)
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			if s[0].Action != broker.Extend {
				return next()
			}
			for i := range s {
				s[i].Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnsupported, nil, "extend")}
			}
			return s[0].Outcome.Err
		}
		first := true
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			if d.ID != "001" || !first {
				return nil
			}
			first = false
			start := time.Now()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), broker.ErrLeaseLost) || time.Since(start) < 9*time.Second || time.Since(start) > 10*time.Second {
				t.Errorf("after %s: %v", time.Since(start), context.Cause(ctx))
			}
			return ctx.Err()
		}, broker.ConsumeOptions{Workers: 1})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if r.reported(broker.ErrUnsupported) != 1 || r.stats() != (memory.Stats{}) {
			t.Errorf("left %+v, hook: %v", r.stats(), r.hooked())
		}
	})
}

// A delay that the broker doesn't know passes here, under the lease.
func TestConsumeNackDelayUnsupported(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 10 * time.Second})
		r.publish(1)
		nacks := 0
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			for i := range s {
				if s[i].Action == broker.Nack && s[i].Delay > 0 {
					nacks++
					s[i].Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnsupported, nil, "a nack with a delay")}
					return s[i].Outcome.Err // the handle stays held, as an adapter's Untouched keeps it
				}
			}
			return next()
		}
		start := time.Now()
		var at []string
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			at = append(at, fmt.Sprintf("%d:%s", d.Attempt.Number, time.Since(start)))
			if len(at) < 4 {
				return errors.New("not yet")
			}
			return nil
		}, broker.ConsumeOptions{Backoff: broker.Backoff{Min: 40 * time.Second, Max: time.Minute}, Rand: fullJitter})
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(at, " "), "1:0s 2:40s 3:1m40s 4:2m40s"; got != want {
			t.Errorf("attempts at %s, want %s", got, want)
		}
		if nacks != 3 || len(r.hooked()) != 3 || r.stats() != (memory.Stats{}) {
			t.Errorf("%d nacks, left %+v, hook: %v", nacks, r.stats(), r.hooked())
		}
	})
}

// What is held for its delay goes back at once when Consume ends.
func TestConsumeGivesBackWhatItHolds(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(1)
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			if s[0].Action == broker.Nack && s[0].Delay > 0 {
				s[0].Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnsupported, nil, "a nack with a delay")}
				return s[0].Outcome.Err
			}
			return next()
		}
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			return broker.Postpone(errors.New("later"), time.Hour)
		},
			broker.ConsumeOptions{})
		time.Sleep(10 * time.Minute)
		if s := r.stats(); s != (memory.Stats{InFlight: 1}) {
			t.Errorf("while it is held: %+v", s)
		}
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 0 || r.stats() != (memory.Stats{Ready: 1}) {
			t.Errorf("after %s: %+v", d, r.stats())
		}
	})
}

// A handler's context carries the caller's values, isn't ended by another
// message, and ends soon after its handler, at the latest when the worker is idle.
func TestConsumeHandlerContext(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(100)
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		defer cancel()
		var kept []context.Context
		done := make(chan error)
		go func() {
			done <- broker.Consume(ctx, r.rcv, func(ctx context.Context, d *broker.Delivery) error {
				if ctx.Value(key{}) != "value" || ctx.Err() != nil {
					t.Errorf("%s: %v, %v", d.ID, ctx.Value(key{}), ctx.Err())
				}
				kept = append(kept, ctx)
				return nil
			}, broker.ConsumeOptions{Workers: 1, ErrorHook: r.hook})
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		for i, ctx := range kept {
			if ctx.Err() == nil {
				t.Errorf("the context of message %d has not ended", i)
			}
		}
		if len(kept) != 100 {
			t.Errorf("%d handled", len(kept))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
