package servicebus

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

// The receiver goes through the sessions by itself, and each is in order.
func TestSessions(t *testing.T) {
	t.Parallel() // it waits, as a rule
	n, _, e, p, r := ends(t, ordered)
	var ms []broker.Message
	for i := range 30 {
		ms = append(ms, keyed(fmt.Sprint("m", i), fmt.Sprint("k", i%3)))
	}
	ms = append(ms, message("keyless")) // which goes into the session without a name
	publish(t, p, ms...)
	last := map[string]string{}
	for range ms {
		d := receiveOne(t, r)
		if d.Key != "" {
			var was, is int
			_, _ = fmt.Sscanf(last[d.Key], "m%d", &was)
			if _, err := fmt.Sscanf(d.ID, "m%d", &is); err != nil || (last[d.Key] != "" && is != was+3) {
				t.Errorf("%q after %q", d.ID, last[d.Key])
			}
			last[d.Key] = d.ID
		} else if d.ID != "keyless" {
			t.Errorf("%q without a key", d.ID)
		}
		ack(t, *d)
	}
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

// A session with a delivery in hand doesn't keep the receiver from the others, and
// isn't let go.
func TestSessionInHand(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, s *emulator.Server, c broker.Conn) {
		if err := s.CreateQueue("q", emulator.QueueProperties{RequiresSession: true}); err != nil {
			t.Fatal(err)
		}
		n, p, r := &namespace{Server: s}, publisherOf(t, c, "q"), receiverOf(t, c, "q")
		publish(t, p, keyed("a1", "a"))
		a1 := receiveOne(t, r)
		publish(t, p, keyed("b1", "b"), keyed("c1", "c"))
		b1, c1 := receiveOne(t, r), receiveOne(t, r)
		publish(t, p, keyed("a2", "a"))
		a2 := receiveOne(t, r)
		if a2.ID != "a2" {
			t.Errorf("%q", a2.ID)
		}
		// Given back, it comes again by the same session.
		if _, err := b1.Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		again := receiveOne(t, r)
		if again.ID != b1.ID || again.Attempt.Number != 2 {
			t.Errorf("%q at attempt %d", again.ID, again.Attempt.Number)
		}
		ack(t, *a1, *a2, *again, *c1)
		if k := n.counts(t, "q"); k.Active != 0 {
			t.Errorf("left: %+v", k)
		}
		// What is done with is let go: another receiver can have it.
		if ds := receive(t, r, 1, 300*time.Millisecond); len(ds) != 0 {
			t.Errorf("%q came", ds[0].ID)
		}
		publish(t, p, keyed("a3", "a"), keyed("b3", "b"), keyed("c3", "c"))
		begin := time.Now()
		ack(t, receiveAll(t, receiverOf(t, c, "q"), 3)...)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A session's order holds when messages come while others are taken, in calls that
// ask for more than there is, and when one is given back though later ones wait here.
func TestSessionOrder(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t, ordered)
	const total = 400
	sent := make(chan error, 1)
	go func() {
		for i := 0; i < total; i += 1 + i%3 {
			var ms []broker.Message
			for k := i; k < min(total, i+1+i%3); k++ {
				ms = append(ms, keyed(fmt.Sprintf("%03d", k), "k"))
			}
			if _, err := p.Publish(context.Background(), ms...); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	done, given := 0, 0
	for done < total {
		ds := receive(t, r, 1+done%13, mustCome)
		if len(ds) == 0 {
			t.Fatalf("%d came", done)
		}
		for i, d := range ds {
			if d.ID != fmt.Sprintf("%03d", done) {
				t.Fatalf("%q came, want %d", d.ID, done)
			}
			if i == len(ds)-1 && d.Attempt.Number == 1 && done%7 == 0 {
				if _, err := d.Nack(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				given++
				break
			}
			ack(t, d)
			done++
		}
	}
	if err := <-sent; err != nil || given == 0 {
		t.Errorf("publish: %v; %d given back", err, given)
	}
}

// A message that is given back goes before one that has come meanwhile.
func TestSessionNackGoesFirst(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t, ordered)
	publish(t, p, keyed("1", "k"))
	first := receiveOne(t, r)
	if ds := receive(t, r, 1, 20*time.Millisecond); len(ds) != 0 {
		t.Fatalf("%q came", ds[0].ID)
	}
	publish(t, p, keyed("2", "k")) // goes to the pull that was interrupted
	if _, err := first.Nack(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1", "2"} {
		d := receiveOne(t, r)
		if d.ID != want {
			t.Fatalf("%q came, want %q", d.ID, want)
		}
		ack(t, *d)
	}
}

// The lock of the session that is read from is renewed.
func TestSessionRenewed(t *testing.T) {
	t.Parallel()
	n, _, _, p, r := ends(t, ordered, func(e *broker.Entity) { e.Lease = 10 * time.Second })
	for i := range 6 {
		publish(t, p, keyed(fmt.Sprint("m", i), "k"))
		d := receiveOne(t, r)
		var s *azservicebus.SessionReceiver
		if !d.As(&s) || s.SessionID() != "k" {
			t.Error("no session")
		}
		ack(t, *d)
		n.Clock().Advance(6 * time.Second)
	}
}

// A lost session ends all its deliveries, without the SDK taking it back in
// silence.
func TestSessionLost(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t, ordered, func(e *broker.Entity) { e.Lease = 10 * time.Second })
	publish(t, p, keyed("a", "k"), keyed("b", "k"), keyed("c", "k"))
	ds := receiveAll(t, r, 3)
	n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Cut, Times: 1})
	begin := time.Now()
	o, err := ds[0].Ack(t.Context())
	if o.State == broker.Confirmed || err == nil {
		t.Errorf("%v", o.State)
	}
	for i := range ds[1:] {
		o, err := ds[i+1].Ack(t.Context())
		wantErr(t, err, broker.ErrLeaseLost)
		if o.State != broker.LeaseLost {
			t.Errorf("%v", o.State)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v", took)
	}
	n.Clock().Advance(11 * time.Second) // if the service hasn't freed it
	ack(t, receiveAll(t, r, 3)...)
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

// Close gives the deliveries back, with an attempt each, and frees the session.
func TestSessionClose(t *testing.T) {
	t.Parallel()
	_, c, e, p, r := ends(t, ordered)
	publish(t, p, keyed("a", "k"), keyed("b", "k"))
	ds := receiveAll(t, r, 2)
	closing(t, r)
	if o, err := ds[0].Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("after Close: %v %v", o.State, err)
	}
	next := receiverOf(t, c, e.Subscription)
	for i, d := range receiveAll(t, next, 2) {
		if d.ID != ds[i].ID || d.Attempt.Number != 2 {
			t.Errorf("%q at attempt %d", d.ID, d.Attempt.Number)
		}
		ack(t, d)
	}
}

// A cancelled Receive that waits for a session leaves none locked. A machine that is
// busy with something else may make a round last longer, not most of them.
func TestSessionCancel(t *testing.T) {
	t.Parallel() // it waits, as a rule
	_, c, e, p, r := ends(t, ordered)
	other := receiverOf(t, c, e.Subscription)
	slow := 0
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []broker.Delivery, 1)
		go func() {
			ds, _ := r.Receive(ctx, 1)
			got <- ds
		}()
		go cancel()
		publish(t, p, keyed(fmt.Sprint("m", i), fmt.Sprint("k", i)))
		if ds := <-got; len(ds) > 0 {
			ack(t, ds...)
			continue
		}
		begin := time.Now()
		ack(t, *receiveOne(t, other))
		if took := time.Since(begin); took > time.Second {
			t.Logf("round %d: %v", i, took)
			slow++
		}
	}
	if slow > 5 {
		t.Errorf("%d of 20 rounds took over a second", slow)
	}
}

// Calls of Receive that are each shorter than it takes to get a session get one
// together: the try to get it goes on between them. When nobody calls any more it is
// given up, and another receiver has the session.
func TestSessionByShortCalls(t *testing.T) {
	t.Parallel() // it waits, as a rule
	n, c, e, p, r := ends(t, ordered)
	publish(t, p, keyed("a", "k"))
	slow := n.inject(t, fault.Fault{API: "attach", Match: e.Topic, Kind: fault.Delay, Delay: 150 * time.Millisecond})
	var d []broker.Delivery
	calls := 0
	for end := time.Now().Add(mustCome); len(d) == 0; calls++ {
		if time.Now().After(end) {
			t.Fatalf("%d calls got no session", calls)
		}
		d = receive(t, r, 1, 20*time.Millisecond)
	}
	if calls < 3 {
		t.Errorf("it came with call %d: the test shows nothing", calls)
	}
	ack(t, d...)
	// A call that is the last one leaves nothing locked.
	closing(t, r)
	publish(t, p, keyed("b", "k"))
	last := receiverOf(t, c, e.Subscription)
	if ds := receive(t, last, 1, 20*time.Millisecond); len(ds) != 0 {
		t.Fatalf("%q came too soon", ds[0].ID)
	}
	slow.Remove()
	begin := time.Now()
	other := receiverOf(t, c, e.Subscription)
	ack(t, receiveAll(t, other, 1)...)
	if took := time.Since(begin); took > 10*time.Second { // a lock that nobody gives back has a minute
		t.Errorf("another receiver waited for %v", took)
	}
}

// The messages of a session that was got come also where a round trip takes longer than
// a session may be idle, and where each call of Receive is shorter than that.
func TestSessionFarAway(t *testing.T) {
	t.Parallel() // it waits, as a rule
	const trip = 3 * defaultSessionIdle
	for name, call := range map[string]time.Duration{"one call": mustCome, "short calls": defaultSessionIdle / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _, e, p, r := ends(t, ordered)
			publish(t, p, keyed("a", "k"), keyed("b", "k"), keyed("c", "l"))
			n.inject(t, fault.Fault{API: "flow", Match: e.Topic, Kind: fault.Delay, Delay: trip})
			var got []string
			for end := time.Now().Add(mustCome); len(got) < 3; {
				if time.Now().After(end) {
					t.Fatalf("only %q came", got)
				}
				ds := receive(t, r, 1, call)
				for i := range ds {
					got = append(got, ds[i].ID)
					if a := ds[i].Attempt.Number; a != 1 {
						t.Errorf("%s came at attempt %d", ds[i].ID, a)
					}
				}
				ack(t, ds...)
			}
			if slices.Index(got, "a") > slices.Index(got, "b") || !slices.Contains(got, "c") {
				t.Errorf("%q came", got)
			}
		})
	}
}

// A session is let go when nothing of it is in hand and nobody receives.
func TestSessionIdle(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, s *emulator.Server, c broker.Conn) {
		if err := s.CreateQueue("q", emulator.QueueProperties{RequiresSession: true}); err != nil {
			t.Fatal(err)
		}
		p, r, other := publisherOf(t, c, "q"), receiverOf(t, c, "q"), receiverOf(t, c, "q")
		publish(t, p, keyed("a", "k"))
		d := receiveOne(t, r)
		publish(t, p, keyed("b", "k"))
		if ds := receive(t, other, 1, 2*idleHold); len(ds) != 0 {
			t.Fatalf("%q came while the session is held", ds[0].ID)
		}
		ack(t, *d)
		begin := time.Now()
		ack(t, *receiveOne(t, other))
		if took := time.Since(begin); took > idleHold+10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
