package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// Inject arms a fault on the probe's own entity.
func (b *Bench) Inject(f Fault) (Injection, error) {
	f.Match = b.Entity.Topic
	if b.Target.FaultsByQueue && f.Op != OnPublish {
		f.Match = b.Entity.Subscription
	}
	i, err := b.Instance.Inject(f)
	if err != nil {
		return nil, fmt.Errorf("inject %s: %w", f, err)
	}
	b.history.Add(report.Fault, "fault", "", "armed: %s", f)
	return i, nil
}

// Applied waits until the broker was seen to apply a request whose response was
// lost, and records it: no probe may say that a response was lost before.
func (b *Bench) Applied(ctx context.Context, i Injection) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := i.WaitApplied(ctx); err != nil {
		return fmt.Errorf("the broker was not seen to apply the request: %w", err)
	}
	b.history.Add(report.Fault, "fault", "", "the broker applied the request, and its answer was dropped")
	return nil
}

// Restart restarts the broker cleanly, Kill as by a crash.
func (b *Bench) Restart(ctx context.Context) error {
	b.history.Add(report.Broker, "restart", "", "clean stop and start")
	return b.Instance.Restart(ctx)
}

// Kill kills the broker and starts it again.
func (b *Bench) Kill(ctx context.Context) error {
	b.history.Add(report.Broker, "kill", "", "killed and started again")
	return b.Instance.Kill(ctx)
}
