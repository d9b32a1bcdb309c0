package driver

import "sync"

// Tasks are goroutines that an adapter starts beside its calls and that end before its
// Close does. Unlike a sync.WaitGroup it may be asked for one more while it is waited
// for: by a call that Close has no more time to wait for. The zero value is ready.
type Tasks struct {
	mu      sync.Mutex
	over    bool
	running sync.WaitGroup
}

// Go calls f in a goroutine. Once Wait has been called it reports false, and doesn't.
func (t *Tasks) Go(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.running.Go(f)
	return true
}

// Do is Go, or calls f itself and returns after it: for what has to be done by
// somebody.
func (t *Tasks) Do(f func()) {
	if !t.Go(f) {
		f()
	}
}

// Wait blocks until all have returned. None begins after it was called.
func (t *Tasks) Wait() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
}
