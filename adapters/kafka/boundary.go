package kafka

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// GroupBoundary is where the guarantees of Kafka with a consumer group end,
// behind this adapter.
func GroupBoundary() boundary.Boundary {
	e := hopOne()
	e[boundary.DeliverRedeliverExpiry] = boundary.Entry{
		Declared: boundary.NoLease, Documented: boundary.NoLease, Sources: []string{"KAF-F-30", "KAF-F-36"},
		Note: "A member holds partitions, not messages. One that lives and never settles keeps what it has, and everything behind it in the partition: bound the work of a message yourself.",
	}
	e[boundary.DeliverRedeliverCrash] = boundary.Entry{
		Declared: boundary.AfterSession, Documented: boundary.AfterSession, Sources: []string{"KAF-F-34"},
		Note: "45 s by default; ?session= shortens it. Close gives back at once, except for a static member.",
	}
	e[boundary.DeliverRedeliverNackDelay] = boundary.Entry{
		Declared: boundary.Honoured, Documented: boundary.Unsupported, Sources: []string{"KAF-F-36"},
		Note: "The receiver redelivers by itself and holds the commit below. If it dies or loses the partition meanwhile, the next owner gets the message without the rest of the delay.",
	}
	e[boundary.DeliverAttempt] = boundary.Entry{
		Declared: boundary.PerReceiver, Documented: boundary.None, Sources: []string{"KAF-F-36"},
		Note: "Kafka doesn't count. The receiver does, from 1 after each rebalance and crash, so a message that kills its consumer never reaches MaxDeliveries: count in a store if that can happen.",
	}
	e[boundary.DeliverOrderKey] = boundary.Entry{
		Declared: boundary.OverNack, Documented: boundary.UntilNack, Sources: []string{"KAF-F-36"},
		Note: "With Entity.Ordered, which hands out one message of a key at a time. Without it, later messages of a nacked key wait too, but those already handed out don't.",
	}
	e[boundary.DeliverCancel] = boundary.Entry{
		Declared: boundary.GivenBack, Sources: []string{"KAF-F-30"},
		Note: "What was fetched and not handed out costs nothing and is there for the next Receive.",
	}
	e[boundary.DeliverDeadLetter] = boundary.Entry{
		Declared: boundary.Moved, Sources: []string{"KAF-F-36"},
		Note: "The adapter copies, then settles. A crash in between leaves a second copy, under the same ID.",
	}
	e[boundary.SettleAnswer] = boundary.Entry{
		Declared: boundary.PendingFirst, Documented: boundary.PendingFirst, Sources: []string{"KAF-F-30"},
		Note: "An offset covers all before it, so an ack waits until all lower ones are settled. One message that is never settled makes all behind it come again.",
	}
	e[boundary.SettleLostResponse] = boundary.Entry{
		Declared: boundary.ConfirmedAgain, Sources: []string{"KAF-F-38"},
		Note: "While the partition is still the member's. Afterwards the outcome is LeaseLost unless a commit is known to cover it.",
	}
	e[boundary.SettleStale] = boundary.Entry{
		Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-32", "KAF-F-33"},
	}
	e[boundary.VendorSettleStale] = boundary.Entry{
		Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-32", "KAF-F-33"},
		Note: "Commits carry member and generation. A commit without a member is refused only while the group has members, and one in a transaction not even then; a client that rejoins under a new member ID with old positions isn't fenced either. The adapter has no such commits, and ties each to the assignment that its messages came from.",
	}
	e[boundary.SettleFinal] = boundary.Entry{
		Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"KAF-F-37"},
		Note: "Confirmed is final, Pending is not. A group that stays empty for seven days loses its offsets and begins where a new one would.",
	}
	maps.Copy(e, groupLeases())
	groupSettleEntries(e)
	groupDelivery(e)
	return boundary.Boundary{Broker: "kafka", Of: "Apache Kafka 4.x, consumer group; measured on 4.2.0: one node and three, the classic protocol and KIP-848's, transaction.version 1 and 2", Entries: groupEffects(e), Limits: limitsGroup()}
}

// ShareBoundary is where the guarantees of Kafka with a share group end, behind
// this adapter.
func ShareBoundary() boundary.Boundary {
	e := hopOne()
	e[boundary.DeliverRedeliverExpiry] = boundary.Entry{
		Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"KAF-F-41"},
		Note: "30 s by default, 15 to 60 s by the broker's bounds. Extend renews it from 4.2 on.",
	}
	e[boundary.DeliverRedeliverCrash] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"KAF-F-50"},
		Note: "The broker gives back what a member holds when its connection closes. A machine that vanishes without closing it costs the lease.",
	}
	e[boundary.DeliverRedeliverNackDelay] = boundary.Entry{
		Declared: boundary.Unsupported, Documented: boundary.Unsupported, Sources: []string{"KAF-F-45"},
		Note: "A released message comes again at once, and each time counts towards the limit.",
	}
	e[boundary.DeliverAttempt] = boundary.Entry{
		Declared: boundary.Approximate, Documented: boundary.Approximate, Sources: []string{"KAF-F-49"},
		Note: "A delivery that was out when the broker crashed isn't counted.",
	}
	e[boundary.DeliverOrderKey] = boundary.Entry{
		Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-51"},
		Note: "Entity.Ordered is ErrUnsupported. Use a consumer group where order matters.",
	}
	e[boundary.PublishOrderKey] = boundary.Entry{
		Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-51", "KAF-F-124"},
		Note: "The partition keeps its order over a failure, and the share group doesn't deliver in it.",
	}
	e[boundary.DeliverCancel] = boundary.Entry{
		Declared: boundary.GivenBack, Sources: []string{"KAF-F-41", "KAF-F-45"},
		Note: "Within about half a second, and it costs the message an attempt.",
	}
	e[boundary.DeliverDeadLetter] = boundary.Entry{
		Declared: boundary.Moved, Documented: boundary.Dropped, Sources: []string{"KAF-F-42", "KAF-F-53"},
		Note: "The adapter copies, then accepts. At its own limit, ten at most, the broker drops a message: so many crashes in a row lose it.",
	}
	e[boundary.SettleAnswer] = boundary.Entry{
		Declared: boundary.Confirmed, Documented: boundary.Confirmed, Sources: []string{"KAF-F-45"},
	}
	e[boundary.SettleLostResponse] = boundary.Entry{
		Declared: boundary.StaysUnknown, Sources: []string{"KAF-F-48"},
		Note: "The broker refuses a second ack whether or not the first took effect, so it isn't asked. Expect the message again and dedup it.",
	}
	e[boundary.SettleStale] = boundary.Entry{
		Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-46"},
	}
	e[boundary.VendorSettleStale] = boundary.Entry{
		Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-46", "KAF-F-47"},
		Note: "If another member has the message. If the same member got it again, the broker takes the old ack for the new delivery; the fence refuses that. Once the group's start has passed the message, the broker answers a late ack as a success, without effect.",
	}
	e[boundary.SettleFinal] = boundary.Entry{
		Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"KAF-F-45"},
	}
	maps.Copy(e, shareLeases())
	shareSettleEntries(e)
	shareDelivery(e)
	return boundary.Boundary{Broker: "kafka", Of: "Apache Kafka 4.x, share group (KIP-932); measured on 4.2.0: one node and three", Entries: shareEffects(e), Limits: limitsShare()}
}

// hopOne is what doesn't depend on how messages are received.
func hopOne() map[boundary.Claim]boundary.Entry {
	e := map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"KAF-F-02", "KAF-F-11"},
			Note: "All in-sync replicas have it, none has synced it to disk. With min.insync.replicas=1, the default, that may be one copy: set 2 with three replicas.",
		},
		boundary.PublishBatchPartial: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"KAF-F-13"},
			Note: "What is too large is refused before it joins others in a batch of the protocol.",
		},
		boundary.PublishDedupScope: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-01"},
			Note: "Kafka dedups a producer's own retries by sequence and knows no ID of the application. The ID travels in a header for a store to use.",
		},
		boundary.PublishDedupWindow: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-01", "KAF-F-03", "KAF-F-07"},
			Note: "A wish for a Window is ErrUnsupported.",
		},
		boundary.PublishDedupVerdict: {
			Declared: boundary.StoredAgain, Documented: boundary.StoredAgain, Sources: []string{"KAF-F-01"},
		},
		boundary.PublishDedupBody: {
			Declared: boundary.BothStored, Sources: []string{"KAF-F-01"},
			Note: "Except that a retry under an ID that is still in flight joins that record, whatever its body.",
		},
		boundary.PublishDedupContent: {
			Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"KAF-F-01"},
		},
		boundary.PublishDedupLostResponse: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"KAF-F-03", "KAF-F-04", "KAF-F-10"},
			Note: "Retry with the same publisher and the same ID: it joins the record in flight.",
		},
		boundary.PublishDedupNewProducer: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-06"},
			Note: "A producer's restart ends the broker's knowledge of it. Dedup by the ID when consuming.",
		},
		boundary.PublishDedupBrokerRestart: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01", "KAF-F-07"},
			Note: "The broker keeps the sequences of its producers over a restart, but a second Publish of an answered ID is a new record to it.",
		},
		boundary.PublishDedupAfterConsume: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
		},
		boundary.PublishHalfOpen: {Declared: boundary.SaysUnknown, Sources: []string{"KAF-F-220"}, Note: "Try again with the same ID."},
		boundary.DeliverHalfOpen: {Declared: boundary.Recovers, Sources: []string{"KAF-F-220"}},
		boundary.SettleHalfOpen:  {Declared: boundary.SaysUnknown, Sources: []string{"KAF-F-220"}, Note: "The same settle once more asks."},
		boundary.DeliverSlow:     {Declared: boundary.Once, Sources: []string{"KAF-F-221"}},
		boundary.PublishDedupConcurrent: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
		},
		boundary.PublishDedupWindowAnchor: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-01"},
			Note: "No ID is remembered, so there is no window.",
		},
		boundary.PublishDedupLostRequest: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"KAF-F-04", "KAF-F-10"},
			Note: "The record's sequence number is spent, and a gap would be refused: so the SDK sends the record again before what is behind it, and a retry with the same publisher joins it.",
		},
		boundary.PublishDedupTwoProducers: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
			Note: "Each producer has its own sequence numbers. Dedup by the ID when consuming.",
		},
		boundary.PublishDedupAfterPurge: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
			Note: "By DeleteRecords, which is what Kafka has for a purge.",
		},
		boundary.PublishDedupWithinBatch: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
			Note: "Also within one batch of the protocol.",
		},
		boundary.PublishDedupOtherKey: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
			Note: "And perhaps in another partition, where a consumer that keeps positions doesn't see the first. Derive the key from the ID's own data.",
		},
		boundary.PublishDedupOtherTopic: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-01"},
		},
		boundary.PublishDedupLookalikeHeader: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"KAF-F-100"},
			Note: "The broker gives no header a meaning.",
		},
		boundary.PublishIDLength: {
			Declared: boundary.KeptNotDeduped, Documented: boundary.KeptNotDeduped, Sources: []string{"KAF-F-01", "KAF-F-100"},
			Note: "The ID is a header's value, whole.",
		},
		boundary.PublishIDCharset: {
			Declared: boundary.KeptNotDeduped, Documented: boundary.KeptNotDeduped, Sources: []string{"KAF-F-01", "KAF-F-100"},
			Note: "A header's value is bytes.",
		},
		boundary.EffectCrashAfterEffect: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-14", "KAF-F-52"},
			Note: "Kafka's transactions cover Kafka alone. Commit the ID together with the effect, in a dedup store.",
		},
		boundary.EffectZombie: {
			Declared: boundary.Twice, Sources: []string{"KAF-F-14"},
			Note: "The late ack is refused, but its effect was done. A stored position with compare-and-set fences it.",
		},
	}
	maps.Copy(e, refusals())
	maps.Copy(e, delivery())
	return e
}
