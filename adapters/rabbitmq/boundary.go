package rabbitmq

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// What is declared of 4.x is from its source and documentation; of 3.x, what the
// suite measured on 3.10.8.

// BoundaryQuorum is where the guarantees of quorum queues end, behind this
// adapter.
func BoundaryQuorum() boundary.Boundary {
	entries := effects(shared())
	maps.Copy(entries, map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMQ-F-03", "RMQ-F-42"},
			Note: "A confirm means that a majority of the queue's nodes has written the message, for every queue that the exchange routed it to. 3.10 loses what a queue confirmed that was declared a moment before all of its nodes were killed; of 4.x that wasn't measured.",
		},
		boundary.DeliverRedeliverExpiry: {
			Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"RMQ-F-13"},
			Note: "From 4.3 on, by the queue itself, with the lease that Ensure gave it or the node's 30 minutes; up to 4.2 the node looks once a minute and closes the whole channel for one late message. A lease can't be extended.",
		},
		boundary.DeliverRedeliverNackDelay: {
			Declared: boundary.Honoured, Sources: []string{"RMQ-F-28", "RMQ-F-20"},
			Note: "By a confirmed copy in a queue whose messages expire, up to a quarter later than asked for. A consumer that dies between the copy's confirm and the ack leaves both: dedup by ID. The copy comes behind what is in the queue by then.",
		},
		boundary.DeliverAttempt: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"RMQ-F-15", "RMQ-F-16"},
			Note: "The adapter rejects instead of nacking, for from 4.3 on a nack isn't counted.",
		},
		boundary.DeliverOrderKey: {
			Declared: boundary.OverNack, Documented: boundary.UntilNack, Sources: []string{"RMQ-F-19", "RMQ-F-21", "RMQ-F-40"},
			Note: "With Entity.Ordered, by a single active consumer that holds one message at a time: all keys share one line. It isn't a fence: the next consumer may begin while the last one still works on a message. Without Ordered, what is given back comes behind all else.",
		},
		boundary.DeliverDeadLetter: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"RMQ-F-14", "RMQ-F-17", "RMQ-F-18"},
			Note: "A nack of the last delivery and the DeadLetter action publish a confirmed copy with the reason and then ack; consumers that die are counted by the queue, which moves the message by itself, at least once, with its own reason. Without Ensure on the connection the action is refused. A queue that others declared without a limit drops a message after twenty returns.",
		},
	})
	maps.Copy(entries, quorumLeases())
	settleEntries(entries)
	maps.Copy(entries, delivery())
	quorumDelivery(entries)
	return boundary.Boundary{Broker: "rabbitmq", Of: "RabbitMQ 4.3 by its source and documentation, " + quorumOf, Entries: entries, Limits: limitsQuorum(),
		Earlier: []boundary.Earlier{quorum3()}}
}

// BoundaryClassic is where the guarantees of classic queues end, behind this
// adapter.
func BoundaryClassic() boundary.Boundary {
	entries := effects(shared())
	maps.Copy(entries, map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.OneNode, Documented: boundary.OneNode, Sources: []string{"RMQ-F-03"},
			Note: "A classic queue lives on one node: it is gone as long as that is. Use a quorum queue.",
		},
		boundary.PublishAckDurable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMQ-F-03"},
			Note: "A confirm means that the queue's one node has written the message, which the adapter always sends as persistent. It is gone if the node's disk is.",
		},
		boundary.DeliverRedeliverExpiry: {
			Declared: boundary.NoLease, Documented: boundary.NoLease, Sources: []string{"RMQ-F-13"},
			Note: "A consumer that hangs holds its messages until its connection ends.",
		},
		boundary.DeliverRedeliverNackDelay: {
			Declared: boundary.Honoured, Sources: []string{"RMQ-F-28"},
			Note: "By a confirmed copy in a queue whose messages expire, up to a quarter later than asked for. The way back from there is not confirmed (RMQ-F-17): a crash of the node at that moment can lose the message. A consumer that dies between the copy's confirm and the ack leaves both.",
		},
		boundary.DeliverAttempt: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMQ-F-16"},
			Note: "Only that a delivery isn't the first, and the copies made for delayed nacks, are known. Entity.MaxDeliveries is refused.",
		},
		boundary.DeliverOrderKey: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"RMQ-F-19", "RMQ-F-21"},
			Note: "With Entity.Ordered, by a single active consumer that holds one message at a time: all keys share one line. It isn't a fence: the next consumer may begin while the last one still works on a message.",
		},
		boundary.DeliverDeadLetter: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-17"},
			Note: "The queue counts no deliveries, so Entity.MaxDeliveries is refused. The DeadLetter action moves the message, as a confirmed copy with the reason.",
		},
	})
	maps.Copy(entries, leases(false))
	settleEntries(entries)
	maps.Copy(entries, delivery())
	classicDelivery(entries)
	classicTransactions(entries)
	return boundary.Boundary{Broker: "rabbitmq", Of: "RabbitMQ 4.3 by its source and documentation, " + classicOf, Entries: entries, Limits: limits(),
		Earlier: []boundary.Earlier{classic42(), classic3()}}
}

// shared is what holds for both kinds of queue.
func shared() map[boundary.Claim]boundary.Entry {
	twice := boundary.Entry{Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"RMQ-F-01", "RMQ-F-02"}}
	noted := func(e boundary.Entry, note string) boundary.Entry {
		e.Note = note
		return e
	}
	entries := map[boundary.Claim]boundary.Entry{
		boundary.PublishBatchPartial: {
			Declared: boundary.Exact, Sources: []string{"RMQ-F-04", "RMQ-F-07", "RMQ-F-08"},
			Note: "Each message has its own confirm, and a return that no queue took it. A body over the node's limit closes the channel, so those over 1 MiB go alone. Where an exchange is deleted in the middle, the others of the batch are confirmed or Unknown, never Refused.",
		},
		boundary.PublishDedupScope:   {Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMQ-F-01"}, Note: "Consumers have to dedup by ID."},
		boundary.PublishDedupWindow:  {Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMQ-F-01"}},
		boundary.PublishDedupVerdict: {Declared: boundary.StoredAgain, Documented: boundary.StoredAgain, Sources: []string{"RMQ-F-01"}},
		boundary.PublishDedupBody:    {Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"RMQ-F-01"}},
		boundary.PublishDedupContent: {Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"RMQ-F-01"}},
		boundary.PublishDedupLostResponse: noted(twice,
			"The second copy isn't marked as redelivered either: that flag speaks of the broker's copies alone."),
		boundary.PublishDedupNewProducer:   twice,
		boundary.PublishDedupBrokerRestart: twice,
		boundary.PublishDedupAfterConsume:  twice,
		boundary.PublishHalfOpen:           {Declared: boundary.SaysUnknown, Sources: []string{"RMQ-F-220"}, Note: "Try again with the same ID."},
		boundary.DeliverHalfOpen:           {Declared: boundary.Recovers, Sources: []string{"RMQ-F-220"}},
		boundary.SettleHalfOpen:            {Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-220"}, Note: "An ack has no answer that could be missing: it is Sent."},
		boundary.DeliverSlow:               {Declared: boundary.Once, Sources: []string{"RMQ-F-221"}},
		boundary.PublishDedupConcurrent:    twice,
		boundary.PublishDedupWindowAnchor:  {Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMQ-F-01"}, Note: "No ID is remembered, so there is no window."},
		boundary.PublishDedupLostRequest: {Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"RMQ-F-01", "RMQ-F-03"},
			Note: "What never arrived is confirmed by nobody. The publisher can't tell this from a lost confirm, whose retry is stored twice."},
		boundary.PublishDedupTwoProducers: twice,
		boundary.PublishDedupAfterPurge:   twice,
		boundary.PublishDedupWithinBatch:  twice,
		boundary.PublishDedupOtherKey:     twice,
		boundary.PublishDedupOtherTopic:   twice,
		boundary.PublishDedupLookalikeHeader: {Declared: boundary.Kept, Sources: []string{"RMQ-F-01", "RMQ-F-100"},
			Note: "A header that begins with x- travels in onceline-headers, so that neither the broker nor a plugin acts on it: the dedup plugin's x-deduplication-header has to be set by other means."},
		boundary.PublishIDLength: {Declared: boundary.KeptNotDeduped, Sources: []string{"RMQ-F-01"},
			Note: "message-id holds 255 bytes. A longer ID is hashed there, and whole in onceline-id."},
		boundary.PublishIDCharset: {Declared: boundary.KeptNotDeduped, Sources: []string{"RMQ-F-01"},
			Note: "What isn't UTF-8 is hashed in message-id, and whole in onceline-id."},
		boundary.DeliverRedeliverCrash: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMQ-F-12", "RMQ-F-45"},
			Note: "As soon as the node notices: at once when the consumer's process dies, after two heartbeats when its host or the network does. Where a node of a quorum queue dies too, with messages handed out on it, 3.10.8 gave them to nobody before the queue's next election; rebalance the queue's leaders after such a death, or receive by a standing window.",
		},
		boundary.DeliverCancel: {
			Declared: boundary.GivenBack, Sources: []string{"RMQ-F-12", "RMQ-F-15"},
			Note: "On quorum queues before 4.3 it costs the message an attempt.",
		},
		boundary.SettleAnswer: {
			Declared: boundary.Sent, Documented: boundary.Sent, Sources: []string{"RMQ-F-09"},
			Note: "The protocol has no answer to an ack: it may be lost with the connection, and the message comes again.",
		},
		boundary.SettleStale: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-10", "RMQ-F-11"},
			Note: "A handle ends with its channel, so an ack never reaches a tag that was given out anew.",
		},
		boundary.VendorSettleStale: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-10", "RMQ-F-11"},
			Note: "A tag is good on its channel alone. A client that reopens the channel by itself, as the SDK's recovery does, turns an old ack into one of another message.",
		},
		boundary.SettleLostResponse: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-09"},
			Note: "There is no answer that could be lost. Sent stays Sent: a second ack would close the channel (RMQ-F-10).",
		},
		boundary.SettleFinal: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-09", "RMQ-F-41"},
			Note: "No ack is confirmed. On quorum queues acks written just before a channel closes may not arrive: Close of a receiver asks the queue first.",
		},
		boundary.EffectCrashAfterEffect: {Declared: boundary.Twice, Sources: []string{"RMQ-F-12"}, Note: "Use a dedup store."},
		boundary.EffectZombie: {Declared: boundary.Twice, Sources: []string{"RMQ-F-13", "RMQ-F-21"},
			Note: "Use a store that compares IDs in the transaction of the effect."},
	}
	maps.Copy(entries, refusals())
	return entries
}
