package conformance

import (
	"fmt"
	"slices"

	"github.com/onceline/onceline/conformance/history"
	"github.com/onceline/onceline/conformance/report"
)

// Queue is what the total-queue checker finds in a history: every message that
// was promised must come, and no more often than it was sent.
type Queue struct {
	Lost       []string // a good receipt, and never delivered
	Duplicated []string // delivered to consumers that did not give it back, more than once
	Unexpected []string // delivered, and never published
	Recovered  []string // an Unknown receipt, and delivered
}

// CheckQueue reads a history of which the queue has been drained.
func CheckQueue(events []report.Event) Queue {
	promised, unknown, sent := map[string]bool{}, map[string]bool{}, map[string]bool{}
	taken := map[string]int{}
	var q Queue
	for _, e := range events {
		switch e.Kind {
		case kindPublish:
			sent[e.ID] = true
		case kindReceipt:
			switch e.Verdict {
			case "Stored", "Duplicate", "Accepted":
				promised[e.ID] = true
			case "Unknown":
				unknown[e.ID] = true
			}
		case kindDelivery:
			if !sent[e.ID] {
				q.Unexpected = append(q.Unexpected, e.ID)
			}
			if taken[e.ID]++; taken[e.ID] == 2 {
				q.Duplicated = append(q.Duplicated, e.ID)
			}
		case kindOutcome:
			if e.Action == "Nack" {
				taken[e.ID]--
			}
		}
	}
	// A nack takes a delivery back, so what was counted twice for a while may
	// be fine in the end.
	q.Duplicated = slices.DeleteFunc(q.Duplicated, func(id string) bool { return taken[id] < 2 })
	for id := range promised {
		if _, delivered := taken[id]; !delivered {
			q.Lost = append(q.Lost, id)
		}
	}
	for id := range unknown {
		if _, delivered := taken[id]; delivered && !promised[id] {
			q.Recovered = append(q.Recovered, id)
		}
	}
	for _, ids := range []*[]string{&q.Lost, &q.Duplicated, &q.Unexpected, &q.Recovered} {
		slices.Sort(*ids)
		*ids = slices.Compact(*ids)
	}
	return q
}

func (q Queue) String() string {
	return fmt.Sprintf("lost %d, duplicated %d, unexpected %d, recovered %d",
		len(q.Lost), len(q.Duplicated), len(q.Unexpected), len(q.Recovered))
}

// CheckOrder returns the IDs that were delivered after one that follows them in
// want, the order of publishing within one key. Only first deliveries count if
// firstOnly is set.
func CheckOrder(events []report.Event, want []string, firstOnly bool) (late []string) {
	place := make(map[string]int, len(want))
	for i, id := range want {
		place[id] = i
	}
	highest, seen := -1, map[string]bool{}
	for _, e := range events {
		at, ours := place[e.ID]
		if e.Kind != kindDelivery || !ours || firstOnly && seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		if at < highest {
			late = append(late, e.ID)
		}
		highest = max(highest, at)
	}
	return late
}

// CheckEffects returns how often the effect of each message was applied.
func CheckEffects(events []report.Event) map[string]int {
	n := map[string]int{}
	for _, e := range events {
		if e.Kind == kindEffect {
			n[e.ID]++
		}
	}
	return n
}

// The kinds of event that the checkers read.
const (
	kindPublish  = history.Publish
	kindReceipt  = history.Receipt
	kindDelivery = history.Delivery
	kindSettle   = history.Settle
	kindOutcome  = history.Outcome
	kindEffect   = history.Effect
)
