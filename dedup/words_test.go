package dedup_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// TestWords: what outcomes and claims are called, the zero of neither reads as a
// success, and the errors are also those of package broker.
func TestWords(t *testing.T) {
	if got := fmt.Sprint(dedup.Unknown, dedup.Applied, dedup.Duplicate, dedup.InFlight, dedup.Failed, dedup.OutsideWindow, dedup.Outcome(9)); got != "unknown applied duplicate in flight failed outside window Outcome(9)" {
		t.Error(got)
	}
	if got := fmt.Sprint(dedup.Claim(0), dedup.Fresh, dedup.Seen, dedup.Held, dedup.Outside, dedup.Claim(9)); got != "none fresh seen held outside Claim(9)" {
		t.Error(got)
	}
	var o dedup.Outcome
	if o.OK() || dedup.InFlight.OK() || dedup.Failed.OK() || dedup.OutsideWindow.OK() || !dedup.Applied.OK() || !dedup.Duplicate.OK() {
		t.Error("the wrong outcomes may be acked")
	}
	for err, kind := range map[error]error{
		dedup.ErrOutsideWindow: broker.ErrWindowExceeded, dedup.ErrCommitUnknown: broker.ErrUnknownOutcome,
		dedup.ErrLost: broker.ErrUnavailable, dedup.ErrVerify: broker.ErrConflict,
	} {
		if !errors.Is(err, kind) {
			t.Errorf("%v is not %v", err, kind)
		}
	}
}
