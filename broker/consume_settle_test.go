package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// Lost answers, cut connections and errors of settles: each message is handled
// once where the handle survives, and none is left.
func TestConsumeSettleFaults(t *testing.T) {
	tests := []struct {
		name  string
		fault memory.Fault
		again bool // messages may come again, for the handles are gone
	}{
		{"the answer is lost", memory.Fault{Kind: memory.LoseResponse, Times: 1}, false},
		{"the request is lost", memory.Fault{Kind: memory.LoseRequest, Times: 1}, false},
		{"unavailable", memory.Fault{Kind: memory.Error, Times: 3}, false},
		{"the connection is cut", memory.Fault{Kind: memory.Cut, Times: 1}, true},
		{"late", memory.Fault{Kind: memory.Delay, Delay: 3 * time.Second, Times: 1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, broker.Entity{Lease: time.Minute})
				r.publish(20, "", "k")
				tt.fault.Op = memory.Settle
				fault := r.b.Inject(tt.fault)
				must(t, fault.Err())
				var mu sync.Mutex
				handled := map[string]int{}
				stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					handled[d.ID]++
					return nil
				}, broker.ConsumeOptions{SettleTimeout: 5 * time.Second})
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				for id, n := range handled {
					if n > 1 && !tt.again {
						t.Errorf("%s handled %d times", id, n)
					}
				}
				if len(handled) != 20 || r.stats() != (memory.Stats{}) || fault.Hits() != tt.fault.Times {
					t.Errorf("%d handled, %d hits, left %+v", len(handled), fault.Hits(), r.stats())
				}
				if !tt.again && len(r.hooked()) > 0 {
					t.Errorf("hook: %v", r.hooked())
				}
				if tt.again && r.reported(broker.ErrUnknownOutcome)+r.reported(broker.ErrLeaseLost) == 0 {
					t.Errorf("nobody was told: %v", r.hooked())
				}
			})
		})
	}
}

// A broker that never answers a settle: the hook is told, Consume ends in time.
func TestConsumeSettleNeverAnswered(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: time.Minute})
		r.publish(3)
		must(t, r.b.Inject(memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest}).Err())
		stop := r.consume(func(context.Context, *broker.Delivery) error { return nil },
			broker.ConsumeOptions{DrainTimeout: 3 * time.Second, SettleTimeout: 2 * time.Second})
		time.Sleep(5 * time.Second)
		start := time.Now()
		err := stop()
		if !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("took %s", d)
		}
	})
	// While it goes on, each message is given up once its lease has ended.
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 20 * time.Second})
		r.publish(1)
		fault := r.b.Inject(memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest})
		must(t, fault.Err())
		handled := 0
		stop := r.consume(func(context.Context, *broker.Delivery) error { handled++; return nil },
			broker.ConsumeOptions{MaxInFlight: 1, SettleTimeout: 3 * time.Second})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if handled != 2 || r.reported(broker.ErrUnknownOutcome) != 1 {
			t.Errorf("handled %d times, hook: %v", handled, r.hooked())
		}
		fault.Remove()
		time.Sleep(time.Minute)
		if err := stop(); err != nil || r.stats() != (memory.Stats{}) {
			t.Errorf("%v, left %+v", err, r.stats())
		}
	})
}

// A message that can't be dead-lettered is given back with the longest delay and
// the hook told; it is never acked.
func TestConsumeDeadLetterImpossible(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{}) // no dead-letter topic: memory says ErrUnsupported or ErrNotFound
		r.publish(1)
		var at []time.Duration
		start := time.Now()
		stop := r.consume(func(context.Context, *broker.Delivery) error {
			at = append(at, time.Since(start))
			return broker.Poison(errors.New("bad"))
		}, broker.ConsumeOptions{Backoff: broker.Backoff{Min: time.Second, Max: 20 * time.Second}})
		time.Sleep(50 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(at); got != "[0s 20s 40s]" {
			t.Errorf("attempts at %s", got)
		}
		if r.rcv.count("Ack 000") != 0 || r.stats().Delayed != 1 {
			t.Errorf("%v, left %+v", r.rcv.log, r.stats())
		}
		if n := len(r.hooked()); n != 6 {
			t.Errorf("hook: %v", r.hooked())
		}
	})
}

// Pending is done with, asked after along with later settles, and at the end.
func TestConsumePending(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(40)
		// A cumulative commit: an ack takes effect once all before it are acked.
		acked := map[string]bool{}
		commit := 0
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			if err := next(); err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for i := range s {
				acked[s[i].Delivery.ID] = acked[s[i].Delivery.ID] || s[i].Action == broker.Ack
			}
			for acked[fmt.Sprintf("%03d", commit)] {
				commit++
			}
			for i := range s {
				if s[i].Delivery.ID >= fmt.Sprintf("%03d", commit) {
					s[i].Outcome.State = broker.Pending
				}
			}
			return nil
		}
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if d.ID == "000" {
				time.Sleep(10 * time.Second)
			}
			return nil
		}, broker.ConsumeOptions{Workers: 4})
		time.Sleep(5 * time.Second)
		r.mu.Lock()
		if commit != 0 || len(acked) != 39 {
			t.Errorf("%d acks, committed %d", len(acked), commit)
		}
		r.mu.Unlock()
		time.Sleep(10 * time.Second)
		again := 0
		for i := range 40 {
			again += min(1, r.rcv.count(fmt.Sprintf("Ack %03d", i))-1)
		}
		if again < 8 {
			t.Errorf("%d pending acks were asked after along with the last", again)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if commit != 40 || len(r.hooked()) > 0 {
			t.Errorf("committed %d, hook: %v", commit, r.hooked())
		}
	})
}

// At the end it is asked as long as that brings answers.
func TestConsumePendingUntilTheEnd(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(5)
		calls := 0
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			err := next()
			r.mu.Lock()
			defer r.mu.Unlock()
			calls++
			for i := range s { // one more is confirmed with each call
				if s[i].Delivery.ID >= fmt.Sprintf("%03d", calls-1) {
					s[i].Outcome.State = broker.Pending
				}
			}
			return err
		}
		stop := r.consume(func(context.Context, *broker.Delivery) error { return nil }, broker.ConsumeOptions{Workers: 1})
		time.Sleep(time.Second)
		r.mu.Lock()
		before := calls
		r.mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if calls != 6 || before >= calls || len(r.hooked()) > 0 {
			t.Errorf("%d calls, %d of them before the end; hook: %v", calls, before, r.hooked())
		}
	})
}

// What stays pending at the end is told, once.
func TestConsumePendingAtTheEnd(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(5)
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			err := next()
			for i := range s {
				s[i].Outcome.State = broker.Pending
			}
			return err
		}
		stop := r.consume(func(context.Context, *broker.Delivery) error { return nil }, broker.ConsumeOptions{})
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil || time.Since(start) > time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if r.reported(broker.ErrUnknownOutcome) != 1 || len(r.hooked()) != 1 {
			t.Errorf("hook: %v", r.hooked())
		}
	})
}

func TestConsumeAtMostOnce(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{Lease: 5 * time.Second})
		r.publish(40)
		handled := map[string]int{}
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			if s := r.rcv.count("Ack " + d.ID); s != 1 {
				t.Errorf("%s is handled after %d acks", d.ID, s)
			}
			r.mu.Lock()
			handled[d.ID]++
			r.mu.Unlock()
			time.Sleep(7 * time.Second) // longer than the lease, which is over with
			switch d.ID {
			case "003":
				return errors.New("failed")
			case "004":
				panic("no")
			case "005":
				return broker.Poison(errors.New("bad"))
			}
			return nil
		}, broker.ConsumeOptions{Semantics: broker.AtMostOnce, Workers: 2, MaxAttempts: 1})
		time.Sleep(100 * time.Second)
		r.mu.Lock()
		before := len(handled)
		r.mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
		for id, n := range handled {
			if n != 1 {
				t.Errorf("%s handled %d times", id, n)
			}
		}
		if s := r.stats(); s.Ready+len(handled) != 40 || s.InFlight != 0 || before < 20 {
			t.Errorf("%d handled, %d before the end, left %+v", len(handled), before, s)
		}
		if len(r.hooked()) != 3 {
			t.Errorf("hook: %v", r.hooked())
		}
		if i := slices.IndexFunc(r.rcv.log, func(l string) bool { return l[:3] != "Ack" }); i >= 0 {
			t.Errorf("a settle other than an ack: %s", r.rcv.log[i])
		}
	})
}

// At most once what isn't confirmed isn't handled, and nothing is handled twice.
func TestConsumeAtMostOnceUnconfirmed(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(4)
		r.rcv.settle = func(_ context.Context, s []broker.Settlement, next func() error) error {
			err := next()
			for i := range s {
				switch s[i].Delivery.ID {
				case "001":
					s[i].Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "fake")}
				case "002":
					if r.rcv.count("Ack 002") < 3 {
						s[i].Outcome = broker.Outcome{State: broker.Pending}
					}
				case "003":
					s[i].Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, nil, "fake")}
				}
			}
			return err
		}
		var handled []string
		stop := r.consume(func(_ context.Context, d *broker.Delivery) error {
			handled = append(handled, d.ID)
			if n := r.rcv.count("Ack " + d.ID); d.ID == "002" && n != 3 {
				t.Errorf("002 is handled after %d acks, confirmed by the third", n)
			}
			return nil
		}, broker.ConsumeOptions{Semantics: broker.AtMostOnce, Workers: 1, MaxInFlight: 4})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(handled) != "[000 002]" {
			t.Errorf("handled %v", handled)
		}
		if r.reported(broker.ErrUnknownOutcome) != 1 || r.reported(broker.ErrLeaseLost) != 1 {
			t.Errorf("hook: %v", r.hooked())
		}
	})
}

// At most once what is acked as the end comes is handled, within the timeout.
func TestConsumeAtMostOnceDrain(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, broker.Entity{})
		r.publish(10)
		var handled int
		stop := r.consume(func(ctx context.Context, d *broker.Delivery) error {
			select {
			case <-time.After(2 * time.Second):
				handled++
			case <-ctx.Done():
			}
			return ctx.Err()
		}, broker.ConsumeOptions{Semantics: broker.AtMostOnce, Workers: 1, MaxInFlight: 10, Batch: 10, DrainTimeout: 8 * time.Second})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if handled != 4 || r.stats() != (memory.Stats{}) || len(r.hooked()) != 6 {
			t.Errorf("%d handled, left %+v, hook: %v", handled, r.stats(), r.hooked())
		}
	})
}
