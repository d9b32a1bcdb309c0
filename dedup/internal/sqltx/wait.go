package sqltx

import (
	"context"
	"fmt"
	"time"
)

// Wait calls f until its error isn't one of those that others cause, who are in the way for
// the time, or ctx ends. It is for what is done once, at a start, and not for messages.
func Wait(ctx context.Context, others func(error) bool, f func() error) error {
	began := time.Now()
	var kept error // by whom it was last
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f()
		switch {
		case err == nil:
			return nil
		case others(err):
			kept = err
		case kept == nil || ctx.Err() == nil:
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waited %v: %w: %w", time.Since(began).Round(time.Millisecond), context.Cause(ctx), kept)
		}
	}
}
