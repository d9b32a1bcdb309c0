package sqs

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// A hundred opens and closes leave no goroutine (TestMain looks too) and no
// connection.
func TestOpenClose(t *testing.T) {
	c := dialShared(t)
	e := entity(t)
	ensure(t, c, e)
	publish(t, publisherOf(t, c, e.Topic), message("x"))
	before := 0
	for n := range 100 {
		c, err := broker.Open(t.Context(), endpoint+"?anonymous=true&wait=0s")
		if err != nil {
			t.Fatal(err)
		}
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		d := receiveOne(t, r) // held as its receiver closes
		if d.Attempt.Number != n+1 {
			t.Fatalf("attempt %d in round %d", d.Attempt.Number, n+1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = r.Receive(ctx, 1)
		cancel()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), message("y")); !errors.Is(err, broker.ErrClosed) {
			t.Fatalf("publish after close: %v", err)
		}
		if n == 20 {
			before = runtime.NumGoroutine()
		}
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// Fifty cancelled receives, with a message that comes at any moment of them,
// leave none locked: each is there at once for whoever receives next.
func TestCancelledReceives(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		c, _, e, p, _ := tappedEnds(t, fifo)
		long := dialShared(t, FIFO(fifo)) // with long polls
		r, other := receiverOf(t, long, e.Subscription), receiverOf(t, c, e.Subscription)
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%10)*200*time.Microsecond)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = p.Publish(context.Background(), messages(50, "m")[i])
			}()
			ds, err := r.Receive(ctx, 1)
			cancel()
			<-sent
			if err != nil {
				begin := time.Now()
				if ds = receive(t, other, 1, mustCome); len(ds) != 1 || time.Since(begin) > time.Second {
					t.Fatalf("round %d: %d after %v", i, len(ds), time.Since(begin))
				}
			}
			ack(t, ds...)
		}
		if ds := receive(t, other, 1, 50*time.Millisecond); len(ds) > 0 {
			t.Errorf("%s is left", ids(ds))
		}
	})
}
