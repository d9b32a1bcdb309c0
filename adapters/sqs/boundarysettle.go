package sqs

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// settleEntries adds what becomes of settles that come late, twice, in part or over faults,
// for both kinds of queue.
func settleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final, Sources: []string{"SQS-F-24"},
			Note: "Unmeasured: nobody outside can kill the service. Effects need a dedup store anyway.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Documented: boundary.Confirmed, Sources: []string{"SQS-F-24"},
			Note: "From the handle, without a request. The service would say 200 too.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"SQS-F-20"},
			Note: "ErrConflict, from here; the queue would refuse to change a deleted message's visibility.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"SQS-F-24", "SQS-F-40"},
			Note: "Each entry of a batch has its own answer. Settle again what has an error.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"SQS-F-24", "SQS-F-26"},
			Note: "Within the lease.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"SQS-F-24", "SQS-F-26"},
			Note: "Within the lease. After it the outcome stays Unknown.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.TakesEffect, Sources: []string{"SQS-F-41"},
			Note: "A receipt handle belongs to no connection.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Sources: []string{"SQS-F-21", "SQS-F-22"},
			Note: "Refused here, by the clock of this process; a standard queue would delete the message, a FIFO queue refuses. It comes again.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Sources: []string{"SQS-F-21", "SQS-F-22"},
			Note: "Refused here.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Sources: []string{"SQS-F-19", "SQS-F-22"},
			Note: "Refused here, by the clock of this process.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Sources: []string{"SQS-F-19", "SQS-F-22"},
			Note: "LeaseLost, from here: stop the work. A standard queue takes a change of visibility after the lease, which says nothing of who holds the message.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Sources: []string{"SQS-F-19", "SQS-F-21", "SQS-F-22"},
			Note: "By the clock, which went on while the process stood still. Its effects are not fenced.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"SQS-F-41"},
			Note: "Messages are handed out one by one; there is no assignment that could be taken away.",
		},
	})
}

// standardSettleEntries is what else holds for a standard queue.
func standardSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.VendorSettleForeign: {
			Declared: boundary.TakenTold, Sources: []string{"SQS-F-20", "SQS-F-23", "SQS-F-24"},
			Note: "If the late delete deletes, which isn't promised, the holder learns of it by a nack or an Extend; its ack is answered 200, as ever.",
		},
	})
}

// fifoSettleEntries is what else holds for a FIFO queue.
func fifoSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SQS-F-22"},
		},
	})
}
