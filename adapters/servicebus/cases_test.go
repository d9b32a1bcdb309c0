package servicebus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

// Public bug reports about other clients and emulators, as tests of this adapter
// on ours. Each names its report.

// Azure/azure-sdk-for-go#21912: a complete returned nil and the message came
// again. It is seen for what it is by its ID, and settled by its new lock.
func TestCaseAckWithoutEffect(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t, func(e *broker.Entity) { e.Lease, e.MaxDeliveries = 10*time.Second, 3 })
	publish(t, p, message("x"))
	effects := map[string]int{}
	handle := func(d *broker.Delivery) {
		if effects[d.ID] == 0 { // the inbox
			effects[d.ID]++
		}
	}
	d := receiveOne(t, r)
	handle(d)
	// The service loses the ack; the client believes that it was taken.
	n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest, Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := d.Ack(ctx)
	wantErr(t, err, broker.ErrUnknownOutcome)
	n.Clock().Advance(11 * time.Second)
	again := receiveOne(t, r)
	if again.ID != "x" || again.Attempt.Number != 2 {
		t.Fatalf("%q at attempt %d", again.ID, again.Attempt.Number)
	}
	handle(again)
	ack(t, *again)
	if k := n.counts(t, e.Topic); effects["x"] != 1 || k.Active != 0 || k.DeadLettered != 0 {
		t.Errorf("%v, %+v", effects, k)
	}
}

// Azure/azure-sdk-for-go#17979: a receive on an empty queue outlasted its context.
func TestCaseEmptyReceiveEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, s *emulator.Server, c broker.Conn) {
		for _, kind := range []string{"queue", "sessions"} {
			if err := s.CreateQueue(kind, emulator.QueueProperties{RequiresSession: kind == "sessions"}); err != nil {
				t.Fatal(err)
			}
			r := receiverOf(t, c, kind)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				begin := time.Now()
				ds, err := r.Receive(ctx, 1)
				cancel()
				wantErr(t, err, context.DeadlineExceeded)
				if took := time.Since(begin); len(ds) != 0 || took < 300*time.Millisecond || took > 310*time.Millisecond {
					t.Errorf("%s: %d deliveries after %v", kind, len(ds), took)
				}
			}
		}
	})
}

// dotnet-architecture/eShopOnContainers#508: a constant ID made duplicate
// detection drop all messages but the first. An empty one is refused, and no two
// IDs that differ are taken for one.
func TestCaseConstantID(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	for range 3 {
		if _, err := p.Publish(t.Context(), broker.Message{Body: []byte("x")}); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("an empty ID: %v", err)
		}
	}
	zeros := []string{"0", "00000000-0000-0000-0000-000000000000", " "}
	for _, id := range zeros {
		publish(t, p, message(id))
	}
	for i, d := range receiveAll(t, r, 3) {
		if d.ID != zeros[i] {
			t.Errorf("%q", d.ID)
		}
		ack(t, d)
	}
}

// floci-io/floci-az#164: a local broker took the duplicates that the real one
// drops.
func TestCaseDuplicateDetection(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	publish(t, p, message("x"), message("x"))
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	if ds := receive(t, r, 1, 50*time.Millisecond); len(ds) != 0 {
		t.Errorf("%q came again", ds[0].ID)
	}
}

// gkinsman/AlmostServiceBus#20: the settlement of a lock that had run out was
// answered "accepted".
func TestCaseExpiredSettlement(t *testing.T) {
	t.Parallel()
	n, c, e, p, _ := ends(t, func(e *broker.Entity) { e.Lease = 10 * time.Second })
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	r := receiverOf(t, raw, e.Subscription)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	n.Clock().Advance(11 * time.Second)
	o, err := d.Ack(t.Context())
	if wantErr(t, err, broker.ErrLeaseLost); o.State != broker.LeaseLost {
		t.Errorf("%v", o.State)
	}
	ack(t, *receiveOne(t, r))
}

// dapr/components-contrib#3561: a lock was renewed after its message was
// completed, and reported as lost.
func TestCaseNoExtendAfterAck(t *testing.T) {
	t.Parallel()
	const messageCount = 200
	n, _, _, p, r := ends(t)
	ms := messages(messageCount, "m")
	publish(t, p, ms...)
	var handled, bad atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	renewals := n.inject(t, fault.Fault{Op: fault.Settle, API: "com.microsoft:renew-lock", Kind: fault.Delay, Delay: time.Microsecond})
	err := broker.Consume(ctx, r, func(_ context.Context, d *broker.Delivery) error {
		if d.Attempt.Number != 1 {
			bad.Add(1)
		}
		// The heartbeat and the end of the handler meet.
		if _, err := d.Extend(ctx, 0); err != nil {
			bad.Add(1)
		}
		if handled.Add(1) == messageCount {
			cancel()
		}
		return nil
	}, broker.ConsumeOptions{})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if handled.Load() != messageCount || bad.Load() != 0 || renewals.Hits() > messageCount {
		t.Errorf("%d handled, %d bad, %d renewals", handled.Load(), bad.Load(), renewals.Hits())
	}
	if ds := receive(t, r, 1, 50*time.Millisecond); len(ds) != 0 {
		// Consume acked all: an extend after the ack is refused without a frame.
		t.Errorf("%q came again", ds[0].ID)
	}
}

// Azure/azure-sdk-for-go#17853: messages that arrived as a receive was cancelled
// were seen only after their lock had run out.
func TestCaseLostOnCancel(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []broker.Delivery, 1)
		go func() {
			ds, _ := r.Receive(ctx, 30)
			got <- ds
		}()
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
		publish(t, p, message(fmt.Sprint("m", i)))
		ds := <-got
		cancel()
		if len(ds) == 0 {
			begin := time.Now()
			ds = receive(t, r, 1, mustCome)
			if took := time.Since(begin); len(ds) != 1 || took > time.Second {
				t.Fatalf("round %d: %d came after %v", i, len(ds), took)
			}
		}
		if ds[0].Attempt.Number != 1 {
			t.Errorf("round %d: attempt %d", i, ds[0].Attempt.Number)
		}
		ack(t, ds...)
	}
}

// dapr/components-contrib#1729: at shutdown messages were settled with the
// application's context, which had ended.
func TestCaseSettleAtShutdown(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t)
	publish(t, p, message("x"))
	ctx, cancel := context.WithCancel(t.Context())
	err := broker.Consume(ctx, r, func(context.Context, *broker.Delivery) error {
		cancel()
		return nil
	}, broker.ConsumeOptions{})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

// Azure/azure-sdk-for-go#17382: a settle with a lost lock was tried again and
// again.
func TestCaseLockLostOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		n, _, _, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
		publish(t, p, keyed("x", "k"))
		d := receiveOne(t, r)
		i := n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Error, Code: 410})
		begin := time.Now()
		o, err := d.Ack(t.Context())
		if wantErr(t, err, broker.ErrLeaseLost); o.State != broker.LeaseLost {
			t.Errorf("%s: %v", kind, o.State)
		}
		// With sessions the second asks whether the session is lost.
		most := map[string]int{"queue": 1, "sessions": 2}[kind]
		if took := time.Since(begin); took > 100*time.Millisecond || i.Hits() > most {
			t.Errorf("%s: %v, %d attempts", kind, took, i.Hits())
		}
	}
}

// google/go-cloud#1733: settling twice gave a different result on each broker.
func TestCaseSettleTwice(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	ack(t, *d)
	ack(t, *d)
	if o, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) || o.State != broker.Confirmed {
		t.Errorf("%v %v", o.State, err)
	}
	publish(t, p, message("y"))
	if d = receiveOne(t, r); d.ID != "y" {
		t.Errorf("%q", d.ID)
	}
	ack(t, *d)
}
