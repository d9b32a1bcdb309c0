package memory

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// settleEntries adds what becomes of settles that come late, twice, in part or over faults.
func settleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final,
			Note:     "What was confirmed is kept by Kill, as what was published.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed,
			Note:     "From the handle: no second request is made.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused,
			Note:     "ErrConflict, beside the state that stands.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact,
			Note:     "Settle again the entries that have an error, and none of the others.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect,
			Note:     "Settle again with the same action, within the lease and on the same connection.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain,
			Note:     "Settle again with the same action and a living context.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.Refused,
			Note:     "A cut ends the handles; the message comes again after its lease. Expect work that is done to come again.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused,
			Note:     "Refused by the clock, whether or not somebody else has the message: extend a lease before it ends.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept,
			Note:     "A late ack is refused, so that a holder can still give its message back.",
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept,
			Note:     "The broker knows each delivery by a lease number.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused,
			Note:     "LeaseLost: whoever holds the message keeps it.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused,
			Note:     "LeaseLost: stop the work, for somebody else does it.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused,
			Note:     "Its settles are refused, its effects are not: the effect needs a fence of its own.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable,
			Note:     "Messages are handed out one by one; there is no assignment that could be taken away.",
		},
	})
}
