package storetest

import (
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

// LongOutbox: a turn of a relay takes no longer where many rows wait behind its own, as
// after an hour without the broker. Fill adds so many rows of topic "long", whose lane
// is their number modulo 64 and whose key is one of 200.
func LongOutbox(t *testing.T, store dedup.OutboxStore, fill func(t *testing.T, n int)) {
	t.Helper()
	const few, many = 200, 60_000
	// The quickest of some: other work on the machine makes none quicker.
	quickest := func() time.Duration {
		var least time.Duration
		for range 5 {
			began := time.Now()
			n, err := store.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "long", Lanes: 16, Rows: 10, Bytes: 1 << 20, Bound: time.Minute}, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
				fates := make([]dedup.OutboxFate, len(rows))
				for i := range fates {
					fates[i].State = dedup.OutboxLeft
				}
				return fates
			})
			if err != nil || n != 10 {
				t.Fatalf("%d rows: %v", n, err)
			}
			if took := time.Since(began); least == 0 || took < least {
				least = took
			}
		}
		return least
	}
	fill(t, few)
	short := quickest()
	fill(t, many)
	if long := quickest(); long > 3*short+20*time.Millisecond {
		t.Errorf("a turn takes %v where %d rows wait, and %v where %d do", long, few+many, short, few)
	} else {
		t.Logf("a turn takes %v where %d rows wait, and %v where %d do", long, few+many, short, few)
	}
}
