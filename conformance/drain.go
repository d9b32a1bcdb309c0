package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
)

// Copies publishes a last message, receives until it comes and then nothing more does,
// acks all, and returns how often each ID came on the way. Where a subscription keeps
// its order the last message makes it certain that nothing was overlooked. It may
// overtake others where there is none, or where a second copy is held back as long as
// the first is in flight: hence what comes after it. What is expected is waited for
// longer, before it is said to be lost, and longer still where all takes its time.
func (b *Bench) Copies(ctx context.Context, p broker.Publisher, r broker.Receiver, expected ...broker.Message) (map[string]int, error) {
	copies := map[string]int{}
	all := func() bool {
		return !slices.ContainsFunc(expected, func(m broker.Message) bool { return copies[m.ID] == 0 })
	}
	err := b.drain(ctx, p, r, func(d *broker.Delivery) { copies[d.ID]++ }, all)
	return copies, err
}

// drain is what Copies does; each is called with all that comes but the last message,
// and complete says whether all that is expected has come.
func (b *Bench) drain(ctx context.Context, p broker.Publisher, r broker.Receiver, each func(d *broker.Delivery), complete func() bool) error {
	last, came := b.Message(), false
	if _, err := b.MustPublish(ctx, p, last); err != nil {
		return err
	}
	after := b.Target.patience() / 2
	if b.Instance.Advance != nil { // all that is due is due now
		after = min(after, 100*time.Millisecond)
	}
	var slowest time.Duration // that something was waited for
	deadline := time.Now().Add(b.Target.busy() + 2*time.Second + b.Target.SlowStart)
	for {
		within := time.Until(deadline)
		switch {
		case came && complete():
			within = min(within, after)
		case came:
			within = min(within, max(2*b.Target.patience(), 4*slowest))
		}
		if within <= 0 { // a broker that redelivers without end has shown it
			break
		}
		asked := time.Now()
		ds, err := b.Receive(ctx, r, 64, within)
		if err != nil {
			return err
		}
		if len(ds) == 0 {
			break
		}
		// On a busy machine all takes longer.
		slowest = max(slowest, time.Since(asked))
		after = min(max(after, 2*slowest), b.Target.patience()/2)
		if err := b.mustAckAll(ctx, r, ds); err != nil {
			return err
		}
		for i := range ds {
			if ds[i].ID == last.ID {
				came = true
				continue
			}
			each(&ds[i])
		}
	}
	if !came {
		return fmt.Errorf("the last message %q never came", last.ID)
	}
	return nil
}
