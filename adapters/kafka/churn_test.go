package kafka

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// twmb/franz-go#1222, as far as it can arise without franz-go's transaction
// session: over rebalances nothing is skipped, and what was Confirmed doesn't
// come again.
func TestCaseNoGapOverRebalances(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"classic": func(*Options) {}, "consumer": nextGen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const parts = 4
			c, _ := cluster(t, parts)
			conn := dial(t, c, mode)
			var mu sync.Mutex
			confirmed := map[string]bool{}
			sent, visits, over := 0, 0, false
			work := func(r broker.Receiver, until func(had int) bool) {
				for had := 0; !until(had); {
					ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
					ds, err := r.Receive(ctx, 7)
					cancel()
					if err != nil {
						continue
					}
					had += len(ds)
					mu.Lock()
					for _, d := range ds {
						if confirmed[d.ID] {
							t.Errorf("%s was confirmed and came again", d.ID)
						}
					}
					mu.Unlock()
					for i, o := range settle(t, r, broker.Ack, ds...) {
						if o.State == broker.Confirmed {
							mu.Lock()
							confirmed[ds[i].ID] = true
							mu.Unlock()
						}
					}
				}
			}
			all := func(int) bool { mu.Lock(); defer mu.Unlock(); return over && len(confirmed) >= sent }
			var wait sync.WaitGroup
			steady := openReceiver(t, conn, "t/g")
			wait.Go(func() { work(steady, all) })
			wait.Go(func() { // members come and go
				for !all(0) && !t.Failed() {
					r := openReceiver(t, conn, "t/g")
					work(r, func(had int) bool { return all(0) || had > 20 })
					mu.Lock()
					visits++
					mu.Unlock()
					if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
						t.Error(err)
					}
				}
			})
			p := openPublisher(t, conn, "t")
			for end := time.Now().Add(20 * time.Second); !over; {
				publish(t, p, messages(10, sent, "a", "b", "c", "d", "e", "f", "g", "h")...)
				mu.Lock()
				sent += 10
				mu.Unlock()
				eventually(t, "the consumers keep up", func() bool { mu.Lock(); defer mu.Unlock(); return len(confirmed) > sent-200 })
				mu.Lock()
				over = visits >= 2 || time.Now().After(end)
				mu.Unlock()
			}
			eventually(t, "all is confirmed", func() bool { return all(0) })
			wait.Wait()
			if visits < 2 {
				t.Errorf("%d members came and went", visits)
			}
			for part := range int32(parts) {
				if at, end := committedAt(t, conn, "g", part), c.PartitionInfo("t", part).HighWatermark; at != end && end > 0 {
					t.Errorf("partition %d: committed %d of %d", part, at, end)
				}
			}
		})
	}
}

// Opening and closing leaves nothing behind.
func TestOpenCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"group": func(*Options) {}, "share": shares} {
		t.Run(name, func(t *testing.T) {
			c, _ := cluster(t, 1)
			conn := dial(t, c, mode)
			if err := conn.Ensure(ctxOf(t, 5*time.Second), broker.Entity{Topic: "t", Subscription: "t/g"}); err != nil {
				t.Fatal(err)
			}
			publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
			before := clientGoroutines()
			var wait sync.WaitGroup
			for w := range 10 {
				wait.Go(func() {
					for i := range 10 {
						p, err := conn.OpenPublisher(ctxOf(t, 5*time.Second), "t")
						if err != nil {
							t.Error(err)
							return
						}
						r, err := conn.OpenReceiver(ctxOf(t, 5*time.Second), fmt.Sprint("t/g", 10*w+i))
						if err != nil {
							t.Error(err)
							return
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
						_, _ = r.Receive(ctx, 1) // a receiver in the midst of joining
						cancel()
						if err := errors.Join(p.Close(ctxOf(t, 5*time.Second)), r.Close(ctxOf(t, 5*time.Second))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			eventually(t, "no goroutine is left", func() bool { return clientGoroutines() <= before })
		})
	}
}

// clientGoroutines counts the goroutines of the adapter and its SDK. The broker
// runs in this process too, and its ends of connections go when it notices.
func clientGoroutines() (n int) {
	buf := make([]byte, 16<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "pkg/kgo.") || strings.Contains(g, "adapters/kafka.(*") && !strings.Contains(g, "kfake.") {
			n++
		}
	}
	return n
}
