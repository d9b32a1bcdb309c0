package servicebus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

// A link that was lost is made again by calls of Receive that are each shorter than
// that takes.
func TestLinkByShortCalls(t *testing.T) {
	t.Parallel() // it waits, as a rule
	n, _, e, p, r := ends(t)
	publish(t, p, message("a"))
	ack(t, *receiveOne(t, r))
	n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1})
	if _, err := p.Publish(t.Context(), message("cut")); err == nil {
		t.Fatal("no cut")
	}
	publish(t, p, message("b"))
	slow := n.inject(t, fault.Fault{API: "attach", Match: e.Topic, Kind: fault.Delay, Delay: 150 * time.Millisecond})
	var d []broker.Delivery
	calls := 0
	for end := time.Now().Add(5 * time.Second); len(d) == 0; calls++ {
		if time.Now().After(end) {
			t.Fatalf("%d calls got no message; attaches that were slow: %d", calls, slow.Hits())
		}
		d = receive(t, r, 1, 20*time.Millisecond)
	}
	if calls < 3 {
		t.Errorf("it came with call %d: the test shows nothing", calls)
	}
	slow.Remove()
	ack(t, d...)
	// Close doesn't wait for a link that is being made.
	n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1})
	if _, err := p.Publish(t.Context(), message("cut")); err == nil {
		t.Fatal("no cut")
	}
	n.inject(t, fault.Fault{API: "attach", Match: e.Topic, Kind: fault.Delay, Delay: time.Minute})
	receive(t, r, 1, 20*time.Millisecond)
	begin := time.Now()
	closing(t, r)
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// The same for a publisher and calls of Publish.
func TestSenderByShortCalls(t *testing.T) {
	t.Parallel()
	n, _, e, p, _ := ends(t)
	publish(t, p, message("a"))
	slow := n.inject(t, fault.Fault{API: "attach", Match: e.Topic, Kind: fault.Delay, Delay: 150 * time.Millisecond})
	n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1})
	if _, err := p.Publish(t.Context(), message("cut")); err == nil {
		t.Fatal("no cut")
	}
	short := func() broker.Receipt {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		rs, _ := p.Publish(ctx, message("b"))
		return rs[0]
	}
	calls := 0
	for end := time.Now().Add(5 * time.Second); !short().Verdict.OK(); calls++ {
		if time.Now().After(end) {
			t.Fatalf("%d calls published nothing; attaches that were slow: %d", calls, slow.Hits())
		}
	}
	if calls < 3 || slow.Hits() == 0 {
		t.Errorf("it left with call %d, slow attaches: %d: the test shows nothing", calls, slow.Hits())
	}
	slow.Remove()
	// Close doesn't wait for a link that is being made.
	n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1})
	if _, err := p.Publish(t.Context(), message("cut")); err == nil {
		t.Fatal("no cut")
	}
	n.inject(t, fault.Fault{API: "attach", Match: e.Topic, Kind: fault.Delay, Delay: time.Minute})
	short()
	begin := time.Now()
	closing(t, p)
	if took := time.Since(begin); took > attachBound/2 {
		t.Errorf("Close took %v", took)
	}
}

// What a Publish that was left can't tell any more, the next one does.
func TestLeftErrorOfASenderIsTold(t *testing.T) {
	t.Parallel()
	n, _, e, p, _ := ends(t)
	publish(t, p, message("a"))
	n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1})
	if _, err := p.Publish(t.Context(), message("cut")); err == nil {
		t.Fatal("no cut")
	}
	attached := n.inject(t, fault.Fault{API: "attach", Match: e.Topic, Kind: fault.Delay, Delay: 150 * time.Millisecond})
	var d *publisher
	if !p.As(&d) {
		t.Fatal("no publisher")
	}
	until(t, "a try whose caller had left", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, _ = p.Publish(ctx, message("b"))
		return attached.Hits() > 0
	})
	if err := n.Delete(e.Topic); err != nil {
		t.Fatal(err)
	}
	until(t, "its end", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.attaching == nil
	})
	n.makes(t, e) // so that it can't be learned anew
	if rs, _ := p.Publish(t.Context(), message("b")); !errors.Is(rs[0].Err, broker.ErrNotFound) {
		t.Errorf("the next one said %v", rs[0].Err)
	}
	publish(t, p, message("c"))
}
