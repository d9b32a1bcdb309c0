package servicebus

import (
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
