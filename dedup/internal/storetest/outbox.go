package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

// OutboxSetup is a store whose outbox is to be tested, empty.
type OutboxSetup[T any] struct {
	Driver dedup.OutboxDriver[T]
	// Forward moves the store's clock.
	Forward func(d time.Duration)
	// Leased: the lanes of a relay that ended stay its own until turn.Bound is over.
	Leased bool
}

// RunOutbox runs all behaviours of an outbox, each on a setup of its own, or only
// those that are named.
func RunOutbox[T any](t *testing.T, setup func(t *testing.T) OutboxSetup[T], only ...string) {
	for _, b := range []struct {
		name string
		test func(*testing.T, OutboxSetup[T])
	}{
		{"Sent", outboxSent[T]},
		{"Order", outboxOrder[T]},
		{"Parked", outboxParked[T]},
		{"Pass", outboxPass[T]},
		{"FailedThenParked", outboxFailedThenParked[T]},
		{"Held", outboxHeld[T]},
		{"OldButNeverTried", outboxOld[T]},
		{"RelayGone", outboxRelayGone[T]},
		{"Down", outboxDown[T]},
		{"Topics", outboxTopics[T]},
		{"Bounds", outboxBounds[T]},
		{"Stop", outboxStop[T]},
		{"Wake", outboxWake[T]},
		{"Stalled", outboxStalled[T]},
		{"Writers", outboxWriters[T]},
	} {
		if len(only) > 0 && !slices.Contains(only, b.name) {
			continue
		}
		t.Run(b.name, func(t *testing.T) { b.test(t, setup(t)) })
	}
}
