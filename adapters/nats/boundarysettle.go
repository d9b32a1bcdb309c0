package nats

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// settleEntries adds what becomes of settles that come late, twice, in part or over faults.
func settleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Redelivered, Sources: []string{"NATS-F-41"},
			Note: "A consumer's state is written up to 100 ms later: the acks of that time are forgotten in a crash of the process, and their messages come again. Effects need a dedup store; with three replicas, or on a work queue, none came again.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Sources: []string{"NATS-F-15", "NATS-F-17"},
			Note: "From the handle, without a frame. The server would confirm it too, whatever became of the message.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-15"},
			Note: "ErrConflict, without a frame.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"NATS-F-14"},
			Note: "Each settle has its own answer. What is refused is refused here: settle it again by itself.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"NATS-F-14", "NATS-F-17"},
			Note: "Within the lease and on the same connection. The server confirms the second ask whether or not the first arrived.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"NATS-F-17"},
			Note: "Within the lease and on the same connection: the server confirms what is settled already.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-16", "NATS-F-27"},
			Note: "Refused here, for a new connection can't tell whether the lease went on; the server would take it. The message comes again when its lease ends, so a cut costs each delivery in hand a second one.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-16", "NATS-F-21"},
			Note: "Refused here, by the clock of this process; the server would take it. The message comes again.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Sources: []string{"NATS-F-16"},
			Note: "Refused here, by the clock of this process; the server would take it.",
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.TakenUnnoticed, Sources: []string{"NATS-F-16", "NATS-F-17", "NATS-F-180"},
			Note: "The holder's own ack or nack is confirmed as if it still had the message: it can't notice.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-18"},
			Note: "Refused here; the server would deliver once more at once, beside the holder.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-19"},
			Note: "LeaseLost, from here: stop the work. The server would restart the timer of the present holder.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-16", "NATS-F-18", "NATS-F-19"},
			Note: "By the clock, which went on while the process stood still. Clients that don't go through this toolkit are not fenced, and no effect is.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"NATS-F-14"},
			Note: "Messages are handed out one by one; there is no assignment that could be taken away.",
		},
	})
}
