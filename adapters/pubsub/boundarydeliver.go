package pubsub

import "github.com/onceline/onceline/broker/boundary"

// delivery is what is declared of order, dead letters, what a receiver holds and what
// comes out.
func delivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverOrderRedelivery: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"PS-F-21", "PS-F-38"},
			Note: "With Entity.Ordered. All that follows the message comes again too; without exactly-once delivery also what was acked.",
		},
		boundary.DeliverOrderHeadOfLine: {
			Declared: boundary.KeyWaits, Documented: boundary.KeyWaits, Sources: []string{"PS-F-38"},
			Note: "With Entity.Ordered one batch of a key is out at a time, and other keys go on. The vendor's streaming clients may hand the key's later messages to the same client.",
		},
		boundary.DeliverDeadLetterAfterMax: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"PS-F-26", "PS-F-27"},
			Note: "By the service from 5 deliveries up, approximately; below 5 by the adapter, so by a receiver that runs.",
		},
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Sources: []string{"PS-F-37"},
			Note: "In an attribute of the adapter's copy. What the service moves by itself has no reason.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"PS-F-26", "PS-F-37"},
			Note: "In an attribute of the adapter's copy, by the service's approximate count. What the service moves has the count in an attribute of its own, which is read where there is no other.",
		},
		boundary.DeliverClose: {
			Declared: boundary.AtOnce, Sources: []string{"PS-F-28"},
			Note: "The adapter gives back what is in hand, which costs an attempt each and is delayed by a retry policy of the subscription. The service itself notices no close.",
		},
		boundary.DeliverPrefetch: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"PS-F-160"},
			Note: "A pull asks for no more than is wanted. The vendor's streaming clients hold up to 1,000 messages by default.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Sources: []string{"PS-F-35"},
			Note: "Attributes are UTF-8 and don't repeat, so what they can't hold travels in attributes of this toolkit; other clients see that form.",
		},
		boundary.DeliverRedeliverReconnect: {
			Declared: boundary.AfterLease, Sources: []string{"PS-F-09"},
			Note: "Pulled messages are tied to no connection. The handle goes on: an ack after the cut counts.",
		},
		boundary.DeliverExactlyOnce: {
			Declared: boundary.Duplicates, Documented: boundary.Duplicates, Sources: []string{"PS-F-01", "PS-F-02", "PS-F-03"},
			Note: "Each publish that is retried after a lost answer is another message: exactly-once delivery begins behind the topic. Use a dedup store at the consumer.",
		},
	}
}
