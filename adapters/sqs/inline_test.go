package sqs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
)

// A poll that is stuck ends within stallGrace of its caller's context, and not before
// half of that; one that is stuck for answerMargin ends without.
func TestGuardEndsStuckPolls(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var g guard
		defer g.stop()
		for name, c := range map[string]struct{ before, ends, least, most time.Duration }{
			"caller":   {100 * time.Millisecond, 0, stallGrace / 2, stallGrace},
			"late":     {0, 700 * time.Millisecond, stallGrace / 2, stallGrace},
			"no limit": {0, time.Hour, answerMargin - time.Hour, answerMargin + guardLook - time.Hour},
		} {
			time.Sleep(c.before)
			ctx, cancel := context.WithTimeout(t.Context(), c.ends)
			begun := time.Now()
			own := g.begin(ctx, t.Context(), begun)
			<-own.Done()
			g.end()
			cancel()
			if late := time.Since(begun) - c.ends; late < c.least || late > c.most {
				t.Errorf("%s: ended %s after its caller's context, want %s to %s", name, late, c.least, c.most)
			}
		}
	})
}

// Polls that are answered share a context, and the guard rests when there are none.
func TestGuardLeavesOthersAlone(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var g guard
		defer g.stop()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		first := g.begin(ended, t.Context(), time.Now())
		g.end()
		for range 20 {
			own := g.begin(ended, t.Context(), time.Now())
			time.Sleep(guardLook - time.Millisecond)
			if own != first || own.Err() != nil {
				t.Fatalf("another context, or ended: %v", own.Err())
			}
			g.end()
		}
		time.Sleep(3 * guardLook)
		synctest.Wait()
		if g.mu.Lock(); g.set {
			t.Error("the guard looks on")
		}
		g.mu.Unlock()
		life, end := context.WithCancel(t.Context())
		var other guard
		defer other.stop()
		own := other.begin(t.Context(), life, time.Now())
		end()
		if own.Err() == nil {
			t.Error("a poll outlives its receiver")
		}
		other.end()
	})
}
