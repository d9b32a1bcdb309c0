package driver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
)

func TestGate(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var g gate
		g.wait(t.Context()) // open and empty
		for range 2 {
			if !g.enter() {
				t.Fatal("an open gate let nobody in")
			}
		}
		g.shut()
		g.shut()
		if g.enter() {
			t.Error("a shut gate let somebody in")
		}
		through := make(chan struct{})
		go func() { g.wait(context.Background()); close(through) }()
		g.leave()
		synctest.Wait()
		select {
		case <-through:
			t.Error("wait ended while a call was inside")
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if g.wait(ctx); time.Since(start) != time.Second {
			t.Errorf("a bounded wait took %s", time.Since(start))
		}
		g.leave()
		<-through
		g.wait(context.Background())
		g.shut()
		g.wait(context.Background())
	})
}
