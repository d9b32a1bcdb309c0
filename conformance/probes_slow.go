package conformance

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// longLine is a slow line: from one continent to another, through a narrow place.
var longLine = Network{Delay: 150 * time.Millisecond, BytesPerSecond: 50_000}

// longEnough is for how long nothing comes over the long line where nothing will.
const longEnough = 15 * time.Second

// slowLine. Anomaly: a receiver counts on answers sooner than they come over a long line:
// it gives up, begins anew, and gets nothing, or gives back what comes too late for it,
// until the message is worn out. Experiment: over a line with a round trip of 300 ms
// that carries 50 kB a second, publish six messages of 2 KiB, receive and ack them, the
// last three by calls that are shorter than a round trip; then over a fast one, and a new
// connection, look what comes again.
func (b *Bench) slowLine(ctx context.Context, e ends) error {
	carry, err := b.network(ctx, longLine, "each piece of data is on its way for %s, and a connection carries %d bytes a second", longLine.Delay, longLine.BytesPerSecond)
	if err != nil {
		return err
	}
	ms := b.Messages(6)
	for i := range ms {
		ms[i].Body = bytes.Repeat([]byte{'x'}, 2<<10)
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	began := time.Now()
	copies, came, worn := map[string]int{}, 0, 0
	for i := range ms {
		copies[ms[i].ID] = 0
	}
	limit := longEnough + b.Target.SlowStart
	for last := began; came < len(ms) && time.Since(last) < limit; {
		most, within := min(2, len(ms)/2-came), limit-time.Since(last)
		if most <= 0 {
			most, within = 2, longLine.Delay/2
		}
		ds, err := b.Receive(ctx, e.rcv, most, within)
		if err != nil {
			return err
		}
		if err := b.mustAckAll(ctx, e.rcv, ds); err != nil && !errors.Is(err, broker.ErrLeaseLost) {
			return err
		}
		for i := range ds {
			n, ours := copies[ds[i].ID]
			if !ours { // of the silence before
				continue
			}
			last = time.Now()
			if copies[ds[i].ID]++; n == 0 {
				came++
			}
			if ds[i].Attempt.Number > 1 {
				worn++
			}
		}
	}
	took := time.Since(began).Round(time.Millisecond)
	if err := carry(); err != nil {
		return err
	}
	again, err := b.afterAll(ctx, e, b.askingLease())
	if err != nil {
		return err
	}
	for id := range copies {
		if copies[id]+again[id] > 1 {
			worn++
		}
	}
	switch {
	case came < len(ms):
		b.Answer(boundary.DeliverSlow, boundary.Stuck, "%d of %d came in %s", came, len(ms), took)
	case worn > 0:
		b.Answer(boundary.DeliverSlow, boundary.Redelivered, "all %d came in %s, and %d of them at a later attempt or again", len(ms), took, worn)
	default:
		b.Answer(boundary.DeliverSlow, boundary.Once, "all %d came in %s, each once and at its first attempt", len(ms), took)
	}
	return nil
}
