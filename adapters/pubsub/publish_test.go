package pubsub

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

// Of a batch in parts, a part that fails harms no other, and the receipts say
// which it was.
func TestPartialBatch(t *testing.T) {
	g := ends(t, false)
	ms := messages(1500, "m")
	g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: 8, Times: 1}) // RESOURCE_EXHAUSTED
	ms[3].Headers = broker.Headers{{Key: "onceline-id", Value: "no"}}                 // refused here
	rs, err := g.pub.Publish(t.Context(), ms...)
	if !errors.Is(err, broker.ErrBusy) {
		t.Fatalf("error %v", err)
	}
	stored := 0
	for i, r := range rs {
		switch {
		case i == 3:
			if r.Verdict != broker.Refused || !errors.Is(r.Err, broker.ErrInvalid) {
				t.Errorf("%+v", r)
			}
		case i <= 1000:
			if r.Verdict != broker.Refused || !errors.Is(r.Err, broker.ErrBusy) {
				t.Fatalf("receipt %d: %+v", i, r)
			}
		case r.Verdict != broker.Stored:
			t.Fatalf("receipt %d: %+v", i, r)
		default:
			stored++
		}
	}
	if ds := receiveAll(t, g.rcv, stored); ds[0].ID != "m1001" {
		t.Errorf("first came %q", ds[0].ID)
	}
	nothing(t, g.rcv)
}

func TestLostPublishAnswer(t *testing.T) {
	g := ends(t, true)
	i := g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		if i.WaitApplied(ctx) == nil {
			cancel()
		}
	}()
	rs, err := g.pub.Publish(ctx, message("x"))
	if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Fatalf("%+v %v", rs[0], err)
	}
	// Nothing is sent again behind the receipt, and a retry is a second message.
	ack(t, g.rcv, *receiveOne(t, g.rcv))
	nothing(t, g.rcv)
	if rs := publish(t, g.pub, message("x")); rs[0].Verdict != broker.Stored {
		t.Errorf("%+v", rs[0])
	}
	if d := receiveOne(t, g.rcv); d.ID != "x" {
		t.Errorf("came %q", d.ID)
	}
}

// A connection that is cut under a publish: Unknown, and one RPC. The next works.
func TestCutPublish(t *testing.T) {
	g := ends(t, false)
	g.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1})
	rs, err := g.pub.Publish(t.Context(), message("x"))
	if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("%+v %v", rs[0], err)
	}
	publish(t, g.pub, message("y"))
	if d := receiveOne(t, g.rcv); d.ID != "y" {
		t.Errorf("came %q", d.ID)
	}
}

func TestBrokerDown(t *testing.T) {
	g := ends(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Fatal(err)
	}
	// Until the client has noticed, a request may still seem to leave.
	deadline := time.Now().Add(5 * time.Second)
	for {
		rs, err := g.pub.Publish(t.Context(), message("x"))
		if rs[0].Verdict == broker.Refused && errors.Is(err, broker.ErrUnavailable) {
			break
		}
		if time.Now().After(deadline) || rs[0].Verdict.OK() {
			t.Fatalf("with the broker down: %+v %v", rs[0], err)
		}
	}
	if ds := receive(t, g.rcv, 1, 100*time.Millisecond); len(ds) > 0 {
		t.Error("a message from nowhere")
	}
}
