package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Public bug reports about other clients, as tests of this one. Each names its
// report.

// nats-io/nats-server#2525: header blocks over 64 KiB broke a replicated stream.
func TestCaseHeadersOver64K(t *testing.T) {
	t.Parallel()
	c, _, p, r := ends(t)
	big := message("big")
	for i := range 64 {
		big.Headers = append(big.Headers, broker.Header{Key: fmt.Sprintf("h%04d", i), Value: strings.Repeat("v", 1024-5)})
	}
	big.Headers = append(big.Headers, broker.Header{Key: "x"})
	// Within the limit as they are, over it as they travel: binary is encoded.
	binary := message("binary")
	binary.Headers = broker.Headers{{Key: "b", Value: strings.Repeat("\x00", p.Limits().Headers/2)}}
	fits := message("fits")
	fits.Headers = broker.Headers{{Key: "b", Value: strings.Repeat("v", p.Limits().Headers-1)}}
	out := client(t, c).Stats().OutMsgs
	rs, err := p.Publish(t.Context(), message("before"), big, binary, fits, message("after"))
	wantErr(t, err, broker.ErrTooLarge)
	for i, want := range []broker.Verdict{broker.Stored, broker.Refused, broker.Refused, broker.Stored, broker.Stored} {
		if rs[i].Verdict != want {
			t.Errorf("receipt %d: %v, %v", i, rs[i].Verdict, rs[i].Err)
		}
	}
	wantErr(t, rs[2].Err, broker.ErrTooLarge)
	if n := client(t, c).Stats().OutMsgs - out; n != 3 {
		t.Errorf("%d messages were sent, want 3", n)
	}
	ack(t, receiveAll(t, r, 3)...)
}

// dapr/components-contrib#3922: a limit of one message under way had no effect.
func TestCaseOneAtATime(t *testing.T) {
	t.Parallel()
	c := dialShared(t, MaxAckPending(1))
	e := entity(t)
	ensure(t, c, e)
	publish(t, publisherOf(t, c, e.Topic), messages(5, "m")...)
	var under, done atomic.Int32
	var wait sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 3 {
		r := receiverOf(t, c, e.Subscription)
		wait.Go(func() {
			for {
				ds, err := r.Receive(ctx, 5)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if n := under.Add(int32(len(ds))); n != 1 {
					t.Errorf("%d under way", n)
				}
				<-time.After(20 * time.Millisecond) // the handler's work
				under.Add(-int32(len(ds)))
				ack(t, ds...)
				if done.Add(1) == 5 {
					cancel()
				}
			}
		})
	}
	wait.Wait()
	if n := done.Load(); n != 5 {
		t.Errorf("%d handled", n)
	}
}

// nats-io/nats-server#5142: an old ID after its message was acked is swallowed;
// the receipt must say so.
func TestCaseDuplicateAfterAck(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t)
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	if rs := publish(t, p, message("x")); rs[0].Verdict != broker.Duplicate || rs[0].Position.Offset != 1 {
		t.Errorf("%+v", rs[0])
	}
}

// nats-io/nats-server#7302: the window is fixed: a repeat doesn't prolong it, so
// an ID that is repeated for ever gets through once in each window.
func TestCaseWindowIsFixed(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	e := entity(t, func(e *broker.Entity) { e.Window = 300 * time.Millisecond })
	ensure(t, c, e)
	p := publisherOf(t, c, e.Topic)
	tick := time.NewTicker(75 * time.Millisecond)
	defer tick.Stop()
	begin, kept := time.Now(), 0
	for time.Since(begin) < 1500*time.Millisecond {
		if publish(t, p, message("x"))[0].Verdict == broker.Stored {
			kept++
		}
		<-tick.C
	}
	if kept < 3 || kept > 6 {
		t.Errorf("%d stored in five windows", kept)
	}
}

// nats-io/nats.go#1819: publishes whose acks were lost in a blip piled up until
// the client refused to publish.
func TestCaseLostAcksDontPileUp(t *testing.T) {
	t.Parallel()
	s, c, _, p, _ := faultyEnds(t)
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ms := messages(5000, "m")
	rs, err := p.Publish(ctx, ms...)
	wantErr(t, err, broker.ErrUnknownOutcome)
	for i, r := range rs {
		if r.Verdict != broker.Unknown && r.Verdict != broker.Refused {
			t.Fatalf("receipt %d: %+v", i, r)
		}
	}
	s.Thaw()
	rs = publish(t, p, ms...)
	seen := map[uint64]bool{}
	for i, r := range rs {
		if !r.Verdict.OK() || seen[r.Position.Offset] {
			t.Fatalf("retried %d: %+v", i, r)
		}
		seen[r.Position.Offset] = true
	}
	nothingOpen(t, c)
}

// nats-io/nats-server#3645: headers that end like the dedup header were taken
// for it.
func TestCaseLookAlikeHeaders(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t)
	var ms []broker.Message
	for i, name := range []string{"Orig-Nats-Msg-Id", "X-Nats-Msg-Id", "nats-msg-id"} {
		m := message(fmt.Sprint("id", i))
		m.Headers = broker.Headers{{Key: name, Value: "1"}}
		ms = append(ms, m)
	}
	for i, rc := range publish(t, p, ms...) {
		if rc.Verdict != broker.Stored {
			t.Errorf("%d: %v", i, rc.Verdict)
		}
	}
	for i, d := range receiveAll(t, r, 3) {
		if d.ID != ms[i].ID || len(d.Headers) != 1 || d.Headers[0] != ms[i].Headers[0] {
			t.Errorf("%q %v", d.ID, d.Headers)
		}
	}
}

// nats-io/nats.go#1929: the lease ran while messages waited in a prefetch buffer.
func TestCaseNoPrefetch(t *testing.T) {
	t.Parallel()
	c, e, p, r := ends(t, func(e *broker.Entity) { e.Lease = 300 * time.Millisecond })
	publish(t, p, messages(5, "m")...)
	for i := range 5 {
		d := receiveOne(t, r)
		if d.Attempt.Number != 1 || d.ID != fmt.Sprint("m", i) {
			t.Fatalf("%q at attempt %d", d.ID, d.Attempt.Number)
		}
		if n := pendingAcks(t, c, e); n != 1 {
			t.Errorf("%d are out, want the one that was asked for", n)
		}
		<-time.After(150 * time.Millisecond) // the handler's work
		ack(t, *d)
	}
}

// nats-io/nats-server#5564: a message past its last delivery stays in a work
// queue and is given to nobody.
func TestCasePoisonInWorkQueue(t *testing.T) {
	t.Parallel()
	c := dialShared(t, WorkQueue())
	e := entity(t, func(e *broker.Entity) {
		e.MaxDeliveries, e.DeadLetter = 3, "dead-"+strings.ReplaceAll(e.Topic, ".", "-")
	})
	ensure(t, c, e)
	dead := broker.Entity{Topic: e.DeadLetter, Subscription: e.DeadLetter + "/morgue"}
	ensure(t, c, dead)
	p, r, morgue := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription), receiverOf(t, c, dead.Subscription)
	poison := message("poison")
	poison.Headers = broker.Headers{{Key: "a", Value: "1"}}
	publish(t, p, poison, message("good"))
	handled := map[string]int{}
	for handled["poison"] < 3 || handled["good"] < 1 {
		d := receiveOne(t, r)
		handled[d.ID]++
		if d.ID == "good" {
			ack(t, *d)
		} else if _, err := d.Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if handled["good"] != 1 || handled["poison"] != 3 {
		t.Errorf("handled %v", handled)
	}
	until(t, "the queue to be empty", func() bool { return stored(t, c, e.Topic) == 0 })
	d := receiveOne(t, morgue)
	if d.ID != "poison" || d.Headers.Get("a") != "1" || d.Headers.Get(driver.HeaderAttempts) != "3" {
		t.Errorf("in the dead-letter stream: %q %v", d.ID, d.Headers)
	}
	ack(t, *d)
}

// nats-io/nats.go#1972: during a silent stall the server removes an inactive
// consumer, and the client never notices.
func TestCaseStallRemovesConsumer(t *testing.T) {
	t.Parallel()
	s, c, e, _, _ := faultyEnds(t)
	stream, _, _ := splitSubscription(e.Subscription)
	direct := dialTo(t, s.DirectURL())
	js := connOf(t, direct).js
	_, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: "idle", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 800 * time.Millisecond, InactiveThreshold: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := receiverOf(t, c, stream+"/idle")
	out := make(chan error, 1)
	go func() {
		_, err := r.Receive(context.Background(), 1)
		out <- err
	}()
	s.Freeze()
	until(t, "the server to remove the consumer", func() bool {
		_, err := js.Consumer(t.Context(), stream, "idle")
		return errors.Is(err, jetstream.ErrConsumerNotFound)
	})
	s.Thaw()
	select {
	case err := <-out:
		wantErr(t, err, broker.ErrNotFound)
	case <-time.After(8 * time.Second):
		t.Fatal("Receive doesn't notice")
	}
}

// nats-io/nats.go#790: acks that were sent just before the end were not applied.
func TestCaseAckThenClose(t *testing.T) {
	t.Parallel()
	c := dialShared(t, MaxAckPending(5000))
	e := entity(t, func(e *broker.Entity) { e.Lease = 2 * time.Second })
	ensure(t, c, e)
	publish(t, publisherOf(t, c, e.Topic), messages(5000, "m")...)
	worker := dialShared(t)
	r := receiverOf(t, worker, e.Subscription)
	for n := 0; n < 5000; {
		ds := receive(t, r, 1000, mustCome)
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i] = broker.Settlement{Delivery: &ds[i]}
		}
		if err := r.Settle(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		n += len(ds)
	}
	if err := worker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The server itself says that nothing can come again: no need to wait for
	// two leases.
	if n := pendingAcks(t, c, e); n != 0 {
		t.Errorf("%d acks pending after Close", n)
	}
	if ds := receive(t, receiverOf(t, c, e.Subscription), 10, 200*time.Millisecond); len(ds) != 0 {
		t.Errorf("came again: %d", len(ds))
	}
}

// nats-io/nats.go#1717: delivered again after a confirmed ack. A batch that takes
// longer than a lease is kept by extending it.
func TestCaseConfirmedAckIsFinal(t *testing.T) {
	t.Parallel()
	const batch, work = 10, 50 * time.Millisecond
	c := dialShared(t, WorkQueue())
	e := entity(t, func(e *broker.Entity) { e.Lease = 300 * time.Millisecond })
	ensure(t, c, e)
	publish(t, publisherOf(t, c, e.Topic), messages(2*batch, "m")...)
	r := receiverOf(t, c, e.Subscription)
	runs := map[string]int{}
	for len(runs) < 2*batch {
		ds := receiveAll(t, r, batch)
		for i := range ds {
			beat := make([]broker.Settlement, 0, batch)
			for k := i; k < batch; k++ {
				beat = append(beat, broker.Settlement{Delivery: &ds[k], Action: broker.Extend})
			}
			if err := r.Settle(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
			<-time.After(work)
			runs[ds[i].ID]++
			ack(t, ds[i])
		}
	}
	for id, n := range runs {
		if n != 1 {
			t.Errorf("%q handled %d times", id, n)
		}
	}
	if ds := receive(t, r, 1, 700*time.Millisecond); len(ds) != 0 {
		t.Errorf("%q came again", ds[0].ID)
	}
	if n := stored(t, c, e.Topic); n != 0 {
		t.Errorf("%d left in the queue", n)
	}
}
