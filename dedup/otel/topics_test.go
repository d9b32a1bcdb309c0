package otel_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/internal/bubbletest"
)

// picky is a publisher that answers by the message's ID.
type picky struct{ broker.Publisher }

func (p picky) Limits() broker.Limits { return broker.Limits{Window: 10 * time.Minute} }

func (p picky) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	rs := make([]broker.Receipt, len(msgs))
	for i := range msgs {
		switch msgs[i].ID {
		case "stored":
			rs[i].Verdict = broker.Stored
		case "duplicate":
			rs[i].Verdict = broker.Duplicate
		case "accepted":
			rs[i].Verdict = broker.Accepted
		case "busy":
			rs[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.ErrBusy}
		case "large":
			rs[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.ErrTooLarge}
		case "late":
			rs[i].Err = broker.ErrWindowExceeded
		default:
			rs[i].Err = broker.ErrUnknownOutcome
		}
	}
	return rs, nil
}

// TestRelay: what the broker said of each message, and what is left in the outbox.
func TestRelay(t *testing.T) {
	r := newRig(t)
	var clock sync.Mutex
	now := time.Now()
	store := openStore(t, sqlite.Options{Now: func() time.Time { clock.Lock(); defer clock.Unlock(); return now }})
	out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{})
	relay := dedup.NewRelay(store, "orders", picky{}, dedup.RelayOptions{ErrorHook: func(error) {}, Published: r.Published("orders")})
	stop := r.Relay(relay)
	defer r.Outbox("orders", store)()
	defer r.Outbox("orders", store)() // in place of the first
	must(t, out.InTx(t.Context(), func(tx *sql.Tx) error {
		for _, id := range []string{"stored", "duplicate", "accepted", "busy", "large", "late", "unknown"} {
			if err := out.AddTx(t.Context(), tx, broker.Message{ID: id}); err != nil {
				return err
			}
		}
		return nil
	}))
	clock.Lock()
	now = now.Add(time.Minute)
	clock.Unlock()
	r.want(map[string]float64{"onceline.outbox.messages onceline.state=waiting messaging.destination.name=orders": 7})
	if lag := r.value("onceline.outbox.lag"); lag < 59 || lag > 61 {
		t.Errorf("a lag of %v s", lag)
	}
	_, _ = relay.Drain(t.Context())
	want := map[string]float64{
		"onceline.relay.messages onceline.verdict=stored":    1,
		"onceline.relay.messages onceline.verdict=duplicate": 1,
		"onceline.relay.messages onceline.verdict=accepted":  1,
		"onceline.relay.messages onceline.verdict=refused":   1,
		"onceline.relay.messages onceline.verdict=unknown":   1,
		"onceline.relay.stopped onceline.state=held":         1,
		"onceline.relay.stopped onceline.state=parked":       1,
		"onceline.relay.publishes":                           1,
	}
	r.want(want)
	r.want(map[string]float64{
		"onceline.outbox.messages onceline.state=waiting": 0, "onceline.outbox.messages onceline.state=retried": 2,
		"onceline.outbox.messages onceline.state=held": 1, "onceline.outbox.messages onceline.state=parked": 1,
		"onceline.relay.window": 600, "onceline.relay.publish.duration": 1})
	if errs := r.value("onceline.relay.errors"); errs < 1 || r.series("onceline.relay.retry_age") != nil {
		t.Errorf("%v errors, or a retry before there was one", errs)
	}
	clock.Lock()
	now = now.Add(2 * time.Minute)
	clock.Unlock()
	_, _ = relay.Drain(t.Context())
	if s := r.series("onceline.relay.retry_age", "messaging.destination.name=orders"); s == nil || s.value != 1 || s.sum < 120 || s.sum > 130 {
		t.Errorf("retry age %+v", s)
	}
	stop()
	want["onceline.relay.messages onceline.verdict=refused"], want["onceline.relay.messages onceline.verdict=unknown"], want["onceline.relay.publishes"] = 2, 2, 2
	r.want(want)
}

// TestPublisher: the age of what is sent, a retry's since the first attempt.
func TestPublisher(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		b := memory.New()
		defer b.Close()
		conn := b.Conn()
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Window: time.Minute}))
		inner, err := conn.OpenPublisher(t.Context(), "orders")
		must(t, err)
		pub := r.Publisher(inner, "orders")
		msgs := []broker.Message{{ID: "a"}, {ID: "b"}}
		for range 2 {
			if _, err := pub.Publish(t.Context(), msgs...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if s := r.series("onceline.publish.age"); s.value != 2 || s.sum != 10 {
			t.Errorf("%+v", s)
		}
		r.want(map[string]float64{"onceline.publish.window messaging.destination.name=orders": 60})
		must(t, pub.Close(t.Context()))
		must(t, pub.Close(t.Context()))
		if r.series("onceline.publish.window") != nil {
			t.Error("the window of a closed publisher")
		}
		must(t, conn.Close(t.Context()))
	})
}

func TestRebalances(t *testing.T) {
	r := newRig(t)
	var o broker.ReceiverOptions
	r.Rebalances("orders/billing")(&o)
	r.want(map[string]float64{"consumer_group_rebalance_count messaging.destination.name=orders/billing": 0})
	o.Assigned(broker.Assignment{Began: true, Gained: 4})
	o.Assigned(broker.Assignment{Lost: 1})
	o.Assigned(broker.Assignment{Began: true})
	var again broker.ReceiverOptions
	r.Rebalances("orders/billing")(&again)
	again.Assigned(broker.Assignment{Began: true, Gained: 1})
	r.want(map[string]float64{"consumer_group_rebalance_count": 3, "onceline.partitions.assigned": 5, "onceline.partitions.lost": 1})
}
