package sqs

import (
	"context"
	"sync"
	"time"
)

// inline runs a poll that doesn't wait in the goroutine of a Receive, which then
// returns with its answer: for a queue where the last poll found all that it
// asked for, the next will hardly be empty, and the way over another goroutine
// is saved. When ctx ends the answer is awaited for up to stallGrace all the same.
func (r *receiver) inline(ctx context.Context, p *poll) {
	own := r.guard.begin(ctx, r.life.ctx, p.began)
	defer r.guard.end()
	r.run(own, p)
}

// guard ends inline polls that are stuck. Each is over within microseconds as a rule,
// so that a timer and a context for each would cost more than all else of it: one
// timer looks after those under way, and they share a context until one was stuck.
type guard struct {
	mu     sync.Mutex
	caller context.Context // of the poll under way, or nil
	began  time.Time       // that poll
	late   bool            // its caller's context had ended at the last look
	own    context.Context // of polls, or nil
	cancel context.CancelFunc
	timer  *time.Timer
	set    bool
}

// guardLook is how often the guard looks: a poll is ended by the second look after
// its caller's context has.
const guardLook = stallGrace / 2

// begin returns the context for a poll.
func (g *guard) begin(ctx, life context.Context, now time.Time) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.caller, g.began, g.late = ctx, now, false
	if g.own == nil {
		g.own, g.cancel = context.WithCancel(life)
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(guardLook, g.look)
	} else if !g.set {
		g.timer.Reset(guardLook)
	}
	g.set = true
	return g.own
}

func (g *guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.caller = nil
}

// look is the timer's. It is set anew while there are polls.
func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.set = g.caller != nil; !g.set {
		return
	}
	ended := g.caller.Err() != nil
	if ended && g.late || time.Since(g.began) > answerMargin {
		g.cancel()
		g.own = nil
	}
	g.late = ended
	g.timer.Reset(guardLook)
}

// stop is called when no poll is under way and none will be.
func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	if g.own != nil {
		g.cancel()
	}
}
