package pubsub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
)

// Fifty cancels around the arrival of messages: each message is with one of the
// two receivers within a second, and none stays leased.
func TestCancelStrandsNothing(t *testing.T) {
	both(t, func(t *testing.T, once bool, _ broker.State) {
		g := ends(t, once)
		other := receiverOf(t, g.dial(t), g.e.Subscription)
		const rounds, each = 50, 5
		for round := range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			out := make(chan []broker.Delivery, 1)
			go func() {
				ds, err := g.rcv.Receive(ctx, each)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled receive: %v", err)
				}
				out <- ds
			}()
			timer := time.AfterFunc(time.Duration(round*20)*time.Microsecond, cancel)
			publish(t, g.pub, messages(each, fmt.Sprintf("r%d-", round))...)
			ds := <-out
			timer.Stop()
			cancel()
			n := len(ds)
			ack(t, g.rcv, ds...)
			begin := time.Now()
			for n < each {
				more := receive(t, other, each-n, mustCome)
				if len(more) == 0 {
					t.Fatalf("round %d: %d of %d came", round, n, each)
				}
				ack(t, other, more...)
				n += len(more)
			}
			if took := time.Since(begin); took > time.Second {
				t.Fatalf("round %d: the rest took %v", round, took)
			}
		}
		if err := g.rcv.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		nothing(t, other)
		g.Clock().Advance(11 * time.Second) // nothing was leased to nobody
		nothing(t, other)
	})
}

// A pull that a cancelled Receive left behind serves the next one, which gets no
// more than it asks for; the rest goes back.
func TestPullIsTakenOver(t *testing.T) {
	g := patient(t, true)
	i := g.inject(t, fault.Fault{Op: fault.Receive, Kind: fault.Delay, Delay: 2 * time.Second, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := g.rcv.Receive(ctx, 10)
		errs <- err
	}()
	hit(t, i)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	publish(t, g.pub, messages(4, "m")...)
	got := make(chan []broker.Delivery, 1)
	go func() {
		ds, err := g.rcv.Receive(t.Context(), 2)
		if err != nil {
			t.Error(err)
		}
		got <- ds
	}()
	other := receiverOf(t, g.dial(t), g.e.Subscription)
	deadline := time.Now().Add(5 * time.Second)
	var r *receiver
	if !g.rcv.As(&r) {
		t.Fatal("no receiver")
	}
	for {
		r.mu.Lock()
		taken := r.running == nil
		r.mu.Unlock()
		if taken {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the pull isn't taken over")
		}
		runtime.Gosched()
	}
	// The answer to what goes back is lost, which is nothing to Receive.
	lost := g.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Times: 1})
	begin := time.Now()
	g.Clock().Advance(2 * time.Second)
	ds := <-got
	if took := time.Since(begin); took > giveBackTime/2 {
		t.Errorf("Receive waited %v for it", took)
	}
	applied(t, lost)
	if len(ds) != 2 {
		t.Fatalf("%d deliveries", len(ds))
	}
	ack(t, g.rcv, ds...)
	ack(t, other, receiveAll(t, other, 2)...)
}

// Close gives back what is held, so that another receiver has it long before the
// lease ends, and refuses the handles.
func TestCloseGivesBack(t *testing.T) {
	both(t, func(t *testing.T, once bool, state broker.State) {
		g := ends(t, once)
		publish(t, g.pub, messages(100, "m")...)
		ds := receiveAll(t, g.rcv, 100)
		ack(t, g.rcv, ds[:40]...)
		if err := g.rcv.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o, _ := ds[50].Ack(t.Context()); o.State != broker.LeaseLost {
			t.Errorf("ack after close: %v", o.State)
		}
		if o, _ := ds[0].Ack(t.Context()); o.State != state {
			t.Errorf("a settled delivery after close: %v", o.State)
		}
		if _, err := g.rcv.Receive(t.Context(), 1); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("receive after close: %v", err)
		}
		last := receiverOf(t, g.conn, g.e.Subscription)
		ack(t, last, receiveAll(t, last, 60)...)
		nothing(t, last)
	})
}

// Close ends a Receive and a Settle that has no answer, within its time.
func TestCloseEndsCalls(t *testing.T) {
	g := ends(t, true)
	publish(t, g.pub, message("x"))
	d := receiveOne(t, g.rcv)
	i := g.inject(t, fault.Fault{Op: fault.Settle, API: "Acknowledge", Kind: fault.LoseResponse, Times: 1})
	outcomes := make(chan broker.Outcome, 1)
	go func() {
		o, _ := d.Ack(t.Context())
		outcomes <- o
	}()
	applied(t, i)
	errs := make(chan error, 1)
	go func() {
		_, err := g.rcv.Receive(t.Context(), 1)
		errs <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_ = g.rcv.Close(ctx) // what it says depends on where the Receive was
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
	if o := <-outcomes; o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) {
		t.Errorf("%+v", o)
	}
	if err := <-errs; !errors.Is(err, broker.ErrClosed) {
		t.Errorf("receive: %v", err)
	}
}

// A hundred opens and closes, each with a cancelled receive, leave no goroutine
// and no leased message. TestMain looks at the goroutines once more.
func TestOpenCloseLeavesNothing(t *testing.T) {
	s := start(t)
	e := entity()
	first := s.dial(t)
	ensure(t, first, e)
	publish(t, publisherOf(t, first, e.Topic), message("x"))
	cycle := func() {
		c, err := Dial(t.Context(), "p", Endpoint(s.addr), Clock(s.Clock()), PullWait(minPullWait))
		if err != nil {
			t.Fatal(err)
		}
		r := receiverOf(t, c, e.Subscription)
		publisherOf(t, c, e.Topic)
		ctx, cancel := context.WithCancel(t.Context())
		if ds, err := r.Receive(ctx, 1); err != nil || len(ds) != 1 {
			t.Fatalf("%d deliveries, %v", len(ds), err)
		}
		time.AfterFunc(time.Millisecond, cancel)
		if ds, err := r.Receive(ctx, 1); len(ds) > 0 || !errors.Is(err, context.Canceled) {
			t.Fatalf("%d deliveries, %v", len(ds), err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := runtime.NumGoroutine()
	for range 100 {
		cycle()
	}
	deadline := time.Now().Add(3 * time.Second)
	for runtime.NumGoroutine() > before+4 {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
	r := receiverOf(t, first, e.Subscription)
	ack(t, r, *receiveOne(t, r)) // it isn't leased
}

// A Receive that begins while Close is under way comes to the adapter after it: it
// returns, and doesn't wait for a turn that Close has kept.
func TestReceiveBehindClose(t *testing.T) {
	x := ends(t, false)
	c, e := x.conn, x.e
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatal("no driver connection")
	}
	r, err := d.OpenReceiver(t.Context(), e.Subscription, broker.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
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
