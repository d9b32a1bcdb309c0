package conformance

import (
	"context"
	"fmt"
	"sync/atomic"
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

// Restart restarts the broker cleanly, Kill as by a crash. Where other probes do the
// same, it is done once, when all of them have come so far.
func (b *Bench) Restart(ctx context.Context) error {
	b.history.Add(report.Broker, "restart", "", "clean stop and start")
	return b.meeting.do(ctx, func() error { return b.mending(ctx, b.Instance.Restart)() })
}

// Kill kills the broker and starts it again.
func (b *Bench) Kill(ctx context.Context) error {
	b.history.Add(report.Broker, "kill", "", "killed and started again")
	return b.meeting.do(ctx, func() error { return b.mending(ctx, b.Instance.Kill)() })
}

// Others waits until no other probe keeps Restart or Kill from striking at once, for
// one that does something right before.
func (b *Bench) Others(ctx context.Context) error { return b.meeting.others(ctx) }

// mendWithin bounds how long it may take to put back what a probe broke.
const mendWithin = 90 * time.Second

// mending is what puts back, once, what a probe breaks and the probes after it need.
// It is called by the probe, or else when the probe is over, however it ended, and
// has a time of its own: the probe's may be at its end. Who comes second waits at a
// channel: sync.Once has a lock, at which a bubble of testing/synctest stands still.
func (b *Bench) mending(ctx context.Context, mend func(context.Context) error) func() error {
	var begun atomic.Bool
	var err error
	done := make(chan struct{})
	run := func() {
		defer close(done)
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), mendWithin, fmt.Errorf("mending took longer than %s", mendWithin))
		defer cancel()
		err = mend(ctx)
	}
	once := func() error {
		if !begun.Swap(true) {
			run()
		}
		<-done
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mends = append(b.mends, once)
	return once
}

// silence makes the network swallow everything, and returns what lets it carry again.
func (b *Bench) silence(ctx context.Context) (carry func() error, err error) {
	return b.network(ctx, Network{Silent: true}, "the network is silent, and no connection is closed")
}

// network changes the network, and returns what makes it carry all at once again.
func (b *Bench) network(ctx context.Context, n Network, note string, args ...any) (carry func() error, err error) {
	carry = b.mending(ctx, func(context.Context) error {
		b.history.Add(report.Fault, "fault", "", "the network carries again")
		return b.Instance.Network(Network{})
	})
	b.history.Add(report.Fault, "fault", "", note, args...)
	return carry, b.Instance.Network(n)
}
