package bubbletest_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
)

// TestTimersDueAtOnce is what crashes the race detector in a bubble of synctest's own.
func TestTimersDueAtOnce(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	var bubbles sync.WaitGroup
	for range 2 {
		bubbles.Go(func() {
			for range 20 {
				bubbletest.Run(t, func(*testing.T) {
					var all sync.WaitGroup
					for range 8 {
						all.Go(func() {
							for range 2000 {
								due := time.NewTimer(0)
								select {
								case <-due.C:
								default:
								}
							}
						})
					}
					all.Wait()
				})
			}
		})
	}
	bubbles.Wait()
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("%d processors, %d before", after, before)
	}
}
