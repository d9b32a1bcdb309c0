package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t)
	when := time.UnixMilli(1700000000123)
	m := broker.Message{ID: "order-17", Key: "customer-4", Body: []byte("body"), Time: when, Headers: broker.Headers{{Key: "a", Value: "1"}}}
	rs := publish(t, p, m)
	if rs[0].Verdict != broker.Stored || rs[0].Position.Offset == 0 {
		t.Fatalf("receipt %+v", rs[0])
	}
	d := receiveOne(t, r)
	if d.ID != m.ID || d.Key != m.Key || string(d.Body) != "body" || !d.Time.Equal(when) || len(d.Headers) != 1 || d.Headers[0] != m.Headers[0] {
		t.Errorf("came as %+v", d.Message)
	}
	if d.Attempt != (broker.Attempt{Number: 1, Trust: broker.Exact}) || d.Position != rs[0].Position {
		t.Errorf("attempt %+v, position %+v, receipt's %+v", d.Attempt, d.Position, rs[0].Position)
	}
	if left := time.Until(d.Lease); left <= 0 || left > 2*time.Second {
		t.Errorf("lease left: %v", left)
	}
	ack(t, *d)
	again := publish(t, p, m)
	if again[0].Verdict != broker.Duplicate || again[0].Position != rs[0].Position {
		t.Errorf("the second receipt is %+v, want a duplicate at %+v", again[0], rs[0].Position)
	}
	if ds := receive(t, r, 1, 300*time.Millisecond); len(ds) != 0 {
		t.Errorf("came again: %+v", ds)
	}
}

func TestCopyIsAnotherMessage(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t)
	m := message("x")
	replay := m
	replay.Copy = "replay 1"
	rs := publish(t, p, m, replay, replay)
	if rs[0].Verdict != broker.Stored || rs[1].Verdict != broker.Stored || rs[2].Verdict != broker.Duplicate {
		t.Fatalf("verdicts %v %v %v", rs[0].Verdict, rs[1].Verdict, rs[2].Verdict)
	}
	ds := receiveAll(t, r, 2)
	if ds[1].ID != "x" || ds[1].Copy != "replay 1" || ds[0].Copy != "" {
		t.Errorf("came %q/%q and %q/%q", ds[0].ID, ds[0].Copy, ds[1].ID, ds[1].Copy)
	}
}

// A batch larger than the window, and one larger than a pull's channel.
func TestLargeBatches(t *testing.T) {
	t.Parallel()
	c := dialShared(t, MaxInFlight(100), MaxAckPending(3000))
	e := entity(t)
	ensure(t, c, e)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	ms := messages(1500, "m")
	for i, rc := range publish(t, p, ms...) {
		if rc.Verdict != broker.Stored || rc.Position.Offset != uint64(i+1) {
			t.Fatalf("receipt %d is %+v", i, rc)
		}
	}
	ds := receiveAll(t, r, len(ms))
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		if ds[i].ID != ms[i].ID {
			t.Fatalf("delivery %d is %q", i, ds[i].ID)
		}
		s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
	}
	if err := r.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for i := range s {
		if s[i].Outcome.State != broker.Confirmed {
			t.Fatalf("outcome %d is %+v", i, s[i].Outcome)
		}
	}
	if n := pendingAcks(t, c, e); n != 0 {
		t.Errorf("%d acks pending in the server", n)
	}
}

func pendingAcks(t testing.TB, c broker.Conn, e broker.Entity) int {
	t.Helper()
	stream, consumer, _ := splitSubscription(e.Subscription)
	k, err := connOf(t, c).js.Consumer(t.Context(), stream, consumer)
	if err != nil {
		t.Fatal(err)
	}
	return k.CachedInfo().NumAckPending
}

func TestConcurrentPublishers(t *testing.T) {
	t.Parallel()
	c := dialShared(t, MaxInFlight(64))
	e := entity(t)
	ensure(t, c, e)
	p := publisherOf(t, c, e.Topic)
	var wait sync.WaitGroup
	offsets := make([][]uint64, 8)
	for g := range offsets {
		wait.Go(func() {
			rs, err := p.Publish(t.Context(), messages(300, fmt.Sprintf("g%d-", g))...)
			if err != nil {
				t.Error(err)
			}
			for _, r := range rs {
				offsets[g] = append(offsets[g], r.Position.Offset)
			}
		})
	}
	wait.Wait()
	all := slices.Concat(offsets...)
	slices.Sort(all)
	for i, o := range all {
		if o != uint64(i+1) {
			t.Fatalf("position %d is %d", i, o)
		}
	}
	nothingOpen(t, c)
}

// nothingOpen checks that no exchange is left behind.
func nothingOpen(t testing.TB, c broker.Conn) {
	t.Helper()
	m := connOf(t, c).mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.open); n != 0 {
		t.Errorf("%d exchanges left open", n)
	}
}

func TestNack(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	publish(t, p, message("now"), message("later"))
	ds := receiveAll(t, r, 2)
	begin := time.Now()
	for i, delay := range []time.Duration{0, 400 * time.Millisecond} {
		if o, err := ds[i].Nack(t.Context(), delay); err != nil || o.State != broker.Confirmed {
			t.Fatalf("nack: %v %v", o.State, err)
		}
	}
	if o, err := ds[0].Ack(t.Context()); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("ack after nack: %v %v", o.State, err)
	}
	first := receiveOne(t, r)
	if first.ID != "now" || first.Attempt.Number != 2 || time.Since(begin) > 300*time.Millisecond {
		t.Errorf("first came %q, attempt %d, after %v", first.ID, first.Attempt.Number, time.Since(begin))
	}
	second := receiveOne(t, r)
	if second.ID != "later" || second.Attempt.Number != 2 || time.Since(begin) < 400*time.Millisecond {
		t.Errorf("then came %q, attempt %d, after %v", second.ID, second.Attempt.Number, time.Since(begin))
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	const lease = 600 * time.Millisecond
	c, e, p, r := ends(t, func(e *broker.Entity) { e.Lease = lease })
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	// Extended once in time, it doesn't come at the old deadline.
	o, err := d.Extend(t.Context(), 0)
	if err != nil || o.State != broker.Confirmed || !o.Lease.After(d.Lease) {
		t.Fatalf("extend: %+v %v, the lease was %v", o, err, d.Lease)
	}
	other := receiverOf(t, dialShared(t), e.Subscription)
	ds := receive(t, other, 1, mustCome)
	if len(ds) != 1 || ds[0].Attempt.Number != 2 {
		t.Fatalf("redelivered as %+v", ds)
	}
	if early := time.Until(o.Lease); early > 0 {
		t.Errorf("redelivered %v before the extended lease ended", early)
	}
	// The first holder is too late: refused here, the other's delivery stands.
	if o, err := d.Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("late ack: %v %v", o.State, err)
	}
	if n := pendingAcks(t, c, e); n != 1 {
		t.Errorf("%d acks pending, want the other's", n)
	}
	ack(t, ds...)
}

// What the server itself does with a late ack: NATS-F-16.
func TestVendorTakesStaleAck(t *testing.T) {
	t.Parallel()
	c, e, p, _ := ends(t, func(e *broker.Entity) { e.Lease = 200 * time.Millisecond })
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	r1, r2 := receiverOf(t, raw, e.Subscription), receiverOf(t, raw, e.Subscription)
	publish(t, p, message("x"))
	stale := receiveOne(t, r1)
	held := receiveOne(t, r2)
	if held.Attempt.Number != 2 {
		t.Fatalf("attempt %d", held.Attempt.Number)
	}
	if o, err := stale.Ack(t.Context()); err != nil || o.State != broker.Confirmed {
		t.Fatalf("stale ack: %v %v", o.State, err)
	}
	if n := pendingAcks(t, c, e); n != 0 {
		t.Errorf("%d acks pending: the server refused", n)
	}
}

// Order over a nack, and never more than one message under way.
func TestOrdered(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t, func(e *broker.Entity) { e.Ordered = true; e.Lease = 30 * time.Second })
	publish(t, p, messages(3, "m")...)
	begin := time.Now()
	d := receive(t, r, 10, mustCome)
	if len(d) != 1 || d[0].ID != "m0" {
		t.Fatalf("got %d, first %q", len(d), d[0].ID)
	}
	if took := time.Since(begin); took > restGap {
		t.Errorf("Receive waited %v for what can't come", took)
	}
	if _, err := d[0].Nack(t.Context(), 150*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d := receiveOne(t, r)
		if want := fmt.Sprintf("m%d", i); d.ID != want {
			t.Fatalf("came %q, want %q", d.ID, want)
		}
		ack(t, *d)
	}
}

// Receivers wait in line on a consumer that has a message and may not hand it
// out: neither spins, all get their turn.
func TestCrowdedConsumer(t *testing.T) {
	t.Parallel()
	c := dialShared(t, MaxAckPending(4))
	e := entity(t, func(e *broker.Entity) { e.Lease = 4 * time.Second })
	ensure(t, c, e)
	p, r1 := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(6, "m")...)
	held := receiveAll(t, r1, 4)
	var wait sync.WaitGroup
	got := make(chan string, 4)
	for range 2 {
		r := receiverOf(t, c, e.Subscription)
		wait.Go(func() {
			ds, err := r.Receive(t.Context(), 5)
			if err != nil || len(ds) == 0 {
				t.Errorf("%d deliveries, %v", len(ds), err)
				return
			}
			for i := range ds {
				got <- ds[i].ID
				if _, err := ds[i].Ack(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	until(t, "both to wait", func() bool { return waitingPulls(t, c, e) == 2 })
	// That nothing happens needs a while to show.
	nc := client(t, c)
	before := nc.Stats().OutMsgs
	<-time.After(400 * time.Millisecond)
	if n := nc.Stats().OutMsgs - before; n > 4 {
		t.Errorf("%d requests while waiting", n)
	}
	ack(t, held[0])
	if id := <-got; id != "m4" {
		t.Errorf("then came %q", id)
	}
	ack(t, held[1])
	if id := <-got; id != "m5" {
		t.Errorf("then came %q", id)
	}
	// One may have had both.
	publish(t, p, message("m6"))
	wait.Wait()
	ack(t, held[2:]...)
}

// Cancels around the arrival of messages: each message is with one of the two
// receivers within a second.
func TestCancelStrandsNothing(t *testing.T) {
	t.Parallel()
	c, e, p, _ := ends(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	cancelMany(t, p, receiverOf(t, c, e.Subscription), receiverOf(t, dialShared(t), e.Subscription), 1)
	cancelMany(t, p, receiverOf(t, c, e.Subscription), receiverOf(t, dialShared(t), e.Subscription), 5)
}

// cancelMany cancels two hundred Receives of r1 as messages are published, so many
// in each round, and wants what didn't come there to come to r2: within a second, but
// for one time in twenty, for what else the machine does takes time too, and then
// within ten, which is long before the lease ends.
func cancelMany(t *testing.T, p broker.Publisher, r1, r2 broker.Receiver, each int) {
	t.Helper()
	const rounds = 200
	var rests, late int
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan []broker.Delivery, 1)
		go func() {
			ds, err := r1.Receive(ctx, each)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled receive: %v", err)
			}
			out <- ds
		}()
		go func() {
			timer := time.NewTimer(time.Duration(round%100) * 20 * time.Microsecond)
			defer timer.Stop()
			<-timer.C
			cancel()
		}()
		publish(t, p, messages(each, fmt.Sprintf("%d-%d-", each, round))...)
		ds := <-out
		n := len(ds)
		ack(t, ds...)
		begin := time.Now()
		if n < each {
			rests++
		}
		for n < each {
			more := receive(t, r2, each-n, mustCome)
			if len(more) == 0 {
				t.Fatalf("round %d: %d of %d came", round, n, each)
			}
			ack(t, more...)
			n += len(more)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Fatalf("round %d: the rest took %v", round, took)
		} else if took > time.Second {
			late++
		}
	}
	if rests == 0 || late > rests/20 {
		t.Errorf("of %d rounds %d left a rest, of which %d took more than a second", rounds, rests, late)
	}
}

// Close gives back what is held, so that another receiver has it long before
// the lease ends, and refuses the handles.
func TestCloseGivesBack(t *testing.T) {
	t.Parallel()
	c, e, p, r := ends(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	publish(t, p, messages(100, "m")...)
	ds := receiveAll(t, r, 100)
	ack(t, ds[:40]...)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, _ := ds[50].Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("ack after close: %v", o.State)
	}
	if o, _ := ds[0].Ack(t.Context()); o.State != broker.Confirmed {
		t.Errorf("a settled delivery after close: %v", o.State)
	}
	if _, err := r.Receive(t.Context(), 1); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
	last := receiverOf(t, c, e.Subscription)
	again := receiveAll(t, last, 60)
	for _, d := range again {
		if d.Attempt.Number != 2 {
			t.Errorf("%q at attempt %d", d.ID, d.Attempt.Number)
		}
	}
	ack(t, again...)
	// Where all is settled there is nothing to say.
	out := client(t, c).Stats().OutMsgs
	if err := last.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := client(t, c).Stats().OutMsgs - out; n != 0 {
		t.Errorf("%d messages sent to give back nothing", n)
	}
	nothingOpen(t, c)
}

// A Receive that begins while Close is under way comes to the adapter after it: it
// returns, and doesn't wait for a turn that Close has kept.
func TestReceiveBehindClose(t *testing.T) {
	t.Parallel()
	c, e, _, _ := ends(t)
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatal("no driver connection")
	}
	r, err := d.OpenReceiver(t.Context(), e.Subscription, broker.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, r)
	behind := make(chan error, 1)
	go func() { behind <- r.Receive(t.Context(), 1, nil) }()
	select {
	case err := <-behind:
		if !errors.Is(err, broker.ErrClosed) {
			t.Errorf("error is %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it hangs")
	}
}
