package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// crashing makes calls in processes that crash at random, as often as a message takes.
type crashing struct {
	keeps time.Duration // how long the provider knows a key
	known map[string]time.Time
	took  map[string]int // calls that took place, by ID
	marks map[string]bool
}

// call is the provider's side.
func (c *crashing) call(id, key string) {
	if at, ok := c.known[key]; key != "" && ok && time.Since(at) < c.keeps {
		return
	}
	c.known[key] = time.Now()
	c.took[id]++
}

// crash ends the process, which is a goroutine, once in a while: nothing behind it
// runs, not even what a panic would.
func crash() {
	if rand.IntN(4) == 0 {
		runtime.Goexit()
	}
}

// process runs f as a process, and reports whether it came to the end.
func process(f func() bool) (done bool) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		done = f()
	}()
	<-end
	return done
}

// TestCallCrashes: 400 messages that come again until they are acked, by processes
// that crash. The ways that one finds lose calls or make them twice; a record around a
// call that the provider knows by its key does neither; without a key nothing is made
// twice, and what nobody knows is on the list.
func TestCallCrashes(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		const messages = 400
		for name, w := range map[string]struct {
			idempotent     time.Duration
			handle         func(c *crashing, calls *dedup.Calls, id string) bool
			lost, twice    bool
			reconciliation bool
		}{
			"marker first": {0, func(c *crashing, _ *dedup.Calls, id string) bool {
				if !c.marks[id] {
					c.marks[id] = true
					crash()
					c.call(id, "")
				}
				return true
			}, true, false, false},
			"call first": {0, func(c *crashing, _ *dedup.Calls, id string) bool {
				if !c.marks[id] {
					c.call(id, "")
					crash()
					c.marks[id] = true
				}
				return true
			}, false, true, false},
			"recorded, with a key":    {24 * time.Hour, recorded, false, false, false},
			"recorded, without a key": {0, recorded, false, false, true},
		} {
			c := &crashing{w.idempotent, map[string]time.Time{}, map[string]int{}, map[string]bool{}}
			calls, err := dedup.NewCalls(newFakeCalls(), "c", dedup.CallOptions{Idempotent: w.idempotent, Bound: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			reconciled := 0
			for i := range messages {
				id := fmt.Sprint("m", i)
				for !process(func() bool { return w.handle(c, calls, id) }) {
					time.Sleep(3 * time.Second) // the broker's redelivery
					list, err := calls.Open(t.Context(), dedup.Call{}, 0)
					if err != nil {
						t.Fatal(err)
					}
					for _, call := range list {
						if call.State != dedup.CallUnresolved {
							continue
						}
						if reconciled++; c.took[call.ID] > 0 { // somebody looks it up
							err = calls.Resolve(t.Context(), call, nil, "")
						} else {
							err = calls.Resume(t.Context(), call, "")
						}
						if err != nil {
							t.Error(err)
						}
					}
				}
			}
			lost, twice := 0, 0
			for i := range messages {
				switch n := c.took[fmt.Sprint("m", i)]; {
				case n == 0:
					lost++
				case n > 1:
					twice++
				}
			}
			t.Logf("%s: %d lost, %d made twice, %d reconciled", name, lost, twice, reconciled)
			if lost > 0 != w.lost || twice > 0 != w.twice || reconciled > 0 != w.reconciliation {
				t.Errorf("%s: %d lost, %d made twice, %d reconciled", name, lost, twice, reconciled)
			}
		}
	})
}

// recorded handles a message by calls, and crashes between any two steps.
func recorded(c *crashing, calls *dedup.Calls, id string) bool {
	crash()
	outcome, _, err := calls.Once(context.Background(), id, nil, func(_ context.Context, key string) ([]byte, error) {
		crash()
		if rand.IntN(10) == 0 {
			return nil, dedup.NotDone(errors.New("refused"))
		}
		if c.keeps == 0 {
			key = ""
		}
		c.call(id, key)
		crash()
		if rand.IntN(10) == 0 {
			return nil, errTimeout
		}
		return nil, nil
	})
	crash()
	return outcome.OK() && err == nil
}
