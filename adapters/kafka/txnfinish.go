package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/onceline/onceline/broker"
)

// commitAlone commits the inputs of a transaction without outputs: a position of a
// group is atomic by itself, so Kafka needs no transaction for it.
func (x *transaction) commitAlone(ctx context.Context) broker.Outcome {
	o := broker.Outcome{State: broker.Confirmed}
	x.each(func(g *groupReceiver, in *inputs) bool {
		g.mu.Lock()
		to, err := x.offsets(g, in)
		g.mu.Unlock()
		if err != nil {
			o = x.refused(ctx, err)
			return false
		}
		in.sent = to
		return true
	})
	if o.State != broker.Confirmed {
		return o
	}
	x.mu.Lock()
	x.alone = true
	x.mu.Unlock()
	x.each(func(g *groupReceiver, in *inputs) bool {
		g.mu.Lock()
		for _, e := range in.entries {
			if !e.settled {
				e.settled = true
				g.done(e)
			}
		}
		g.advance()
		g.mu.Unlock()
		err := g.commit(ctx, false)
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, e := range in.entries {
			switch {
			case e.rec.Offset < e.part.committed:
			case e.part.ended:
				o = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, err, "commit on %s: partition %s of %s was taken away", x.t.id, e.part.name, g.name)}
			default:
				o = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "commit on %s: the position of %s", x.t.id, g.name)}
			}
		}
		return o.State == broker.Confirmed
	})
	if !errors.Is(o.Err, broker.ErrUnknownOutcome) {
		x.finish(o.State == broker.Confirmed)
	}
	return o
}

// finish is the end of the transaction for the members that it took inputs from.
func (x *transaction) finish(committed bool) {
	x.each(func(g *groupReceiver, in *inputs) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		slices.SortFunc(in.entries, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(a.part.id, b.part.id), cmp.Compare(a.rec.Offset, b.rec.Offset))
		})
		for _, e := range in.entries {
			x.release(g, e, committed)
		}
		for p, at := range in.sent {
			if committed {
				p.committed = max(p.committed, at.Offset)
			}
		}
		g.advance()
		g.signal()
		return true
	})
	x.t.over(x)
}

// release takes one entry out of the transaction. g.mu is held.
func (x *transaction) release(g *groupReceiver, e *entry, committed bool) {
	if e.txn != x {
		return
	}
	e.txn = nil
	if e.part.hold == x {
		e.part.hold = nil
	}
	switch {
	case committed:
		if !e.settled {
			e.settled = true
			g.done(e)
		}
	case e.part.ended || e.settled:
	default:
		// It comes again from here: the broker took the offsets back, but this
		// member's position is behind them (KAF-F-16).
		e.handle++
		if e.part.lines[string(e.rec.Key)] == nil {
			g.urgent.push(e) // before all of its key that wasn't handed out
		} else {
			g.back(e, 0)
		}
	}
}
