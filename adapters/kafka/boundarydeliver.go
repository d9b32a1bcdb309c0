package kafka

import "github.com/onceline/onceline/broker/boundary"

// delivery is what is declared of dead letters and of what comes out, however it is received.
func delivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Sources: []string{"KAF-F-36", "KAF-F-53"},
			Note: "In a header of the adapter's copy. The dead letters of a share group that the broker itself writes, from 4.4 on, are another thing.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"KAF-F-36", "KAF-F-49"},
			Note: "The copy has key, body and headers of the record; its offset is another. The count is as good as deliver.attempt says.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"KAF-F-160"},
			Note: "Records hold any bytes, and headers repeat. Without a key a message has none, and with one it goes to the key's partition.",
		},
		boundary.DeliverExactlyOnce: {
			Declared: boundary.Once, Sources: []string{"KAF-F-03", "KAF-F-38"},
			Note: "As long as the same producer retries and the consumer lives. It is the producer's session that dedups: a restarted producer makes a second record, and a rebalance has messages come again. Kafka's transactions cover Kafka alone.",
		},
	}
}

// groupDelivery adds what a consumer group is declared to do.
func groupDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverOrderRedelivery] = boundary.Entry{
		Declared: boundary.OverNack, Sources: []string{"KAF-F-36"},
		Note: "With Entity.Ordered the receiver holds the key back. A failed message holds up the commit of all behind it, so these come again, in order, when the partition changes hands.",
	}
	e[boundary.DeliverOrderHeadOfLine] = boundary.Entry{
		Declared: boundary.KeyWaits, Sources: []string{"KAF-F-30", "KAF-F-36"},
		Note: "With Entity.Ordered the receiver hands out one message of a key at a time; the others go on and their acks are Pending. A plain consumer that works through a partition in order stops all keys in it.",
	}
	e[boundary.DeliverDeadLetterAfterMax] = boundary.Entry{
		Declared: boundary.KeepsComing, Sources: []string{"KAF-F-36"},
		Note: "Each consumer that dies takes the count with it, so a message that kills its consumer comes for ever. Count in a store, before the work.",
	}
	e[boundary.DeliverClose] = boundary.Entry{
		Declared: boundary.AtOnce, Sources: []string{"KAF-F-34"},
		Note: "Close commits and leaves the group, so the next rebalance hands the partition on. A static member doesn't leave: its messages wait for the session.",
	}
	e[boundary.DeliverPrefetch] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"KAF-F-30", "KAF-F-34"},
		Note: "A partition belongs to one member as long as that lives, whatever it asks for; what was fetched ahead has no lease that runs.",
	}
	e[boundary.DeliverRedeliverReconnect] = boundary.Entry{
		Declared: boundary.NoLease, Sources: []string{"KAF-F-34"},
		Note: "A member outlives its connection: it reconnects within the session, has its partitions still, and its acks count.",
	}
}

// shareDelivery adds what a share group is declared to do.
func shareDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverOrderRedelivery] = boundary.Entry{
		Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-51"},
		Note: "Use a consumer group where order matters.",
	}
	e[boundary.DeliverOrderHeadOfLine] = boundary.Entry{
		Declared: boundary.NoneWaits, Documented: boundary.NoneWaits, Sources: []string{"KAF-F-51"},
		Note: "Entity.Ordered is refused; nothing waits for anything.",
	}
	e[boundary.DeliverDeadLetterAfterMax] = boundary.Entry{
		Declared: boundary.Moved, Documented: boundary.Dropped, Sources: []string{"KAF-F-42", "KAF-F-50"},
		Note: "By the adapter, when a consumer that lives gets it once more. The broker drops it at its own limit, five by default: leave room between the two.",
	}
	e[boundary.DeliverClose] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"KAF-F-45", "KAF-F-50"},
		Note: "Released, which costs an attempt.",
	}
	e[boundary.DeliverPrefetch] = boundary.Entry{
		Declared: boundary.Exact, Sources: []string{"KAF-F-161"},
		Note: "The adapter asks for records one by one and no more than wanted. A client that takes whole batches, as the broker hands them out by default, holds the rest of the batch under its lock.",
	}
	e[boundary.DeliverRedeliverReconnect] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"KAF-F-50"},
		Note: "The share session ends with its connection. The first consumer may be at work still: its ack is refused.",
	}
}
