// Package bubbletest runs tests in bubbles of testing/synctest, also where the race
// detector looks on.
package bubbletest

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Run is synctest.Test. With the race detector one goroutine of the process runs at a
// time meanwhile: goroutines of a bubble whose timers are due at once share a context of
// the detector, which crashes the process when they use it at the same time
// (https://go.dev/issue/78156, in Go 1.26). What races is found all the same: the
// detector goes by what is ordered, not by what happens at once.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if race {
		narrow()
		defer widen()
	}
	synctest.Test(t, f)
}

var processors struct {
	mu      sync.Mutex
	bubbles int // that run now
	before  int
}

func narrow() {
	p := &processors
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles++; p.bubbles == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
}

func widen() {
	p := &processors
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bubbles--; p.bubbles == 0 {
		runtime.GOMAXPROCS(p.before)
	}
}
