package dedup

import (
	"sync/atomic"
	"time"
)

// Stats counts what an [Inbox], a [Position], a [Lease] or [Calls] did since it was
// made. The sums are for metrics (package dedup/otel exports them); they are not taken
// at one moment.
type Stats struct {
	// The outcomes of messages. Of a Position, Duplicate are those at the stored
	// position or below.
	Unknown, Applied, Duplicate, InFlight, Failed, OutsideWindow uint64
	// Running is how many messages are in calls that have not ended.
	Running int64
	// Ambiguous counts commits whose answer was lost.
	Ambiguous uint64
	// Retried counts transactions, and questions to a store, that were tried again.
	Retried uint64
	// Fenced counts transactions of a Position that were refused because another had
	// moved it.
	Fenced uint64
	// Stuck counts messages that were found begun by somebody who crashed or froze
	// before he recorded how it went: leases that were taken over, calls beyond their
	// time.
	Stuck uint64
	// LeaseLost counts leases that were lost while their effect ran, or before it was
	// recorded.
	LeaseLost uint64
	// Suspect counts effects that took place, as this process knows, and that another
	// may have applied too: their lease had passed on, or the call's record said that
	// it was made by another, of a provider that knows no keys.
	Suspect uint64
	// Unresolved counts calls that came to wait for somebody to decide.
	Unresolved uint64
	// Late counts messages that [Handler] and its likes applied although they were
	// older than the store keeps markers: nobody can know whether they were new.
	Late uint64
	// SuspectIDs counts messages whose ID [IDCheck] suspected.
	SuspectIDs uint64
	// Decisions are those of [Handler], [LeaseHandler], [CallHandler] and
	// [HandleBatch].
	Decisions Decisions
}

// Decisions counts what the handlers of this package told the broker, or
// [broker.Consume], to do with messages.
type Decisions struct {
	Acked     uint64
	Postponed uint64 // given back, no attempt counted: in flight, or the store is at fault
	Retried   uint64 // failed; broker.Consume may dead-letter it after the last attempt
	// The reasons for which messages were dead-lettered.
	DeadOutsideWindow uint64 // nobody can say whether it is a duplicate
	DeadKey           uint64 // it has no ID, or none that a store takes
	DeadPoison        uint64 // its effect returned broker.Poison
	DeadOtherRequest  uint64 // its ID came before with another body, of CallHandler
	DeadChosen        uint64 // by DeadLetterWhen
}

// Add returns the sums of s and o.
func (s Stats) Add(o Stats) Stats {
	return Stats{
		Unknown: s.Unknown + o.Unknown, Applied: s.Applied + o.Applied, Duplicate: s.Duplicate + o.Duplicate,
		InFlight: s.InFlight + o.InFlight, Failed: s.Failed + o.Failed, OutsideWindow: s.OutsideWindow + o.OutsideWindow,
		Running: s.Running + o.Running, Ambiguous: s.Ambiguous + o.Ambiguous, Retried: s.Retried + o.Retried,
		Fenced: s.Fenced + o.Fenced, Stuck: s.Stuck + o.Stuck, LeaseLost: s.LeaseLost + o.LeaseLost,
		Suspect: s.Suspect + o.Suspect, Unresolved: s.Unresolved + o.Unresolved, Late: s.Late + o.Late,
		SuspectIDs: s.SuspectIDs + o.SuspectIDs,
		Decisions: Decisions{
			Acked: s.Decisions.Acked + o.Decisions.Acked, Postponed: s.Decisions.Postponed + o.Decisions.Postponed,
			Retried: s.Decisions.Retried + o.Decisions.Retried, DeadOutsideWindow: s.Decisions.DeadOutsideWindow + o.Decisions.DeadOutsideWindow,
			DeadKey: s.Decisions.DeadKey + o.Decisions.DeadKey, DeadPoison: s.Decisions.DeadPoison + o.Decisions.DeadPoison,
			DeadOtherRequest: s.Decisions.DeadOtherRequest + o.Decisions.DeadOtherRequest, DeadChosen: s.Decisions.DeadChosen + o.Decisions.DeadChosen,
		},
	}
}

// decision is one of the counts of Decisions.
type decision uint8

const (
	acked decision = iota
	postponed
	retried
	deadOutside
	deadKey
	deadPoison
	deadOther
	deadChosen
	decisions
)

type counters struct {
	outcomes           [OutsideWindow + 1]atomic.Uint64
	running            atomic.Int64
	ambiguous, retried atomic.Uint64
	fenced, stuck      atomic.Uint64
	leaseLost, suspect atomic.Uint64
	unresolved         atomic.Uint64
	late, suspectIDs   atomic.Uint64
	decisions          [decisions]atomic.Uint64
}

func (c *counters) count(o Outcome) Outcome {
	c.outcomes[o].Add(1)
	return o
}

func (c *counters) decide(d decision) { c.decisions[d].Add(1) }

// call is a call that has begun, for Running and Took.
type call struct {
	c     *counters
	n     int
	took  func(int, time.Duration)
	start time.Time // only with took
}

func (c *counters) begin(n int, took func(int, time.Duration)) call {
	c.running.Add(int64(n))
	b := call{c: c, n: n, took: took}
	if took != nil {
		b.start = time.Now()
	}
	return b
}

func (b call) end() {
	b.c.running.Add(-int64(b.n))
	if b.took != nil && b.n > 0 {
		b.took(b.n, time.Since(b.start))
	}
}

// Stats returns the counts so far.
func (in *Inbox[T]) Stats() Stats { return in.stats.snapshot() }

func (c *counters) snapshot() Stats {
	n := func(o Outcome) uint64 { return c.outcomes[o].Load() }
	d := func(d decision) uint64 { return c.decisions[d].Load() }
	return Stats{
		Unknown: n(Unknown), Applied: n(Applied), Duplicate: n(Duplicate), InFlight: n(InFlight), Failed: n(Failed),
		OutsideWindow: n(OutsideWindow), Running: c.running.Load(), Ambiguous: c.ambiguous.Load(), Retried: c.retried.Load(),
		Fenced: c.fenced.Load(), Stuck: c.stuck.Load(), LeaseLost: c.leaseLost.Load(), Suspect: c.suspect.Load(),
		Unresolved: c.unresolved.Load(), Late: c.late.Load(), SuspectIDs: c.suspectIDs.Load(),
		Decisions: Decisions{Acked: d(acked), Postponed: d(postponed), Retried: d(retried),
			DeadOutsideWindow: d(deadOutside), DeadKey: d(deadKey), DeadPoison: d(deadPoison), DeadOtherRequest: d(deadOther), DeadChosen: d(deadChosen)},
	}
}
