package kafka

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// dapr/js-sdk#720: a handler that fails, panics or says nothing loses no
// message: each is delivered again until it is handled.
func TestCaseFailingHandlerLosesNothing(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"group": func(*Options) {}, "share": shares} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := cluster(t, 1)
			conn := dial(t, c, mode)
			if err := conn.Ensure(ctxOf(t, 5*time.Second), broker.Entity{Topic: "t", Subscription: "t/g"}); err != nil {
				t.Fatal(err)
			}
			const n = 30
			publish(t, openPublisher(t, conn, "t"), messages(n, 0, "a", "b", "c")...)
			r := openReceiver(t, conn, "t/g")
			ctx, cancel := context.WithCancel(ctxOf(t, 15*time.Second))
			defer cancel()
			var mu sync.Mutex
			tries, handled := map[string]int{}, map[string]bool{}
			err := broker.Consume(ctx, r, func(_ context.Context, d *broker.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				tries[d.ID]++
				switch {
				case tries[d.ID] > 1:
					handled[d.ID] = true
					if len(handled) == n {
						cancel()
					}
					return nil
				case len(tries)%2 == 0: // every other one at its first try
					panic("the handler's own")
				}
				return errors.New("not this time")
			}, broker.ConsumeOptions{Backoff: broker.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond}, ErrorHook: func(error) {}})
			if err != nil {
				t.Fatal(err)
			}
			if len(handled) != n {
				t.Fatalf("%d of %d handled", len(handled), n)
			}
			if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if left := tryReceive(t, openReceiver(t, conn, "t/g"), 1, 200*time.Millisecond); len(left) > 0 {
				t.Fatalf("%v came again", ids(left))
			}
		})
	}
}
