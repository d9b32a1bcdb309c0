package clock_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/clock"
)

func TestAdvanceCallsInOrder(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c := clock.New()
		defer c.Close()
		start := c.Now()
		var got []string
		note := func(name string) func() {
			return func() { got = append(got, fmt.Sprintf("%s %s", name, c.Now().Sub(start))) }
		}
		c.AfterFunc(3*time.Minute, note("c"))
		c.AfterFunc(time.Minute, func() {
			note("a")()
			c.AfterFunc(time.Minute, note("b")) // added on the way
		})
		stopped := c.AfterFunc(2*time.Minute, note("stopped"))
		if !stopped.Stop() || stopped.Stop() {
			t.Error("Stop says true once")
		}
		c.AfterFunc(time.Hour, note("late"))
		c.Advance(4 * time.Minute)
		if want := []string{"a 1m0s", "b 2m0s", "c 3m0s"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if now := c.Now().Sub(start); now != 4*time.Minute {
			t.Errorf("%s have passed", now)
		}
	})
}

func TestRealTimeRuns(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c := clock.New()
		defer c.Close()
		c.Advance(time.Hour)
		var mu sync.Mutex
		calls := 0
		count := func() { mu.Lock(); defer mu.Unlock(); calls++ }
		c.AfterFunc(time.Second, count)
		c.AfterFunc(-time.Second, count)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if mu.Lock(); calls != 1 {
			t.Errorf("%d calls before the second, want the one that was due at once", calls)
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if mu.Lock(); calls != 2 {
			t.Errorf("%d calls after the second, want 2", calls)
		}
		mu.Unlock()
	})
}

func TestCloseStopsAll(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c := clock.New()
		called := false
		timer := c.AfterFunc(time.Second, func() { called = true })
		c.Close()
		c.AfterFunc(time.Second, func() { called = true })
		time.Sleep(time.Minute)
		c.Advance(time.Minute)
		synctest.Wait()
		if called || timer.Stop() {
			t.Error("a function was called, or waited, after Close")
		}
	})
}
