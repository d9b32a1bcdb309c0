package sqltx

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
)

// TestWait: others are waited for as long as the context lasts, and no other error is.
func TestWait(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		busy, wrong := errors.New("in other hands"), errors.New("wrong")
		others := func(err error) bool { return errors.Is(err, busy) }
		until := time.Now().Add(time.Hour)
		if err := Wait(t.Context(), others, func() error {
			if time.Now().Before(until) {
				return busy
			}
			return nil
		}); err != nil || time.Since(until) > time.Second {
			t.Errorf("%v, %v after they were done", err, time.Since(until))
		}
		calls := 0
		if err := Wait(t.Context(), others, func() error { calls++; return wrong }); err != wrong || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		err := Wait(ctx, others, func() error { return busy })
		if !errors.Is(err, busy) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waited 1m30s") {
			t.Error(err)
		}
		// What the end of the context does to an attempt isn't what it waited for.
		cut, end := context.WithCancel(t.Context())
		calls = 0
		err = Wait(cut, others, func() error {
			if calls++; calls < 3 {
				return busy
			}
			end()
			return wrong
		})
		if !errors.Is(err, busy) || !errors.Is(err, context.Canceled) || errors.Is(err, wrong) {
			t.Error(err)
		}
	})
}
