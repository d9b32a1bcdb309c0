package sqs

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

const of = "Amazon SQS, JSON protocol, 2026-11, "

// BoundaryFIFO is where the guarantees of a FIFO queue end, behind this adapter,
// with the queue as the scope of IDs.
func BoundaryFIFO() boundary.Boundary {
	b := boundary.Boundary{Broker: "sqs", Of: of + "FIFO queue, DeduplicationScope=queue", Entries: effects(shared()), Limits: limitsFIFO()}
	for claim, e := range map[boundary.Claim]boundary.Entry{
		boundary.PublishDedupScope: {
			Declared: boundary.Topic, Documented: boundary.Topic, Sources: []string{"SQS-F-05", "SQS-F-06"},
			Note: "The key plays no part: an ID that comes again under another key is swallowed. Queues have no common memory, so a retry must go to the same queue.",
		},
		boundary.PublishDedupWindow: {
			Declared: boundary.AsConfigured, Documented: boundary.AsConfigured, Sources: []string{"SQS-F-02", "SQS-F-11"},
			Note: "Five minutes from the first accepted send, fixed. A retry that may end later makes a second message: bound it with broker.Retry.",
		},
		boundary.PublishDedupVerdict: {
			Declared: boundary.Accepted, Documented: boundary.Accepted, Sources: []string{"SQS-F-03"},
			Note: "Nothing in the answer marks a duplicate. A producer that has to know keeps a record of its own.",
		},
		boundary.PublishDedupBody: {
			Declared: boundary.FirstKept, Sources: []string{"SQS-F-03", "SQS-F-08"},
			Note: "The body isn't compared. Derive the ID from what makes the message what it is.",
		},
		boundary.PublishDedupContent: {
			Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"SQS-F-08"},
			Note: "Also on a queue with content-based deduplication: the adapter always sends an ID, which wins over the body's hash.",
		},
		boundary.PublishDedupLostResponse: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-02", "SQS-F-03", "SQS-F-13"},
			Note: "Within the five minutes.",
		},
		boundary.PublishDedupNewProducer: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-01", "SQS-F-02"},
			Note: "The queue keeps the IDs, so a producer needs no state of its own but the ID.",
		},
		boundary.PublishDedupBrokerRestart: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-02", "SQS-F-10"},
			Note: "A purge does forget them: whoever purges the queue reopens the window.",
		},
		boundary.PublishDedupAfterConsume: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-04"},
			Note: "A new message under an old ID is swallowed though the first was consumed, and the receipt says Accepted. A deliberate second one, such as a replay of a dead letter, sets Copy.",
		},
		boundary.PublishDedupConcurrent: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-02", "SQS-F-03"},
		},
		boundary.PublishDedupWindowAnchor: {
			Declared: boundary.FirstSighting, Documented: boundary.FirstSighting, Sources: []string{"SQS-F-02", "SQS-F-11"},
			Note: "From the first send that was accepted. Bound the retries of a message, as broker.Retry does by the window.",
		},
		boundary.PublishDedupTwoProducers: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-01", "SQS-F-02"},
		},
		boundary.PublishDedupAfterPurge: {
			Declared: boundary.Twice, Sources: []string{"SQS-F-10"},
			Note: "The purge forgets the IDs too: stop producers and their retries before it, or a late one gets in.",
		},
		boundary.PublishDedupWithinBatch: {
			Declared: boundary.Once, Sources: []string{"SQS-F-03", "SQS-F-14"},
			Note: "Both entries succeed, and nothing marks the duplicate.",
		},
		boundary.PublishDedupOtherKey: {
			Declared: boundary.Once, Sources: []string{"SQS-F-05"},
			Note: "The message stays in the group of the first key.",
		},
		boundary.PublishIDLength: {
			Declared: boundary.KeptAndDeduped, Sources: []string{"SQS-F-01"},
			Note: "The dedup field holds 128 characters. A longer ID is hashed there, and whole in the attribute onceline-id. A producer without this toolkit must do the same to be deduped against.",
		},
		boundary.PublishIDCharset: {
			Declared: boundary.KeptAndDeduped, Sources: []string{"SQS-F-01"},
			Note: "The dedup field takes letters, digits and ASCII punctuation. An ID with anything else, a space also, is hashed there, and whole in the attribute onceline-id.",
		},
		boundary.DeliverOrderKey: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"SQS-F-28", "SQS-F-29", "SQS-F-36"},
			Note: "While a message of a key is in flight no other receive gets one of that key. Within a batch in hand the consumer keeps the order, as broker.Consume does. A dead-lettered message leaves a gap.",
		},
		boundary.SettleLostResponse: {
			Declared: boundary.ConfirmedAgain, Sources: []string{"SQS-F-24", "SQS-F-26"},
			Note: "Within the lease. After it the queue refuses the handle, and the outcome stays Unknown.",
		},
		boundary.SettleStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SQS-F-22"},
			Note: "Refused here, and by the queue as well.",
		},
		boundary.VendorSettleStale: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SQS-F-22"},
			Note: "A FIFO handle dies with its lease: other clients are fenced too.",
		},
		boundary.SettleFinal: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"SQS-F-24", "SQS-F-39"},
		},
	} {
		b.Entries[claim] = e
	}
	maps.Copy(b.Entries, leases(true))
	settleEntries(b.Entries)
	fifoSettleEntries(b.Entries)
	fifoDelivery(b.Entries)
	return b
}

// BoundaryFIFOGroups is BoundaryFIFO for a queue that compares IDs within a key
// (DeduplicationScope=messageGroup), as one for high throughput does.
func BoundaryFIFOGroups() boundary.Boundary {
	b := BoundaryFIFO()
	b.Of = of + "FIFO queue, DeduplicationScope=messageGroup"
	b.Entries[boundary.PublishDedupScope] = boundary.Entry{
		Declared: boundary.Key, Documented: boundary.Key, Sources: []string{"SQS-F-06"},
		Note: "The same ID under two keys is two messages: a retry must carry the key of the first attempt.",
	}
	b.Entries[boundary.PublishDedupOtherKey] = boundary.Entry{
		Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"SQS-F-06"},
		Note: "An ID is compared with those of its key alone.",
	}
	return b
}

// BoundaryStandard is where the guarantees of a standard queue end, behind this
// adapter.
func BoundaryStandard() boundary.Boundary {
	b := boundary.Boundary{Broker: "sqs", Of: of + "standard queue", Entries: effects(shared()), Limits: limitsStandard()}
	maps.Copy(b.Entries, standardRefusals())
	none := []string{"SQS-F-01", "SQS-F-13"}
	boundary.Relayed(b.Entries, false, relayedTwice, none...)
	twice := boundary.Entry{Declared: boundary.Twice, Documented: boundary.Twice, Sources: none,
		Note: "Use a FIFO queue, or a dedup store at the consumer: the ID travels as an attribute."}
	for claim, e := range map[boundary.Claim]boundary.Entry{
		boundary.PublishDedupScope: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"SQS-F-01", "SQS-F-38"},
			Note: "A standard queue remembers no IDs.",
		},
		boundary.PublishDedupWindow:  {Declared: boundary.None, Documented: boundary.None, Sources: none},
		boundary.PublishDedupVerdict: {Declared: boundary.StoredAgain, Documented: boundary.StoredAgain, Sources: none},
		boundary.PublishDedupBody:    {Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: none},
		boundary.PublishDedupContent: {Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: none},
		boundary.PublishDedupLostResponse: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: none,
			Note: "The SDK's own retry would do it behind the receipt; it is off. Use a dedup store at the consumer.",
		},
		boundary.PublishDedupNewProducer:   twice,
		boundary.PublishDedupBrokerRestart: twice,
		boundary.PublishDedupAfterConsume:  twice,
		boundary.PublishDedupConcurrent:    twice,
		boundary.PublishDedupWindowAnchor:  {Declared: boundary.None, Documented: boundary.None, Sources: none, Note: "No ID is remembered, so there is no window."},
		boundary.PublishDedupTwoProducers:  twice,
		boundary.PublishDedupAfterPurge:    twice,
		boundary.PublishDedupWithinBatch:   twice,
		boundary.PublishDedupOtherKey:      twice,
		boundary.PublishIDLength: {
			Declared: boundary.KeptNotDeduped, Sources: none,
			Note: "The ID is the attribute onceline-id, whole.",
		},
		boundary.PublishIDCharset: {
			Declared: boundary.KeptNotDeduped, Sources: none,
			Note: "What isn't printable ASCII is percent-encoded in the attribute.",
		},
		boundary.DeliverOrderKey: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"SQS-F-38"},
			Note: "Ensure refuses Ordered. A group ID on a standard queue is a tenant's label and no order.",
		},
		boundary.SettleLostResponse: {
			Declared: boundary.ConfirmedAgain, Documented: boundary.ConfirmedAgain, Sources: []string{"SQS-F-24", "SQS-F-26"},
			Note: "Within the lease; after it nothing is sent, for somebody else may hold the message. A nack isn't sent again at all.",
		},
		boundary.SettleStale: {
			Declared: boundary.Refused, Sources: []string{"SQS-F-21", "SQS-F-23"},
			Note: "Refused here, by the clock of this process; the queue would say 200.",
		},
		boundary.VendorSettleStale: {
			Declared: boundary.TakesEffect, Sources: []string{"SQS-F-21", "SQS-F-23", "SQS-F-24"},
			Note: "The answer is 200 in any case; after another receive the vendor promises neither that the message is deleted nor that it stays. Clients that don't go through this toolkit are not fenced.",
		},
		boundary.SettleFinal: {
			Declared: boundary.Final, Sources: []string{"SQS-F-25"},
			Note: "The vendor warns that a copy on a replica that missed the delete may be delivered once more, which can't be forced and is rare: effects need a dedup store.",
		},
	} {
		b.Entries[claim] = e
	}
	maps.Copy(b.Entries, leases(false))
	settleEntries(b.Entries)
	standardSettleEntries(b.Entries)
	standardDelivery(b.Entries)
	return b
}

// shared is what holds for both kinds of queue.
func shared() map[boundary.Claim]boundary.Entry {
	e := map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SQS-F-14", "SQS-F-17"},
			Note: "The service answers when the message is stored in several places. It is kept for the queue's retention, four days by default.",
		},
		boundary.PublishBatchPartial: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"SQS-F-14"},
			Note: "Each entry of a batch has its own answer. A publish of more than ten is several requests, each of which can fail alone.",
		},
		boundary.PublishDedupLostRequest: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-01", "SQS-F-02"},
			Note: "What wasn't accepted isn't remembered.",
		},
		boundary.PublishDedupOtherTopic: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"SQS-F-01", "SQS-F-05"},
			Note: "No queue knows what another has seen: a retry must go to the queue of the first attempt.",
		},
		boundary.PublishDedupLookalikeHeader: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SQS-F-01", "SQS-F-61"},
			Note: "MessageDeduplicationId is a parameter of the send; an attribute of that name is no ID. What ten attributes can't hold travels in onceline-headers.",
		},
		boundary.DeliverRedeliverExpiry: {
			Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"SQS-F-18"},
			Note: "Leases count in whole seconds, and a delivery's all together to twelve hours.",
		},
		boundary.DeliverRedeliverCrash: {
			Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"SQS-F-18", "SQS-F-41"},
			Note: "The service knows no consumers, so it doesn't notice that one is gone. Keep leases short and extend them.",
		},
		boundary.DeliverRedeliverNackDelay: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"SQS-F-40"},
			Note: "In whole seconds, rounded up.",
		},
		boundary.DeliverAttempt: {
			Declared: boundary.Approximate, Documented: boundary.Approximate, Sources: []string{"SQS-F-33"},
			Note: "It counts receives, so also one that was given back unseen because its Receive had been cancelled.",
		},
		boundary.DeliverCancel: {
			Declared: boundary.GivenBack, Sources: []string{"SQS-F-27", "SQS-F-40", "SQS-F-42"},
			Note: "By the adapter, which awaits the answer of a poll that nobody waits for. It costs the message an attempt. A client that hangs up on a long poll strands what was handed out meanwhile.",
		},
		boundary.DeliverDeadLetter: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"SQS-F-34", "SQS-F-35"},
			Note: "The nack of the last delivery is moved by the adapter, with a reason. A message whose last lease ended is moved by the service as somebody receives from the queue, without one.",
		},
		boundary.PublishHalfOpen: {Declared: boundary.SaysUnknown, Sources: []string{"SQS-F-220"}, Note: "Try again with the same ID."},
		boundary.DeliverHalfOpen: {Declared: boundary.Recovers, Sources: []string{"SQS-F-220"}},
		boundary.SettleHalfOpen:  {Declared: boundary.SaysUnknown, Sources: []string{"SQS-F-220"}, Note: "The same settle once more asks."},
		boundary.DeliverSlow:     {Declared: boundary.Once, Sources: []string{"SQS-F-221"}},
		boundary.SettleAnswer: {
			Declared: boundary.Confirmed, Documented: boundary.Confirmed, Sources: []string{"SQS-F-24"},
		},
		boundary.EffectCrashAfterEffect: {
			Declared: boundary.Twice, Sources: []string{"SQS-F-18", "SQS-F-39"},
			Note: "What the vendor calls exactly-once processing ends before the effect: use a dedup store.",
		},
		boundary.EffectZombie: {
			Declared: boundary.Twice, Sources: []string{"SQS-F-18", "SQS-F-22"},
			Note: "Use a store that compares IDs in the transaction of the effect.",
		},
	}
	maps.Copy(e, refusals())
	maps.Copy(e, delivery())
	return e
}
