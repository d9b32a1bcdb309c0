package servicebus

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// BoundaryQueue is where the guarantees of a queue without sessions, and of a
// subscription without sessions, end behind this adapter.
func BoundaryQueue() boundary.Boundary {
	return boundary.Boundary{
		Broker:  "servicebus",
		Of:      "Azure Service Bus, Standard or Premium, queue with duplicate detection, no sessions, not partitioned",
		Entries: entries(false),
		Limits:  limits(),
	}
}

// BoundarySessions is the same for queues and subscriptions with sessions.
func BoundarySessions() boundary.Boundary {
	return boundary.Boundary{
		Broker:  "servicebus",
		Of:      "Azure Service Bus, Standard or Premium, queue with duplicate detection and sessions, not partitioned",
		Entries: entries(true),
		Limits:  limits(),
	}
}

func entries(sessions bool) map[boundary.Claim]boundary.Entry {
	e := map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SB-F-12", "SB-F-29"},
			Note: "A forced failover to another region with asynchronous replication can lose what was accepted.",
		},
		boundary.PublishBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"SB-F-10"},
			Note: "The service takes or refuses a batch as one. A batch that is refused for what is in it is sent again in halves, so that one bad message harms no other.",
		},
		boundary.PublishDedupScope: {
			Declared: boundary.Topic, Documented: boundary.Topic, Sources: []string{"SB-F-01", "SB-F-05"},
			Note: "On a partitioned entity it is the key: the same ID with another key is stored again.",
		},
		boundary.PublishDedupWindow: {
			Declared: boundary.AsConfigured, Documented: boundary.AsConfigured, Sources: []string{"SB-F-02", "SB-F-03"},
			Note: "10 minutes unless Ensure is given a Window, of 20 s to 7 days. Whether there is any is fixed at creation.",
		},
		boundary.PublishDedupVerdict: {
			Declared: boundary.Accepted, Documented: boundary.Accepted, Sources: []string{"SB-F-04"},
			Note: "A duplicate is dropped in silence. Nothing tells it from a message that was stored.",
		},
		boundary.PublishDedupBody: {
			Declared: boundary.FirstKept, Documented: boundary.FirstKept, Sources: []string{"SB-F-04"},
			Note: "An ID reused by mistake loses a message without a word: derive it from what makes the message what it is.",
		},
		boundary.PublishDedupContent: {
			Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"SB-F-04"},
		},
		boundary.PublishDedupLostResponse: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SB-F-01", "SB-F-50"},
			Note: "Within the window. Without duplicate detection it is twice.",
		},
		boundary.PublishDedupNewProducer: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SB-F-01"},
			Note: "The service keeps the IDs, so a producer needs no state of its own but the ID.",
		},
		boundary.PublishDedupBrokerRestart: {
			Declared: boundary.Once, Sources: []string{"SB-F-01", "SB-F-29"},
			Note: "The IDs are part of the entity's durable state. A failover with asynchronous replication can lose them.",
		},
		boundary.PublishDedupAfterConsume: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SB-F-01", "SB-F-06"},
			Note: "A deliberate second sending under the same ID is swallowed too: give it a Copy.",
		},
		boundary.PublishHalfOpen: {Declared: boundary.SaysUnknown, Sources: []string{"SB-F-220"}, Note: "Try again with the same ID."},
		boundary.DeliverHalfOpen: {Declared: boundary.Recovers, Sources: []string{"SB-F-220"}},
		boundary.SettleHalfOpen:  {Declared: boundary.SaysUnknown, Sources: []string{"SB-F-220"}, Note: "The same settle once more asks."},
		boundary.DeliverSlow:     {Declared: boundary.Once, Sources: []string{"SB-F-221"}},
		boundary.PublishDedupConcurrent: {
			Declared: boundary.Once, Sources: []string{"SB-F-01"},
		},
		boundary.PublishDedupWindowAnchor: {
			Declared: boundary.FirstSighting, Sources: []string{"SB-F-03"},
			Note: "The documentation doesn't say whether a repeat prolongs the window. Declared is the weaker; rely on neither.",
		},
		boundary.PublishDedupLostRequest: {
			Declared: boundary.Once, Sources: []string{"SB-F-01", "SB-F-12"},
			Note: "An ID is known from when its message is stored.",
		},
		boundary.PublishDedupTwoProducers: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SB-F-01"},
		},
		boundary.PublishDedupAfterPurge: {
			Declared: boundary.Once, Sources: []string{"SB-F-01", "SB-F-100"},
			Note: "However it is emptied. Concluded from the history's being one of sent IDs, not of messages that are there; unmeasured. To send the same messages anew, set Copy or wait for the end of the window.",
		},
		boundary.PublishDedupWithinBatch: {
			Declared: boundary.Once, Sources: []string{"SB-F-01", "SB-F-10", "SB-F-100"},
			Note: "The batch is accepted as one, and nothing marks the message that was dropped.",
		},
		boundary.PublishDedupOtherKey: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SB-F-01", "SB-F-05"},
			Note: "The message stays in the session of the first key. On a partitioned entity it is stored again.",
		},
		boundary.PublishDedupOtherTopic: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"SB-F-01"},
			Note: "Each entity has its own history. Where both forward to one that detects duplicates, the second is dropped there.",
		},
		boundary.PublishDedupLookalikeHeader: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SB-F-01"},
			Note: "MessageId is a field of its own; an application property of that name is no ID.",
		},
		boundary.PublishIDLength: {
			Declared: boundary.KeptAndDeduped, Sources: []string{"SB-F-01"},
			Note: "MessageId holds 128 characters. A longer ID is hashed there, and whole in onceline-id. A producer without this toolkit must do the same to be deduped against.",
		},
		boundary.PublishIDCharset: {
			Declared: boundary.KeptAndDeduped, Sources: []string{"SB-F-01", "SB-F-100"},
			Note: "Control characters, spaces around the ID and what isn't UTF-8 are hashed. Don't let IDs differ by the case of their letters alone: how the service compares them isn't documented.",
		},
		boundary.DeliverRedeliverExpiry: {
			Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"SB-F-13", "SB-F-18"},
			Note: "A lock is 5 s to 5 minutes, and Extend renews it by as much. The service may lose one earlier, as when it moves the entity.",
		},
		boundary.DeliverRedeliverCrash: {
			Declared: boundary.AfterLease, Sources: []string{"SB-F-13", "SB-F-57"},
			Note: "A connection that ends frees no message. Keep locks short and extend them.",
		},
		boundary.DeliverRedeliverNackDelay: {
			Declared: boundary.Unsupported, Documented: boundary.Unsupported, Sources: []string{"SB-F-21"},
			Note: "A nack with a delay is refused, and the handle stays as it was. Back off in the consumer, or publish a delayed copy, with a Copy.",
		},
		boundary.DeliverAttempt: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"SB-F-18", "SB-F-53"},
			Note: "It counts nacks and locks that ran out. What a cancelled Receive gave back unseen isn't counted.",
		},
		boundary.DeliverOrderKey: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"SB-F-23"},
			Note: "With Entity.Ordered, which makes a queue with sessions. Without it the order isn't kept, not even at first: what arrives between two calls of Receive goes back and comes later (SB-F-53).",
		},
		boundary.DeliverCancel: {
			Declared: boundary.GivenBack, Sources: []string{"SB-F-53", "SB-F-57"},
			Note: "Released, which costs no attempt; what arrives while a receiver closes costs one.",
		},
		boundary.DeliverDeadLetter: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"SB-F-18", "SB-F-19", "SB-F-20"},
			Note: "By the service itself, to the dead-letter sub-queue, which is a subscription of its own here, or from there to Entity.DeadLetter. Nothing ever cleans the sub-queue.",
		},
		boundary.SettleAnswer: {
			Declared: boundary.Confirmed, Documented: boundary.Confirmed, Sources: []string{"SB-F-14"},
		},
		boundary.SettleLostResponse: {
			Declared: boundary.StaysUnknown, Sources: []string{"SB-F-14", "SB-F-16", "SB-F-52"},
			Note: "The service says \"lock lost\" to a second ack whether the first was taken or the lock ran out. Only a dedup store can tell when the message comes again.",
		},
		boundary.SettleStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-14"},
			Note: "Refused here by this process's clock, and by the service.",
		},
		boundary.VendorSettleStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-14"},
			Note: "A lock token is for one delivery. Clients that don't go through this toolkit are fenced too.",
		},
		boundary.SettleFinal: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"SB-F-14"},
		},
		boundary.EffectCrashAfterEffect: {
			Declared: boundary.Twice, Sources: []string{"SB-F-33"},
			Note: "The service sells at-least-once: use a dedup store.",
		},
		boundary.EffectZombie: {
			Declared: boundary.Twice, Sources: []string{"SB-F-33"},
			Note: "The lock guards the ack, not the effect. Use a store that compares IDs in the transaction of the effect.",
		},
	}
	effects(e)
	maps.Copy(e, leases(sessions))
	settleEntries(e)
	maps.Copy(e, refusals())
	maps.Copy(e, delivery())
	if !sessions {
		return e
	}
	sessionSettleEntries(e)
	sessionDelivery(e)
	e[boundary.DeliverRedeliverExpiry] = boundary.Entry{
		Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"SB-F-13", "SB-F-23", "SB-F-24"},
		Note: "The lock is the session's: until it ends, all messages of the key wait for one that is stuck.",
	}
	e[boundary.DeliverRedeliverCrash] = boundary.Entry{
		Declared: boundary.AtOnce, Sources: []string{"SB-F-24", "SB-F-54"},
		Note: "The session is freed with the link of the connection that ended, and the delivery isn't counted: a message that kills its consumer comes for ever. A host that vanishes without ending its connection keeps the session until its lock ends.",
	}
	e[boundary.DeliverOrderKey] = boundary.Entry{
		Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"SB-F-23"},
		Note: "One session for each key, held by one receiver at a time. Messages without a key share the session without a name.",
	}
	e[boundary.DeliverCancel] = boundary.Entry{
		Declared: boundary.GivenBack, Sources: []string{"SB-F-24"},
		Note: "A Receive that ends without messages lets its session go, uncounted.",
	}
	e[boundary.SettleLostResponse] = boundary.Entry{
		Declared: boundary.StaysUnknown, Sources: []string{"SB-F-14", "SB-F-16"},
		Note: "As without sessions; a session that is lost meanwhile makes it stay Unknown too.",
	}
	return e
}
