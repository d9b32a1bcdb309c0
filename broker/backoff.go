package broker

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pause before another attempt: a random time between nothing
// and min(Max, Min doubled by each failure). The full jitter keeps many clients
// that failed together from coming back together.
type Backoff struct {
	Min time.Duration // bound of the first pause; zero: 100 ms
	Max time.Duration // bound of every pause; zero: 30 s
}

func (b Backoff) withDefaults() Backoff {
	if b.Min <= 0 {
		b.Min = 100 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 30 * time.Second
	}
	b.Max = max(b.Max, b.Min)
	return b
}

// pause is the one after failure n, counted from 1; random returns numbers in
// [0, 1).
func (b Backoff) pause(n int, random func() float64) time.Duration {
	bound := b.Max
	if n < 1 {
		n = 1
	}
	if shift := n - 1; shift < 62 && b.Min <= b.Max>>shift {
		bound = b.Min << shift
	}
	return time.Duration(random() * float64(bound))
}

// randomOr is the source of jitter that an option names, or the runtime's.
func randomOr(random func() float64) func() float64 {
	if random == nil {
		return rand.Float64
	}
	return random
}

// sleep waits for d and reports whether it did, rather than ctx or stop ending
// it. A nil stop never does.
func sleep(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}
