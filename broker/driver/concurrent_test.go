package driver_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Many settle one delivery at the same time: one frame, and nobody is told what
// isn't so.
func TestFenceConcurrent(t *testing.T) {
	for round := range 200 {
		f := newFake()
		f.deliver(4, nil)
		r := f.receiver(t)
		var frames atomic.Int32
		f.settle = func(_ context.Context, ops []driver.Op) {
			for i := range ops {
				if ops[i].Settlement.Action != broker.Extend && ops[i].Token.Tag%4 == 1 {
					frames.Add(1)
				}
				ops[i].Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
				if ops[i].Settlement.Action == broker.Extend {
					ops[i].Settlement.Outcome.Lease = f.Now().Add(lease)
				}
			}
		}
		ds := receive(t, r, 4)
		var wait sync.WaitGroup
		var acked, nacked atomic.Int32
		for g := range 8 {
			wait.Go(func() {
				action := []broker.Action{broker.Ack, broker.Nack, broker.Extend}[(g+round)%3]
				s := []broker.Settlement{{Delivery: &ds[0], Action: action}, {Delivery: &ds[1+g%3]}}
				r.Settle(t.Context(), s)
				o := s[0].Outcome
				switch {
				case action == broker.Extend:
					if o.State != broker.Confirmed && !errors.Is(o.Err, broker.ErrConflict) {
						t.Errorf("%s: %v", action, o)
					}
				case o.Err == nil && action == broker.Ack:
					acked.Add(1)
				case o.Err == nil:
					nacked.Add(1)
				case !errors.Is(o.Err, broker.ErrConflict):
					t.Errorf("%s: %v", action, o)
				}
				if o := s[1].Outcome; o.Err != nil && !errors.Is(o.Err, broker.ErrConflict) {
					t.Errorf("%v", o)
				}
			})
		}
		wait.Wait()
		if frames.Load() != 1 || acked.Load() > 0 && nacked.Load() > 0 || acked.Load()+nacked.Load() == 0 {
			t.Fatalf("%d terminal frames, %d acked, %d nacked", frames.Load(), acked.Load(), nacked.Load())
		}
	}
}

// An Ack is answered while an Extend of the same delivery is still on its way.
func TestFenceAckDuringExtend(t *testing.T) {
	f := newFake()
	f.deliver(1, nil)
	r := f.receiver(t)
	d := receive(t, r, 1)[0]
	begun, release := make(chan struct{}), make(chan struct{})
	f.settle = func(_ context.Context, ops []driver.Op) {
		ops[0].Settlement.Outcome = confirmed
		if ops[0].Settlement.Action == broker.Extend {
			close(begun)
			<-release
			ops[0].Settlement.Outcome = leaseLost // for the message is gone
		}
	}
	extended := make(chan broker.Outcome)
	go func() {
		o, _ := d.Extend(context.Background(), 0)
		extended <- o
	}()
	<-begun
	if o, err := d.Ack(t.Context()); o.State != broker.Confirmed || err != nil {
		t.Errorf("%v, %v", o, err)
	}
	close(release)
	if o := <-extended; o.State != broker.LeaseLost {
		t.Errorf("%v", o)
	}
	if o, err := d.Ack(t.Context()); o.State != broker.Confirmed || err != nil {
		t.Errorf("the ack stands: %v, %v", o, err)
	}
}
