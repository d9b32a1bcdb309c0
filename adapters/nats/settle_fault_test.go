package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

func TestSettleResponseLost(t *testing.T) {
	t.Parallel()
	s, c, e, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	i := inject(t, s, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_ = i.WaitApplied(ctx)
		cancel()
	}()
	o, err := d.Ack(ctx)
	if o.State != broker.Unknown {
		t.Fatalf("%v", o.State)
	}
	wantErr(t, err, broker.ErrUnknownOutcome)
	applied(t, i)
	if o, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("another action: %v %v", o.State, err)
	}
	if o, err := d.Ack(t.Context()); err != nil || o.State != broker.Confirmed {
		t.Errorf("asked again: %v %v", o.State, err)
	}
	if n := pendingAcks(t, c, e); n != 0 {
		t.Errorf("%d pending", n)
	}
}

// A batch of which one answer is lost: no outcome is better than the truth, and
// asking again confirms all.
func TestSettleBatchResponseLost(t *testing.T) {
	t.Parallel()
	s, c, e, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	publish(t, p, messages(3*groupSize, "m")...)
	ds := receiveAll(t, r, 3*groupSize)
	i := inject(t, s, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseRequest, Times: 1})
	settlements := make([]broker.Settlement, len(ds))
	for k := range ds {
		settlements[k] = broker.Settlement{Delivery: &ds[k], Action: broker.Ack}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantErr(t, r.Settle(ctx, settlements), broker.ErrUnknownOutcome)
	if i.Hits() != 1 {
		t.Fatal("no fault")
	}
	unknown := 0
	for k := range settlements {
		if settlements[k].Outcome.State == broker.Unknown {
			unknown++
		}
	}
	if unknown == 0 || unknown > groupSize {
		t.Errorf("%d outcomes are unknown, want those of one group of %d", unknown, groupSize)
	}
	if n := pendingAcks(t, c, e); n != 1 {
		t.Errorf("%d pending", n)
	}
	if err := r.Settle(t.Context(), settlements); err != nil {
		t.Fatal(err)
	}
	if n := pendingAcks(t, c, e); n != 0 {
		t.Errorf("%d pending after the second", n)
	}
	nothingOpen(t, c)
}

func TestSettleCut(t *testing.T) {
	t.Parallel()
	s, c, _, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 20 * time.Second })
	publish(t, p, messages(2, "m")...)
	ds := receiveAll(t, r, 2)
	inject(t, s, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse, Times: 1, Cut: true})
	begin := time.Now()
	o, err := ds[0].Ack(t.Context())
	wantErr(t, err, broker.ErrUnknownOutcome)
	if took := time.Since(begin); o.State != broker.Unknown || took > time.Second {
		t.Errorf("%v after %v", o.State, took)
	}
	connected(t, c)
	// The handles belong to the connection that is gone.
	if o, err := ds[1].Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("held over the cut: %v %v", o.State, err)
	}
	if o, err := ds[0].Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("asked again over the cut: %v %v", o.State, err)
	}
}

// The consumer is deleted: an ack says that the lease is lost, and why.
func TestSettleConsumerDeleted(t *testing.T) {
	t.Parallel()
	c, e, p, r := ends(t)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	stream, consumer, _ := splitSubscription(e.Subscription)
	if err := connOf(t, c).js.DeleteConsumer(t.Context(), stream, consumer); err != nil {
		t.Fatal(err)
	}
	o, err := d.Ack(t.Context())
	if o.State != broker.LeaseLost {
		t.Errorf("%v", o.State)
	}
	wantErr(t, err, broker.ErrLeaseLost, broker.ErrNotFound)
}

// Nobody answers for the consumer just now, though it exists: the handle stays
// held, and the ack works when the leader is back.
func TestSettleNoLeader(t *testing.T) {
	t.Parallel()
	s, _, _, p, r := faultyEnds(t)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	inject(t, s, localstack.Fault{Op: localstack.Settle, Kind: localstack.Error, Code: 503, Times: 1})
	o, err := d.Ack(t.Context())
	if o.State != broker.Unknown {
		t.Errorf("%v", o.State)
	}
	wantErr(t, err, broker.ErrUnavailable)
	ack(t, *d)
}

// Close while a settle waits for an answer that is lost: the settle ends as
// Unknown, and Close within its context.
func TestCloseEndsSettle(t *testing.T) {
	t.Parallel()
	s, _, _, p, r := faultyEnds(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	i := inject(t, s, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse, Times: 1})
	out := make(chan broker.Outcome, 1)
	go func() {
		o, _ := d.Ack(context.Background())
		out <- o
	}()
	applied(t, i)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
	select {
	case o := <-out:
		if o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) {
			t.Errorf("%+v", o)
		}
	case <-time.After(2 * time.Second):
		t.Fatal("the settle goes on")
	}
}
