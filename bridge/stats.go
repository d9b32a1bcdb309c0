package bridge

import (
	"fmt"
	"sync/atomic"

	"github.com/onceline/onceline/broker"
)

// Stats counts what a bridge did since it was made. The sums are for metrics; they are
// not taken at one moment.
type Stats struct {
	Received                    uint64 // deliveries of the source
	Stored, Duplicate, Accepted uint64 // messages that the far side has, by its verdict
	Again                       uint64 // deliveries of messages that this bridge had moved before: acked, not sent
	Looped                      uint64 // messages that had been at the far side: acked, not sent
	DeadLettered                uint64
	Unknown                     uint64 // attempts without an answer
	Refused                     uint64 // attempts that were refused, to be made again
	Settled                     uint64 // deliveries that the source was told of: acked or dead-lettered
	Lost                        uint64 // deliveries that the source took back: they come again
	GivenBack                   uint64 // deliveries that were given back, behind one that was lost
	Publishes                   uint64
	Errors                      uint64 // what went to the ErrorHook
	InHand                      int    // deliveries that are held now
}

// Moved is how many messages the far side has.
func (s Stats) Moved() uint64 { return s.Stored + s.Duplicate + s.Accepted }

func (s Stats) String() string {
	return fmt.Sprintf("moved %d (%d stored, %d duplicate, %d accepted), skipped %d again and %d looped, %d dead-lettered, %d without answer, %d refused, %d lost, errors %d",
		s.Moved(), s.Stored, s.Duplicate, s.Accepted, s.Again, s.Looped, s.DeadLettered, s.Unknown, s.Refused, s.Lost, s.Errors)
}

type counters struct {
	verdicts                                                    [broker.Refused + 1]atomic.Uint64
	received, again, looped, dead, settled, lost, given, errors atomic.Uint64
	publishes                                                   atomic.Uint64
	inHand                                                      atomic.Int64
}

// Stats returns the counts so far.
func (b *Bridge) Stats() Stats {
	c := &b.stats
	n := func(v broker.Verdict) uint64 { return c.verdicts[v].Load() }
	return Stats{
		Received: c.received.Load(), Stored: n(broker.Stored), Duplicate: n(broker.Duplicate), Accepted: n(broker.Accepted),
		Again: c.again.Load(), Looped: c.looped.Load(), DeadLettered: c.dead.Load(), Unknown: n(broker.Unknown), Refused: n(broker.Refused),
		Settled: c.settled.Load(), Lost: c.lost.Load(), GivenBack: c.given.Load(), Publishes: c.publishes.Load(), Errors: c.errors.Load(),
		InHand: int(c.inHand.Load()),
	}
}
