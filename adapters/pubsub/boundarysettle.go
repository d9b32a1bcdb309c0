package pubsub

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// settleEntries adds what becomes of settles that come late, twice, in part or over faults,
// without exactly-once delivery.
func settleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.NotApplicable, Sources: []string{"PS-F-16"},
			Note: "Without exactly-once delivery no ack is confirmed.",
		},
		boundary.SettleReack: {
			Declared: boundary.Sent, Documented: boundary.Sent, Sources: []string{"PS-F-17"},
			Note: "From the handle, without a request.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"PS-F-17", "PS-F-36"},
			Note: "ErrConflict, from here; the service would say OK to either.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"PS-F-16"},
			Note: "What is bad is refused here; the service's OK is for the request as a whole.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"PS-F-16", "PS-F-17"},
			Note: "Unknown at first, and Sent when asked again within the lease.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"PS-F-17"},
			Note: "Sent, when asked again within the lease: more than that the service never says.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.TakesEffect, Sources: []string{"PS-F-16", "PS-F-28"},
			Note: "Messages are pulled one request at a time, so that an ack ID belongs to no connection.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Sources: []string{"PS-F-16", "PS-F-36"},
			Note: "Refused here, by the clock of this process; the service may take it. The message comes again.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Sources: []string{"PS-F-16"},
			Note: "Refused here.",
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.TakenUnnoticed, Sources: []string{"PS-F-16", "PS-F-36"},
			Note: "The service says OK to whatever the holder does then. Declared is the weaker of what it may do.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Sources: []string{"PS-F-16", "PS-F-36"},
			Note: "Refused here.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Sources: []string{"PS-F-16", "PS-F-36"},
			Note: "LeaseLost, from here: stop the work. The service would say OK.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Sources: []string{"PS-F-16"},
			Note: "By the clock, which went on while the process stood still. Its effects are not fenced.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"PS-F-09"},
			Note: "Messages are handed out one by one; there is no assignment that could be taken away.",
		},
	})
}

// exactlyOnceSettleEntries is what is otherwise with it.
func exactlyOnceSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"PS-F-08"},
			Note: "Unmeasured: nobody outside can kill the service. Effects need a dedup store anyway.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Sources: []string{"PS-F-17"},
			Note: "From the handle: the service calls the second ack invalid, so it isn't asked.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"PS-F-36"},
			Note: "ErrConflict, from here.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"PS-F-13"},
			Note: "The service names the ack IDs that failed; the others were settled.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"PS-F-13"},
			Note: "Within the lease. If the request had arrived after all, the outcome stays Unknown (PS-F-18).",
		},
		boundary.SettleCancel: {
			Declared: boundary.StaysUnknown, Documented: boundary.StaysUnknown, Sources: []string{"PS-F-18", "PS-F-36"},
			Note: "If the ack had reached the service: its answer to the second ask doesn't tell. Give settles a context that outlives the shutdown.",
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"PS-F-08", "PS-F-36"},
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Sources: []string{"PS-F-08", "PS-F-16"},
			Note: "By the clock, and by the service once the message was handed out again. Its effects are not fenced.",
		},
	})
}
