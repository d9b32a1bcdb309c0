package rabbitmq

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

// A channel that was lost is made again by calls of Receive that are each shorter than
// that takes.
func TestChannelByShortCalls(t *testing.T) {
	for name, ordered := range map[string]bool{"exact": false, "ordered": true} {
		t.Run(name, func(t *testing.T) {
			h := emulate(t)
			c := h.dial(t)
			e := entity(t, c, func(e *broker.Entity) { e.Ordered = ordered })
			p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
			publish(t, p, messages(1, 0)...)
			settle(t, r, broker.Ack, receive(t, r, 1)...)
			slow := h.inject(fault.Fault{API: "queue.declare", Kind: fault.Delay, Delay: 150 * time.Millisecond})
			h.cut()
			publish(t, publisherOf(t, h.dial(t), e.Topic), messages(1, 1)...)
			calls := 0
			for end := time.Now().Add(mustCome); ; calls++ {
				if time.Now().After(end) {
					t.Fatalf("%d calls got no message; slow declares: %d", calls, slow.Hits())
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				ds, _ := r.Receive(ctx, 1)
				cancel()
				if len(ds) > 0 {
					settle(t, r, broker.Ack, ds...)
					break
				}
			}
			if calls < 3 || slow.Hits() == 0 {
				t.Errorf("it came with call %d, slow declares: %d: the test shows nothing", calls, slow.Hits())
			}
			// Close doesn't wait for a channel that is being made.
			slow.Remove()
			h.inject(fault.Fault{API: "queue.declare", Kind: fault.Delay, Delay: time.Minute})
			h.cut()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, _ = r.Receive(ctx, 1)
			begin := time.Now()
			closing(t, r)
			if took := time.Since(begin); took > renewBound/2 {
				t.Errorf("Close took %v", took)
			}
		})
	}
}

// The same for a publisher and calls of Publish.
func TestSenderByShortCalls(t *testing.T) {
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	publish(t, p, messages(1, 0)...)
	slow := h.inject(fault.Fault{API: "exchange.declare", Kind: fault.Delay, Delay: 150 * time.Millisecond})
	h.cut()
	short := func(m broker.Message) broker.Receipt {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		rs, _ := p.Publish(ctx, m)
		return rs[0]
	}
	m, calls := messages(1, 1)[0], 0
	for end := time.Now().Add(mustCome); ; calls++ {
		got := short(m)
		if got.Verdict.OK() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls published nothing: %v; slow declares: %d", calls, got.Err, slow.Hits())
		}
		if got.Verdict == broker.Refused && !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Fatalf("call %d: %v", calls, got.Err)
		}
	}
	if calls < 3 || slow.Hits() == 0 {
		t.Errorf("it left with call %d, slow declares: %d: the test shows nothing", calls, slow.Hits())
	}
	// Close doesn't wait for a channel that is being made.
	slow.Remove()
	h.inject(fault.Fault{API: "exchange.declare", Kind: fault.Delay, Delay: time.Minute})
	h.cut()
	short(m)
	begin := time.Now()
	closing(t, p)
	if took := time.Since(begin); took > renewBound/2 {
		t.Errorf("Close took %v", took)
	}
}

// The same for a publisher of streams.
func TestStreamSenderByShortCalls(t *testing.T) {
	t.Parallel()
	s, url := streamServer(t)
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	publishAll(t, p, streamMessages(0, 1)...)
	slow := s.Faults().Inject(fault.Fault{API: "DeclarePublisher", Kind: fault.Delay, Delay: 150 * time.Millisecond}, nil)
	cut := s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.Cut, Match: e.Topic, Times: 1}, nil)
	m, calls := streamMessages(1, 1)[0], 0
	for end := time.Now().Add(mustCome); ; calls++ {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		rs, _ := p.Publish(ctx, m)
		cancel()
		if rs[0].Verdict.OK() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls published nothing: %v; slow declares: %d", calls, rs[0].Err, slow.Hits())
		}
	}
	if calls < 3 || slow.Hits() == 0 || cut.Hits() == 0 {
		t.Errorf("it left with call %d, slow declares: %d, cuts: %d: the test shows nothing", calls, slow.Hits(), cut.Hits())
	}
	slow.Remove()
	// Close doesn't wait for a link that is being made.
	s.Faults().Inject(fault.Fault{API: "DeclarePublisher", Kind: fault.Delay, Delay: time.Minute}, nil)
	s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.Cut, Match: e.Topic, Times: 1}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if rs, _ := p.Publish(ctx, streamMessages(2, 1)...); rs[0].Verdict.OK() {
		t.Fatal("no cut")
	}
	begin := time.Now()
	closing(t, p)
	if took := time.Since(begin); took > renewBound/2 {
		t.Errorf("Close took %v", took)
	}
}

// What a Publish that was left can't tell any more, the next one does.
func TestLeftErrorOfASenderIsTold(t *testing.T) {
	h := emulate(t)
	e := entity(t, h.dial(t))
	p := publisherOf(t, h.dial(t), e.Topic) // a connection that didn't ensure it
	if err := h.raw(t).ExchangeDelete(e.Topic, false, false); err != nil {
		t.Fatal(err)
	}
	declared := h.inject(fault.Fault{API: "exchange.declare", Kind: fault.Delay, Delay: 50 * time.Millisecond})
	h.cut()
	var d *publisher
	if !p.As(&d) {
		t.Fatal("no publisher")
	}
	eventually(t, "a try whose caller had left", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		_, _ = p.Publish(ctx, messages(1, 0)...)
		return declared.Hits() > 0
	})
	eventually(t, "its end", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.opening == nil
	})
	rs, _ := p.Publish(t.Context(), messages(1, 0)...)
	if !errors.Is(rs[0].Err, broker.ErrNotFound) || declared.Hits() != 1 {
		t.Errorf("after %d tries: %v", declared.Hits(), rs[0].Err)
	}
}

// What a Receive that was left can't tell any more, the next one does.
func TestLeftErrorIsTold(t *testing.T) {
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	raw := h.raw(t)
	r := receiverOf(t, h.dial(t), e.Subscription) // a connection that didn't ensure it
	if _, err := raw.QueueDelete(e.Subscription, false, false, false); err != nil {
		t.Fatal(err)
	}
	h.inject(fault.Fault{API: "queue.declare", Kind: fault.Delay, Delay: 50 * time.Millisecond})
	h.cut()
	for end := time.Now().Add(mustCome); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := r.Receive(ctx, 1)
		cancel()
		if errors.Is(err, broker.ErrNotFound) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the last one said %v", err)
		}
	}
}

// Calls of Receive that are shorter than two round trips get the messages all the same,
// and at their first attempt: what comes too late for one is kept for the next, of which
// each gets no more than it asks for. What nobody comes for goes to another receiver.
func TestShortCallsWearNothingOut(t *testing.T) {
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c, func(e *broker.Entity) { e.MaxDeliveries, e.DeadLetter = 2, "/"+e.Subscription+".dead" })
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	short := func(most int) []broker.Delivery {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		ds, _ := r.Receive(ctx, most)
		return ds
	}
	publish(t, p, messages(3, 0)...)
	slow := h.inject(fault.Fault{API: "basic.cancel", Kind: fault.Delay, Delay: 250 * time.Millisecond})
	calls, most := 0, 3 // then one by one
	var got []string
	for end := time.Now().Add(mustCome); len(got) < 3; calls++ {
		if time.Now().After(end) {
			t.Fatalf("%d calls got %q; slow cancels: %d", calls, got, slow.Hits())
		}
		ds := short(most)
		if most = 1; len(ds) > 1 {
			t.Fatalf("a Receive of 1 got %d", len(ds))
		}
		for i := range ds {
			got = append(got, ds[i].ID)
			if ds[i].Attempt != (broker.Attempt{Number: 1, Trust: broker.Exact}) {
				t.Errorf("%s: attempt %+v", ds[i].ID, ds[i].Attempt)
			}
			settle(t, r, broker.Ack, ds[i])
		}
	}
	if calls < 4 || slow.Hits() != 1 || !slices.Equal(got, []string{"m-0", "m-1", "m-2"}) {
		t.Errorf("%d calls got %q by %d turns: the test shows nothing", calls, got, slow.Hits())
	}
	publish(t, p, messages(2, 3)...)
	if ds := short(2); len(ds) > 0 {
		t.Fatal("it came in time")
	}
	eventually(t, "the slow cancel", func() bool { return slow.Hits() == 2 })
	slow.Remove()
	receive(t, receiverOf(t, c, e.Subscription), 2)
}
