package rabbitmq

import "github.com/onceline/onceline/broker/boundary"

// delivery is what is declared of order, dead letters, what a receiver holds and what
// comes out, of both kinds of queue.
func delivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverOrderRedelivery: {
			Declared: boundary.OverNack, Sources: []string{"RMQ-F-12", "RMQ-F-19", "RMQ-F-21", "RMQ-F-40"},
			Note: "With Entity.Ordered. Without it others that were handed out already are done first.",
		},
		boundary.DeliverOrderHeadOfLine: {
			Declared: boundary.AllWait, Sources: []string{"RMQ-F-21"},
			Note: "With Entity.Ordered, a single active consumer that holds one message: a slow one stops all keys. Use a queue for each shard of keys where that is too slow.",
		},
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Sources: []string{"RMQ-F-17", "RMQ-F-18"},
			Note: "In a header of the adapter's copy. A message that the queue itself dead-letters has the queue's own reason in x-death, which is read where there is no other.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"RMQ-F-16", "RMQ-F-18"},
			Note: "Counted by the queue on quorum queues; on classic ones by the receiver, from the flag redelivered: after more than one return the number is too low.",
		},
		boundary.DeliverClose: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMQ-F-12"},
			Note: "What is unsettled when the channel ends goes back at once; on quorum queues it counts as an attempt.",
		},
		boundary.DeliverPrefetch: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"RMQ-F-160"},
			Note: "The adapter's consumer has a prefetch of what is asked for. With the protocol's default, no limit, one consumer gets the whole queue.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Sources: []string{"RMQ-F-161"},
			Note: "What a table of the protocol can't hold travels in headers of this toolkit; other clients see that form.",
		},
		boundary.DeliverRedeliverReconnect: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMQ-F-12"},
			Note: "As soon as the node notices that the connection is gone. The handles from before are refused, so the first consumer can't ack late.",
		},
		boundary.DeliverExactlyOnce: {
			Declared: boundary.Duplicates, Documented: boundary.Duplicates, Sources: []string{"RMQ-F-01", "RMQ-F-02"},
			Note: "Each publish that is retried after a lost confirm is stored again, without a mark. Dedup by ID when consuming.",
		},
	}
}

// quorumDelivery and classicDelivery are where the two kinds of queue differ.
func quorumDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverDeadLetterAfterMax] = boundary.Entry{
		Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"RMQ-F-14", "RMQ-F-15", "RMQ-F-17"},
		Note: "By the queue itself, with its own reason, to the dead-letter exchange that Ensure has set, at least once. From 4.3 on a consumer timeout doesn't count.",
	}
}

func classicDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverDeadLetterAfterMax] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-16"},
		Note: "The queue counts no deliveries, so Entity.MaxDeliveries is refused: a message that kills its consumer comes for ever. Use a quorum queue, or count in a store.",
	}
}

// streamDelivery is the same for streams.
func streamDelivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverOrderRedelivery: {
			Declared: boundary.OverNack, Sources: []string{"RMS-F-10"},
			Note: "With Entity.Ordered the receiver holds the key back. After a change of receivers all behind the stored offset comes again, in order.",
		},
		boundary.DeliverOrderHeadOfLine: {
			Declared: boundary.KeyWaits, Sources: []string{"RMS-F-10", "RMS-F-16"},
			Note: "With Entity.Ordered the receiver hands out one message of a key at a time; acks of the others are Pending, and come again if it dies.",
		},
		boundary.DeliverDeadLetterAfterMax: {
			Declared: boundary.KeepsComing, Sources: []string{"RMS-F-10"},
			Note: "Each consumer that dies takes the count with it, so a message that kills its consumer comes for ever. Count in a store, before the work.",
		},
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Sources: []string{"RMS-F-10"},
			Note: "In a header of the adapter's copy.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"RMS-F-10"},
			Note: "The copy has key, body and headers, and the receiver's own count.",
		},
		boundary.DeliverClose: {
			Declared: boundary.AtOnce, Sources: []string{"RMS-F-10", "RMS-F-16"},
			Note: "The next receiver begins behind the stored offset: it gets also what was acked ahead of an open message.",
		},
		boundary.DeliverPrefetch: {
			Declared: boundary.NotApplicable, Sources: []string{"RMS-F-15", "RMS-F-16"},
			Note: "It is one receiver's turn as long as that lives, whatever it asks for; chunks come whole, and no lease runs.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Sources: []string{"RMQ-F-161"},
			Note: "What the message's own properties can't hold travels in this toolkit's; other clients see that form.",
		},
		boundary.DeliverRedeliverReconnect: {
			Declared: boundary.AtOnce, Sources: []string{"RMS-F-10", "RMS-F-16"},
			Note: "From behind the stored offset, to the same receiver on its next connection, or to another one whose turn it is then.",
		},
		boundary.DeliverExactlyOnce: {
			Declared: boundary.Once, Sources: []string{"RMS-F-01", "RMS-F-02", "RMS-F-17"},
			Note: "As long as the same publisher retries and the consumer lives. Across a restart of the producer nothing is deduped.",
		},
	}
}
