package rabbitmq

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// settleEntries adds what becomes of settles of queues that come late, twice, in part or over
// faults.
func settleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-09"},
			Note: "No ack is confirmed.",
		},
		boundary.SettleReack: {
			Declared: boundary.Sent, Sources: []string{"RMQ-F-10"},
			Note: "From the handle: a second ack on the wire would close the channel, and give back all that is in hand on it.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-10"},
			Note: "ErrConflict, from here, for the same reason.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"RMQ-F-10"},
			Note: "What is bad is refused here and never gets to the channel, which it would close.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.Sent, Documented: boundary.Sent, Sources: []string{"RMQ-F-09"},
			Note: "Nobody learns that the ack was lost; the message comes again when the channel ends, or never while it lives. Dedup it.",
		},
		boundary.SettleCancel: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-09"},
			Note: "There is no answer to wait for.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"RMQ-F-11", "RMQ-F-12"},
			Note: "A tag ends with its channel, and the message goes back at once. Refused here; the SDK's own recovery would settle another message.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-12", "RMQ-F-13"},
			Note: "The channel is closed by then. An ack that was written before its client has read so is Sent, without effect.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Sources: []string{"RMQ-F-10", "RMQ-F-11"},
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Sources: []string{"RMQ-F-10", "RMQ-F-11"},
			Note: "A tag is good on its channel alone.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-10", "RMQ-F-11"},
			Note: "As with a late ack, it can be Sent and has no effect.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-13"},
			Note: "A consumer timeout can't be extended.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-12", "RMQ-F-13"},
			Note: "What it settles goes to a connection that is gone: LeaseLost, or Sent where its process has not yet read so. Its effects are not fenced.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-12"},
			Note: "Messages are handed out one by one; there is no assignment that could be taken away.",
		},
	})
}

// streamSettleEntries is the same for a stream.
func streamSettleEntries(e map[boundary.Claim]boundary.Entry) {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.SettleDurable: {
			Declared: boundary.Final, Sources: []string{"RMS-F-05", "RMS-F-180"},
			Note: "Of what was Confirmed; what is Pending comes again.",
		},
		boundary.SettleReack: {
			Declared: boundary.Confirmed, Sources: []string{"RMS-F-14"},
			Note: "Or Pending, as long as a lower message is open.",
		},
		boundary.SettleDouble: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-10"},
			Note: "ErrConflict, from here: a stream has no nack that it could take.",
		},
		boundary.SettleBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"RMS-F-10"},
			Note: "One stored offset covers all acks of a call; what is bad is refused before.",
		},
		boundary.SettleLostRequest: {
			Declared: boundary.TakesEffect, Sources: []string{"RMS-F-14"},
			Note: "Storing an offset has no answer; the adapter asks for the stored one, and stores again.",
		},
		boundary.SettleCancel: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"RMS-F-14"},
			Note: "The stored offset tells.",
		},
		boundary.SettleAfterReconnect: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-12", "RMS-F-16"},
			Note: "It is another receiver's turn by then, or might be: what the stored offset didn't pass comes again.",
		},
		boundary.SettleStaleBeforeRedelivery: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-10", "RMS-F-12"},
			Note: "Refused here, for the connection is gone; the broker takes an offset from anybody.",
		},
		boundary.SettleForeign: {
			Declared: boundary.Kept, Sources: []string{"RMS-F-12"},
		},
		boundary.VendorSettleForeign: {
			Declared: boundary.Kept, Sources: []string{"RMS-F-12", "RMS-F-14", "RMS-F-16"},
			Note: "An offset is stored on no connection but the one that it was read over, and the turn goes away only with that.",
		},
		boundary.SettleNackStale: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-10"},
			Note: "A nack is the adapter's own, and the next receiver never learns of it.",
		},
		boundary.SettleExtendStale: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-16"},
			Note: "LeaseLost once the turn is gone: stop the work.",
		},
		boundary.FenceZombie: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-12", "RMS-F-16"},
			Note: "By the end of its connection; the broker itself doesn't fence one that lost its turn, nor its effects.",
		},
		boundary.FenceRebalance: {
			Declared: boundary.NotApplicable, Sources: []string{"RMS-F-16"},
			Note: "A stream is one sequence, whose turn goes away only with the receiver's connection. Super streams are not used.",
		},
	})
}
