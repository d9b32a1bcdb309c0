package conformance

import (
	"context"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// Wait lets the broker's time pass: by its clock where that can be moved.
func (b *Bench) Wait(ctx context.Context, d time.Duration) error {
	b.history.Add(report.Clock, "wait", "", "%s", d)
	if b.Instance.Advance != nil {
		b.Instance.Advance(d)
		return nil
	}
	if !sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// Now is the broker's time.
func (b *Bench) Now() time.Time {
	if b.Instance.Now != nil {
		return b.Instance.Now()
	}
	return time.Now()
}

// sleep waits for d and reports whether ctx lasted so long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
