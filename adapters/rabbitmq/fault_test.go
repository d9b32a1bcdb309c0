package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// TestNothingIsLeftBehind opens and closes many times, and cancels many receives:
// no goroutine stays, and no message is locked.
func TestNothingIsLeftBehind(t *testing.T) {
	h := emulate(t)
	look := h.dial(t)
	e := entity(t, look)
	before := runtime.NumGoroutine()
	for i := range 100 {
		c, err := Dial(t.Context(), h.url(), quiet())
		if err != nil {
			t.Fatal(err)
		}
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(1, i)...)
		if i%2 == 0 {
			receive(t, r, 1) // held as it closes
		}
		if i%3 == 0 {
			closing(t, r)
			closing(t, p)
		}
		closing(t, c)
	}
	c := h.dial(t)
	r := receiverOf(t, c, e.Subscription)
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			cancel()
		}()
		ds, err := r.Receive(ctx, 3)
		if (len(ds) == 0) == (err == nil) {
			t.Fatalf("%d deliveries, %v", len(ds), err)
		}
		wantStates(t, settle(t, r, broker.Nack, ds...), broker.Sent)
	}
	closing(t, r)
	ch := h.raw(t)
	eventually(t, "all messages can be had", func() bool { return ready(t, ch, e.Subscription) == 100 })
	closing(t, c)
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+10 }) // the raw client and the emulator's ends
}

// TestSilentBroker: a broker that says nothing any more holds nobody beyond the
// context, Close included.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	var silent atomic.Bool
	proxy := newTap(t, h.addr, func(frame []byte) []byte {
		if silent.Load() {
			return nil
		}
		return frame
	})
	c, err := Dial(t.Context(), "rabbitmq://"+proxy.addr+"/", quiet())
	if err != nil {
		t.Fatal(err)
	}
	e := entity(t, h.dial(t))
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(3, 0)...)
	ds := receive(t, r, 2)
	silent.Store(true)
	bounded := func(what string, limit time.Duration, f func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		f(ctx)
		if took := time.Since(begin); took > limit {
			t.Errorf("%s took %s", what, took)
		}
	}
	bounded("Receive", time.Second, func(ctx context.Context) {
		if _, err := r.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	bounded("the next Receive", time.Second, func(ctx context.Context) {
		if _, err := r.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	bounded("Publish", time.Second, func(ctx context.Context) {
		if rs, err := p.Publish(ctx, messages(1, 9)...); !errors.Is(err, broker.ErrUnknownOutcome) || rs[0].Verdict != broker.Unknown {
			t.Error(rs, err)
		}
	})
	bounded("Nack with a delay", time.Second, func(ctx context.Context) {
		if o, err := ds[0].Nack(ctx, time.Second); err == nil || o.State.OK() {
			t.Error(o, err)
		}
	})
	bounded("OpenReceiver", time.Second, func(ctx context.Context) {
		if _, err := c.OpenReceiver(ctx, e.Subscription); err == nil {
			t.Error("opened")
		}
	})
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)                     // the nack left it as it was
	bounded("Close", 2*time.Second, func(ctx context.Context) { _ = c.Close(ctx) }) // an error says what couldn't be done
	ch := h.raw(t)
	eventually(t, "what was not acked is there", func() bool { return ready(t, ch, e.Subscription) == 2 })
}

// TestConsumerCancelled: a standing consumer that the broker cancels ends its
// handles, and is made again.
func TestConsumerCancelled(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t, Window(10))
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(2, 0)...)
	old := receive(t, r, 1)[0]
	if _, err := h.raw(t).QueueDelete(e.Subscription, false, false, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handle ends", func() bool {
		o, _ := old.Extend(t.Context(), 0)
		return o.State == broker.LeaseLost
	})
	got := make(chan []broker.Delivery, 1)
	go func() { got <- receive(t, r, 1) }()
	eventually(t, "a publish", func() bool {
		_, err := p.Publish(t.Context(), messages(1, 7)...)
		return err == nil
	})
	if ds := <-got; ds[0].ID != "m-7" {
		t.Fatal(ds)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	nc, err := amqp.Dial("amqp://guest:guest@" + h.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(nc, quiet())
	if err != nil {
		t.Fatal(err)
	}
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(10, 0)...)
	ds := receive(t, r, 10)
	wantStates(t, settle(t, r, broker.Ack, ds[1:]...), broker.Sent)
	if o, err := ds[0].Nack(t.Context(), 20*time.Millisecond); err != nil || o.State != broker.Sent {
		t.Fatal(o, err)
	}
	receive(t, r, 1)
	closing(t, r)
	closing(t, p)
	closing(t, c)
	if nc.IsClosed() {
		t.Fatal("the caller's client was closed")
	}
	if err := nc.Close(); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"closed": func() error { _, err := New(nc); return err },
		"nil":    func() error { _, err := New(nil); return err },
	} {
		if err := f(); !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRestart: what was confirmed is there after a crash of the broker, and both
// ends come back by themselves.
func TestRestart(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	for round := range 3 {
		publish(t, p, messages(50, 100*round)...)
		held := receive(t, r, 10)
		h.Restart(true)
		eventually(t, "the handles end", func() bool {
			o, _ := held[0].Extend(t.Context(), 0)
			return o.State == broker.LeaseLost
		})
		seen := map[string]bool{}
		for _, d := range receive(t, r, 50) {
			seen[d.ID] = true
			wantStates(t, settle(t, r, broker.Ack, d), broker.Sent)
		}
		for i := range 50 {
			if id := fmt.Sprintf("m-%d", 100*round+i); !seen[id] {
				t.Fatalf("%s is lost", id)
			}
		}
	}
}

// TestLateHaul: what arrives for a Receive that has returned is given back.
func TestLateHaul(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	var held atomic.Pointer[chan struct{}]
	proxy := newTap(t, h.addr, func(frame []byte) []byte {
		if c := held.Load(); c != nil && isDeliver(frame) {
			<-*c
		}
		return frame
	})
	c := dialURL(t, "rabbitmq://"+proxy.addr+"/")
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(2, 0)...)
	release := make(chan struct{})
	held.Store(&release)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		ch := h.raw(t)
		eventually(t, "the messages are on their way", func() bool { return ready(t, ch, e.Subscription) == 0 })
	}()
	if ds, err := r.Receive(ctx, 2); !errors.Is(err, context.Canceled) || len(ds) > 0 {
		t.Fatal(ds, err)
	}
	<-done
	held.Store(nil)
	close(release)
	other := receiverOf(t, h.dial(t), e.Subscription)
	for _, d := range receive(t, other, 2) {
		if d.Attempt.Number != 2 { // else it hadn't been handed over before
			t.Fatalf("%s: attempt %d", d.ID, d.Attempt.Number)
		}
	}
}

// isDeliver reports whether a frame is the method basic.deliver.
func isDeliver(frame []byte) bool {
	return len(frame) > 11 && frame[0] == 1 && bytes.Equal(frame[7:11], []byte{0, 60, 0, 60})
}

// TestConsume runs the loop of package broker over connections that are cut, with
// messages that fail at first: each is handled, and nothing stays.
func TestConsume(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	for name, opts := range map[string][]Option{"exact": nil, "window": {Window(16)}} {
		t.Run(name, func(t *testing.T) {
			c := h.dial(t, opts...)
			e := entity(t, c, func(e *broker.Entity) { e.MaxDeliveries, e.DeadLetter = 50, "/"+e.Topic+"-dead" })
			p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
			publish(t, p, messages(200, 0)...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			tries := map[string]int{}
			done := map[string]bool{}
			ended := make(chan error, 1)
			go func() {
				ended <- broker.Consume(ctx, r, func(_ context.Context, d *broker.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					if tries[d.ID]++; tries[d.ID] == 1 && len(tries)%5 == 0 {
						return errors.New("not yet")
					}
					done[d.ID] = true
					return nil
				}, broker.ConsumeOptions{Backoff: broker.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}, ErrorHook: func(error) {}})
			}()
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(done)
			}
			eventually(t, "some are done", func() bool { return count() > 20 })
			h.cut()
			eventually(t, "all are done", func() bool { return count() == 200 })
			ch := h.raw(t)
			// What was handled as the connection went may come once more.
			eventually(t, "nothing waits", func() bool { return ready(t, ch, e.Subscription) == 0 })
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			closing(t, r)
			if n := ready(t, ch, e.Subscription); n > 0 {
				t.Fatalf("%d are there still", n)
			}
		})
	}
}
