package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// TestLate: what the far side may have stored, and may have forgotten, is not sent
// again unless somebody says so.
func TestLate(t *testing.T) {
	for _, policy := range []bridge.Policy{bridge.Stop, bridge.DeadLetter, bridge.Send} {
		t.Run(policy.String(), func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				r := newRig(t, entity, memory.WithWindow(time.Minute))
				defer r.close()
				r.publish(2, "a")
				// Stored, and not heard of before the window is over.
				r.to.Inject(memory.Fault{Op: memory.Publish, Kind: memory.LoseResponse, Times: 1})
				began := time.Now()
				far := &sick{Publisher: r.pub, judge: func(m *broker.Message, call int) error {
					if call > 1 && time.Since(began) < 2*time.Minute {
						return broker.Errorf(broker.ErrUnavailable, nil, "publish %q", m.ID)
					}
					return nil
				}}
				b := bridge.New(r.rcv, far, bridge.Options{Idle: 30 * time.Second, Late: policy, ErrorHook: r.hook, PublishTimeout: 3 * time.Second})
				err := b.Run(t.Context())
				var stop *bridge.StopError
				n := map[bridge.Policy]int{bridge.Stop: 1, bridge.DeadLetter: 2, bridge.Send: 3}[policy]
				if ds := r.arrived(); len(ds) != n {
					t.Errorf("%d messages: %v, %v", len(ds), ids(ds, "a"), b.Stats())
				}
				switch {
				case policy == bridge.Stop && (!errors.As(err, &stop) || !stop.Late || stop.ID != "000" || !errors.Is(err, broker.ErrWindowExceeded)),
					policy != bridge.Stop && err != nil:
					t.Error(err)
				}
				if s := b.Stats(); (policy == bridge.DeadLetter) != (s.DeadLettered == 1) {
					t.Errorf("%v", s)
				}
			})
		})
	}
}

// TestLateOverLeases: the first attempt counts also when the lease was lost meanwhile.
func TestLateOverLeases(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity, memory.WithWindow(time.Minute))
		defer r.close()
		r.publish(1, "a")
		r.to.Inject(memory.Fault{Op: memory.Publish, Kind: memory.LoseResponse, Times: 1})
		r.from.Inject(memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest}) // no lease is extended
		far := &sick{Publisher: r.pub, judge: func(m *broker.Message, call int) error {
			if call > 1 {
				return broker.Errorf(broker.ErrUnavailable, nil, "publish %q", m.ID)
			}
			return nil
		}}
		b := bridge.New(r.rcv, far, bridge.Options{Patience: time.Hour, ErrorHook: r.hook, PublishTimeout: 3 * time.Second, SettleTimeout: time.Second})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := b.Run(ctx)
		var stop *bridge.StopError
		if !errors.As(err, &stop) || !stop.Late || time.Since(began) > 2*time.Minute || b.Stats().Lost == 0 {
			t.Errorf("after %v: %v, %v", time.Since(began), err, b.Stats())
		}
	})
}

// TestLostLease: what is behind a message whose lease is lost goes back with it.
func TestLostLease(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		e := entity
		e.Ordered = false
		r := newRig(t, e)
		defer r.close()
		lost := r.from.Inject(memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest}) // no lease is extended
		began := time.Now()
		far := &sick{Publisher: r.pub, judge: func(m *broker.Message, _ int) error {
			if time.Since(began) < 12*time.Second {
				return broker.Errorf(broker.ErrUnavailable, nil, "publish %q", m.ID)
			}
			return nil
		}}
		b := bridge.New(r.rcv, far, bridge.Options{Idle: 30 * time.Second, ErrorHook: r.hook, SettleTimeout: 2 * time.Second})
		ended := make(chan error)
		go func() { ended <- b.Run(t.Context()) }()
		for i := range 3 {
			_, err := r.in.Publish(t.Context(), broker.Message{ID: fmt.Sprintf("%03d", i), Key: "a"})
			must(t, err)
			time.Sleep(3 * time.Second)
		}
		time.Sleep(1500 * time.Millisecond) // the first lease is over
		lost.Remove()
		must(t, <-ended)
		exact(t, r.arrived(), 3)
		if s := b.Stats(); s.Lost != 1 || s.GivenBack != 2 || s.Received != 6 {
			t.Errorf("%+v", s)
		}
	})
}
