package servicebus

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// settleEntries adds what becomes of settles that come late, twice, in part or over faults.
func settleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final, Sources: []string{"SB-F-14", "SB-F-29"},
			Note: "Unmeasured: nobody outside can kill the service. A forced failover to another region can bring back what was settled.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Sources: []string{"SB-F-52"},
			Note: "From the handle: the service would say that the lock is lost.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"SB-F-14", "SB-F-52"},
			Note: "ErrConflict, from here.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"SB-F-14"},
			Note: "Each message has its own disposition and its own answer.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"SB-F-14", "SB-F-16"},
			Note: "Within the lock. If the request had arrived after all, the outcome stays Unknown.",
		},
		boundary.SettleCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"SB-F-16", "SB-F-52"},
			Note: "If the ack had reached the service: its answer to the second ask doesn't tell. Give settles a context that outlives the shutdown.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.TakesEffect, Sources: []string{"SB-F-15"},
			Note: "The lock is the token's, which is settled by the management link then. One page of the vendor's says that a broken connection drops the lock: then it is refused.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-14"},
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SB-F-14"},
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SB-F-14"},
			Note: "A lock token is for one delivery.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-14"},
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-14"},
			Note: "LeaseLost: stop the work.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-14"},
			Note: "By the clock, and by the service. Its effects are not fenced.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"SB-F-13"},
			Note: "Messages are handed out one by one; there is no assignment that could be taken away.",
		},
	})
}

// sessionSettleEntries is what is otherwise with sessions.
func sessionSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleAfterReconnect: {
			Declared: boundary.Refused, Sources: []string{"SB-F-24", "SB-F-54"},
			Note: "The session ends with the link of its receiver, and its messages go to the next one.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"SB-F-23"},
			Note: "A session is locked and not assigned: what is settled after its lock is what settle.stale asks.",
		},
	})
}
