package servicebus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/bubbletest"
)

// gate is a link whose settles have their answers when it is opened.
type gate struct {
	puller
	open chan struct{}
}

func (g *gate) CompleteMessage(ctx context.Context, _ *azservicebus.ReceivedMessage, _ *azservicebus.CompleteMessageOptions) error {
	<-g.open
	return nil
}

// Workers stay for the Settles to come, as many as one of those needs, until the
// receiver has nothing to do for a lap. No Settle waits for the workers of another.
func TestWorkersStay(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := &receiver{c: &conn{opts: options{settleTimeout: time.Minute}}, life: t.Context(), cancel: func() {}, spare: make(chan *settling)}
		r.lap = time.AfterFunc(time.Hour, r.endLap)
		defer r.lap.Stop()
		g := &gate{open: make(chan struct{})}
		settle := func() (done chan struct{}) {
			s := newSlab(make([]*azservicebus.ReceivedMessage, 20), &inbox{in: g})
			ops := make([]driver.Op, len(s.items))
			for i := range ops {
				ops[i] = driver.Op{Settlement: &broker.Settlement{Delivery: new(broker.Delivery)}, Token: &driver.Token{Ref: &s.items[i]}}
			}
			done = make(chan struct{})
			go func() {
				defer close(done)
				r.Settle(t.Context(), ops)
				for i := range ops {
					if o := ops[i].Settlement.Outcome; o.State != broker.Confirmed {
						t.Errorf("op %d: %v", i, o)
					}
				}
			}()
			synctest.Wait()
			return done
		}
		answer := func(n int) {
			t.Helper()
			for range n {
				select {
				case g.open <- struct{}{}:
				default:
					t.Fatal("fewer settles are under way")
				}
				synctest.Wait()
			}
		}
		waiting := func(want int32) {
			t.Helper()
			synctest.Wait()
			if n := r.waiting.Load(); n != want {
				t.Fatalf("%d workers wait, want %d", n, want)
			}
		}
		one, other := settle(), settle()
		for range 2 * settleWorkers { // all at a time, of both
			select {
			case g.open <- struct{}{}:
			default:
				t.Fatal("fewer settles are under way")
			}
		}
		synctest.Wait()
		answer(2 * (20 - settleWorkers))
		<-one
		<-other
		waiting(settleWorkers - 1)
		done := settle()
		waiting(0) // they are at it
		answer(20)
		<-done
		waiting(settleWorkers - 1)
		r.endLap()
		waiting(0)
		r.hands.Wait()
		if len(r.calls) != 0 {
			t.Errorf("%d calls are still known", len(r.calls))
		}
	})
}

// The lap's timer isn't set anew for each pull: one that began later lasts for its
// own lap, and the grace, for this link is none of the places that an attempt knows.
func TestLapEnds(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := &receiver{c: &conn{opts: options{now: time.Now}}, lease: time.Minute, life: t.Context(), open: t.Context(), spare: make(chan *settling)}
		r.lap = time.AfterFunc(time.Hour, r.endLap)
		defer r.lap.Stop()
		l := &lasting{last: time.Second}
		b := &inbox{in: l, ask: 1}
		begin := time.Now()
		pull := func(want time.Duration) {
			t.Helper()
			from := time.Now()
			_, _, err := r.pull(t.Context(), b, 1)
			if took := time.Since(from); took != want || (err == nil) != (want == l.last) {
				t.Errorf("a pull ended after %v (%v) with %v, want %v", took, time.Since(begin), err, want)
			}
			r.down = false
		}
		for range 20 { // past the first one's lap
			pull(time.Second)
		}
		l.last = time.Hour
		pull(15*time.Second + grace)
		time.Sleep(time.Hour) // nobody pulls
		pull(15*time.Second + grace)
		pull(15*time.Second + grace)
	})
}

// lasting is a link whose pulls last for a while.
type lasting struct {
	puller
	last time.Duration
}

func (l *lasting) ReceiveMessages(ctx context.Context, _ int, _ *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, l.last)
	defer cancel()
	<-ctx.Done()
	if ctx.Err() == context.DeadlineExceeded {
		return nil, nil
	}
	return nil, ctx.Err()
}
