package driver

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestTasks: whatever is asked for while others wait either ends before they go on or
// isn't begun, and what must be done is done.
func TestTasks(t *testing.T) {
	for range 200 {
		var tasks Tasks
		var begun, ended, done atomic.Int32
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				if tasks.Go(func() { ended.Add(1) }) {
					begun.Add(1)
				}
				tasks.Do(func() {
					tasks.Do(func() { done.Add(1) }) // one asks for another
				})
			})
		}
		tasks.Wait()
		before := ended.Load()
		callers.Wait()
		if after := ended.Load(); after != before || begun.Load() != after || done.Load() != 4 {
			t.Fatalf("%d begun, %d ended before Wait did and %d in all; %d of 4 done", begun.Load(), before, after, done.Load())
		}
		if tasks.Go(func() {}) {
			t.Fatal("one begins after Wait")
		}
	}
}
