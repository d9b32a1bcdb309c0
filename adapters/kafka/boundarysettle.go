package kafka

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// groupSettleEntries adds what becomes of settles of a consumer group that come late, twice,
// in part or over faults.
func groupSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"KAF-F-37", "KAF-F-180"},
			Note: "Of what was Confirmed; what is Pending comes again.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Sources: []string{"KAF-F-30", "KAF-F-38"},
			Note: "Or Pending, as long as a lower message is open.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"KAF-F-30"},
			Note: "ErrConflict, from here: Kafka has no nack that it could take.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"KAF-F-30"},
			Note: "One commit covers all acks of a call; what is bad is refused before.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"KAF-F-38"},
			Note: "While the partition is still the member's.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"KAF-F-38"},
			Note: "While the partition is still the member's: ask again, and a later commit tells.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.TakesEffect, Sources: []string{"KAF-F-34"},
			Note: "A member is known by its name and heartbeats, not by its connection.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-32", "KAF-F-34"},
			Note: "By the broker, which has put the member out, also where nobody has taken its place.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Sources: []string{"KAF-F-32", "KAF-F-33"},
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Sources: []string{"KAF-F-32", "KAF-F-33"},
			Note: "A commit without a member, or in a transaction, can move the position of a group all the same; the adapter makes none.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Sources: []string{"KAF-F-36"},
			Note: "A nack is the adapter's own, and the new owner never learns of it.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Sources: []string{"KAF-F-34", "KAF-F-182"},
			Note: "LeaseLost once the partition is gone: stop the work. A member that was silent for long asks the broker before it answers.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-32", "KAF-F-34", "KAF-F-182"},
			Note: "After the session, 45 s by default. Its commits are refused, its effects are not.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-32", "KAF-F-35", "KAF-F-181"},
			Note: "Each rebalance makes the messages in hand of the partitions that move come again elsewhere: keep few in hand.",
		},
	})
}

// shareSettleEntries is the same for a share group.
func shareSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final, Sources: []string{"KAF-F-45", "KAF-F-180"},
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Sources: []string{"KAF-F-48"},
			Note: "From the handle: the broker refuses a second ack, so it isn't asked.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"KAF-F-48"},
			Note: "ErrConflict, from here.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"KAF-F-45"},
			Note: "Each message has its own answer.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.StaysUnknown, Sources: []string{"KAF-F-48", "KAF-F-50"},
			Note: "The broker isn't asked again, for its answer wouldn't tell. The message comes again if the ack was lost: dedup it.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"KAF-F-45"},
			Note: "If the answer still comes while the connection lives: it is kept for who asks again. If it is lost the outcome stays Unknown.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-46", "KAF-F-50"},
			Note: "The broker gives back what was held over a connection as it ends.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-46"},
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"KAF-F-46"},
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"KAF-F-46", "KAF-F-47"},
			Note: "Unless the same member acquired the message again, which the fence looks after.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-46"},
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-45", "KAF-F-46"},
			Note: "LeaseLost: stop the work.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-46"},
			Note: "Its settles are refused, its effects are not.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"KAF-F-41"},
			Note: "Messages are locked one by one; a partition that moves takes no lock along.",
		},
	})
}
