package kafka

import (
	"slices"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
)

// Both boundaries answer every claim, each with a source, and the two differ
// only in hop 2.
func TestBoundariesAreComplete(t *testing.T) {
	t.Parallel()
	group, share := GroupBoundary(), ShareBoundary()
	if !slices.Equal(group.Claims(), share.Claims()) || len(group.Claims()) == 0 {
		t.Fatalf("%d and %d claims", len(group.Claims()), len(share.Claims()))
	}
	for _, b := range []boundary.Boundary{group, share} {
		for claim, e := range b.Entries {
			if e.Declared == "" || len(e.Sources) == 0 {
				t.Errorf("%s: %s has no answer or no source", b.Of, claim)
			}
		}
	}
	want := map[boundary.Claim][2]boundary.Answer{
		boundary.PublishDedupLostResponse:  {boundary.Once, boundary.Once},
		boundary.PublishDedupNewProducer:   {boundary.Twice, boundary.Twice},
		boundary.DeliverRedeliverExpiry:    {boundary.NoLease, boundary.AfterLease},
		boundary.DeliverRedeliverCrash:     {boundary.AfterSession, boundary.AtOnce},
		boundary.DeliverRedeliverNackDelay: {boundary.Honoured, boundary.Unsupported},
		boundary.DeliverAttempt:            {boundary.PerReceiver, boundary.Approximate},
		boundary.PublishOrderKey:           {boundary.OverFailure, boundary.None},
		boundary.DeliverOrderKey:           {boundary.OverNack, boundary.None},
		boundary.SettleAnswer:              {boundary.PendingFirst, boundary.Confirmed},
		boundary.SettleLostResponse:        {boundary.ConfirmedAgain, boundary.StaysUnknown},
	}
	for claim, w := range want {
		if g, s := group.Entries[claim].Declared, share.Entries[claim].Declared; g != w[0] || s != w[1] {
			t.Errorf("%s: %s and %s, want %v", claim, g, s, w)
		}
	}
}
