package pubsub

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// Boundary is where the guarantees of a subscription without exactly-once
// delivery end, behind this adapter.
func Boundary() boundary.Boundary {
	e := common()
	e[boundary.SettleAnswer] = boundary.Entry{
		Declared: boundary.Sent, Documented: boundary.Sent, Sources: []string{"PS-F-12", "PS-F-16"},
		Note: "The service answers OK to an ack, whether it has an effect or not. For an answer that says so the subscription needs exactly-once delivery.",
	}
	e[boundary.VendorSettleStale] = boundary.Entry{
		Declared: boundary.TakesEffect, Sources: []string{"PS-F-16", "PS-F-36"},
		Note: "The documentation commits itself to nothing: a late ack may succeed, and the message may come again all the same. The vendor's emulator ignores one once the message was delivered again. Declared is the weaker; rely on neither.",
	}
	e[boundary.SettleLostResponse] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"PS-F-16"},
		Note: "The answer to an ack says nothing, so there is none to lose: the outcome is Sent.",
	}
	e[boundary.SettleFinal] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"PS-F-16", "PS-F-29"},
		Note: "Without exactly-once delivery no ack is confirmed, so nothing is promised.",
	}
	settleEntries(e)
	return boundary.Boundary{Broker: "pubsub", Of: "Google Cloud Pub/Sub, pull subscription without exactly-once delivery", Entries: e, Limits: limits()}
}

// BoundaryExactlyOnce is the same for a subscription with exactly-once delivery
// ([ExactlyOnce]).
func BoundaryExactlyOnce() boundary.Boundary {
	e := common()
	maps.Copy(e, leases(true))
	e[boundary.SettleAnswer] = boundary.Entry{
		Declared: boundary.Confirmed, Documented: boundary.Confirmed, Sources: []string{"PS-F-08", "PS-F-13", "PS-F-36"},
		Note: "In one region. With ordering, acks of a key are taken in order alone: one ahead of an earlier message of its key is ErrConflict, and can be sent later.",
	}
	e[boundary.SettleLostResponse] = boundary.Entry{
		Declared: boundary.StaysUnknown, Documented: boundary.StaysUnknown, Sources: []string{"PS-F-18", "PS-F-36"},
		Note: "The service calls the ack ID of a message that was acked invalid, as it does one that came too late. What became of the message shows in whether it comes again.",
	}
	e[boundary.VendorSettleStale] = boundary.Entry{
		Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"PS-F-08", "PS-F-16", "PS-F-36"},
		Note: "Only the newest ack ID works. One that is late and was not followed by another delivery may still be taken.",
	}
	e[boundary.SettleFinal] = boundary.Entry{
		Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"PS-F-08", "PS-F-29", "PS-F-32"},
		Note: "Seek brings acked messages back, and users report duplicates in the field: effects need a dedup store.",
	}
	settleEntries(e)
	exactlyOnceSettleEntries(e)
	return boundary.Boundary{Broker: "pubsub", Of: "Google Cloud Pub/Sub, pull subscription with exactly-once delivery", Entries: e, Limits: limits()}
}

// BoundaryExactlyOnceOrdered is [BoundaryExactlyOnce] for a subscription that also
// has order (Entity.Ordered), of messages that have a key.
func BoundaryExactlyOnceOrdered() boundary.Boundary {
	b := BoundaryExactlyOnce()
	b.Of = "Google Cloud Pub/Sub, pull subscription with exactly-once delivery and ordering, messages of one key"
	b.Entries[boundary.SettleAnswer] = boundary.Entry{
		Declared: boundary.InOrder, Documented: boundary.InOrder, Sources: []string{"PS-F-22", "PS-F-38"},
		Note: "An ack ahead of an earlier message of its key is ErrConflict: nothing was recorded, and the delivery stays held, to be acked after the earlier one. Acks of one Settle call are sorted.",
	}
	e := b.Entries[boundary.PublishBatchPartial]
	e.Note = "Each request is taken or refused as a whole, and the receipts say which. What follows a message of the same key that was refused is not sent, and is Refused too."
	b.Entries[boundary.PublishBatchPartial] = e
	return b
}

// common is what all have.
func common() map[boundary.Claim]boundary.Entry {
	twice := boundary.Entry{Declared: boundary.Twice, Sources: []string{"PS-F-01", "PS-F-02"},
		Note: "Exactly-once delivery is about the copies of one message_id. Two publishes are two of them: the receiver needs a dedup store on the ID."}
	e := map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"PS-F-06", "PS-F-24"},
			Note: "For the subscriptions that exist by then, until their retention ends, 7 days by default. A topic without a subscription keeps nothing unless it has a retention of its own.",
		},
		boundary.PublishBatchPartial: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"PS-F-05", "PS-F-23"},
			Note: "Each request is taken or refused as a whole, and the receipts say which. Messages of a key behind a part that failed are not sent.",
		},
		boundary.PublishDedupScope: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"PS-F-01"},
		},
		boundary.PublishDedupWindow: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"PS-F-01"},
		},
		boundary.PublishDedupVerdict: {
			Declared: boundary.StoredAgain, Sources: []string{"PS-F-01", "PS-F-02"},
		},
		boundary.PublishDedupBody: {
			Declared: boundary.BothStored, Sources: []string{"PS-F-01", "PS-F-02"},
		},
		boundary.PublishDedupContent: {
			Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"PS-F-02"},
		},
		boundary.PublishDedupLostResponse: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"PS-F-01", "PS-F-03", "PS-F-04"},
			Note: "The SDK's publisher retries by itself and hides it; here one Publish is one RPC and the receipt says Unknown. A retry is right, and the receiver needs a dedup store.",
		},
		boundary.PublishDedupNewProducer:   twice,
		boundary.PublishDedupBrokerRestart: twice,
		boundary.PublishDedupAfterConsume:  twice,
		boundary.PublishHalfOpen:           {Declared: boundary.SaysUnknown, Sources: []string{"PS-F-220"}, Note: "Try again with the same ID."},
		boundary.DeliverHalfOpen:           {Declared: boundary.Recovers, Sources: []string{"PS-F-220"}},
		boundary.SettleHalfOpen:            {Declared: boundary.SaysUnknown, Sources: []string{"PS-F-220"}, Note: "The same settle once more asks."},
		boundary.DeliverSlow:               {Declared: boundary.Once, Sources: []string{"PS-F-221"}},
		boundary.PublishDedupConcurrent:    twice,
		boundary.PublishDedupWindowAnchor: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"PS-F-01"},
			Note: "No ID is remembered, so there is no window.",
		},
		boundary.PublishDedupLostRequest: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"PS-F-01", "PS-F-05"},
			Note: "The publisher can't tell this from a lost answer, whose retry is stored twice.",
		},
		boundary.PublishDedupTwoProducers: twice,
		boundary.PublishDedupAfterPurge: {
			Declared: boundary.Twice, Sources: []string{"PS-F-01", "PS-F-100"},
			Note: "By Seek to now, which is what the service has for a purge.",
		},
		boundary.PublishDedupWithinBatch: twice,
		boundary.PublishDedupOtherKey:    twice,
		boundary.PublishDedupOtherTopic:  twice,
		boundary.PublishDedupLookalikeHeader: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"PS-F-01", "PS-F-35"},
			Note: "The service reads no dedup ID, and keeps to itself only names that begin with goog: those travel in onceline-headers.",
		},
		boundary.PublishIDLength: {
			Declared: boundary.KeptNotDeduped, Sources: []string{"PS-F-01", "PS-F-35"},
			Note: "The ID is an attribute, and several where escaping makes it longer than one may be.",
		},
		boundary.PublishIDCharset: {
			Declared: boundary.KeptNotDeduped, Sources: []string{"PS-F-01", "PS-F-35"},
			Note: "What isn't UTF-8 is percent-encoded in the attribute.",
		},
		boundary.DeliverRedeliverExpiry: {
			Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"PS-F-09", "PS-F-10"},
			Note: "The lease is the ack deadline, 10 to 600 s, counted from before the pull. Nothing is prefetched, and nothing is extended behind the application's back. A retry policy of the subscription comes on top.",
		},
		boundary.DeliverRedeliverCrash: {
			Declared: boundary.AfterLease, Sources: []string{"PS-F-09"},
			Note: "The service doesn't see a consumer die. Keep leases short and extend them.",
		},
		boundary.DeliverRedeliverNackDelay: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"PS-F-09", "PS-F-28"},
			Note: "By a last move of the ack deadline, in whole seconds, rounded up, at most 600. A retry policy of the subscription comes on top.",
		},
		boundary.DeliverAttempt: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"PS-F-26"},
			Note: "Without a dead-letter topic the service doesn't say. With one (Entity.DeadLetter) the number is there, and approximate.",
		},
		boundary.DeliverOrderKey: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"PS-F-20", "PS-F-21", "PS-F-38"},
			Note: "With Entity.Ordered, and publishers in one region. What follows a redelivered message of its key comes again too, even if it was acked (without exactly-once delivery).",
		},
		boundary.DeliverCancel: {
			Declared: boundary.GivenBack, Sources: []string{"PS-F-28", "PS-F-41"},
			Note: "A pull is never cut off while it may bring something: its messages go to the next Receive or back. That costs an attempt.",
		},
		boundary.DeliverDeadLetter: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"PS-F-27", "PS-F-37"},
			Note: "By the service from 5 deliveries up, whose agent needs the right to publish there and to subscribe here, and which may deliver a few times more. Below 5, and for the action, by the adapter, so by a receiver that runs. A dead-letter topic without a subscription loses messages.",
		},
		boundary.SettleStale: {
			Declared: boundary.Refused, Sources: []string{"PS-F-08", "PS-F-16"},
			Note: "Refused here, by the clock of this process.",
		},
		boundary.EffectCrashAfterEffect: {
			Declared: boundary.Twice, Sources: []string{"PS-F-08", "PS-F-09"},
			Note: "Use a dedup store.",
		},
		boundary.EffectZombie: {
			Declared: boundary.Twice, Sources: []string{"PS-F-09", "PS-F-16"},
			Note: "Use a store that compares IDs in the transaction of the effect.",
		},
	}
	maps.Copy(e, leases(false))
	maps.Copy(e, refusals())
	maps.Copy(e, delivery())
	return effects(maps.Clone(e))
}
