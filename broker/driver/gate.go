package driver

import (
	"context"
	"sync"
)

// gate counts the calls under way and closes once. Its zero value is open.
type gate struct {
	mu      sync.Mutex
	shutYet bool
	inside  int
	empty   chan struct{} // made by shut if calls are inside
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutYet {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shutYet = true
	if g.inside > 0 && g.empty == nil {
		g.empty = make(chan struct{})
	}
}

// wait blocks until the last call has left or ctx ends.
func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	empty := g.empty
	g.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
