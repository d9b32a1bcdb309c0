package servicebus

import "github.com/onceline/onceline/broker/boundary"

// delivery is what is declared of order, dead letters, what a receiver holds and what
// comes out, without sessions.
func delivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverOrderRedelivery: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"SB-F-23"},
			Note: "With Entity.Ordered, which makes a queue with sessions. Without it none.",
		},
		boundary.DeliverOrderHeadOfLine: {
			Declared: boundary.SameReceiver, Documented: boundary.SameReceiver, Sources: []string{"SB-F-23"},
			Note: "With Entity.Ordered the key is a session, which one receiver holds. It is handed the next message of the key while the first is open: work through them one by one, as broker.Consume does. Other keys go to other receivers.",
		},
		boundary.DeliverDeadLetterAfterMax: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"SB-F-18", "SB-F-57"},
			Note: "By the service, for each lock that ends counts. The reason is the service's own.",
		},
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SB-F-19"},
			Note: "In the service's own property DeadLetterReason, and in the header onceline-dead-letter-reason here.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"SB-F-160"},
			Note: "The message itself is moved, with all that it has. The number of deliveries is there where the action DeadLetter moved it; what the service moved has it in the property DeliveryCount alone.",
		},
		boundary.DeliverClose: {
			Declared: boundary.AtOnce, Sources: []string{"SB-F-21"},
			Note: "The adapter abandons what is in hand, which costs an attempt each. A connection that just ends leaves it to the lock.",
		},
		boundary.DeliverPrefetch: {
			Declared: boundary.Exact, Sources: []string{"SB-F-53"},
			Note: "Credit is given for what is asked for. With a prefetch in the client locks run while messages wait there.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Sources: []string{"SB-F-161"},
			Note: "What application properties can't hold travels in properties of this toolkit; other clients see that form.",
		},
		boundary.DeliverRedeliverReconnect: {
			Declared: boundary.AfterLease, Sources: []string{"SB-F-15", "SB-F-57"},
			Note: "A lock is held by its token. The handles from before the cut are refused here, so the first consumer can't ack late.",
		},
		boundary.DeliverExactlyOnce: {
			Declared: boundary.Once, Sources: []string{"SB-F-01", "SB-F-33"},
			Note: "With duplicate detection, as long as retries come within its window. An ack whose answer is lost stays Unknown, though it counts; where the request itself was lost the message comes again.",
		},
	}
}

// sessionDelivery is where entities with sessions differ.
func sessionDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverDeadLetterAfterMax] = boundary.Entry{
		Declared: boundary.KeepsComing, Sources: []string{"SB-F-24"},
		Note: "A session whose receiver's connection ends isn't counted, so a message that kills its consumer comes for ever. Count in the session's state or in a store, before the work.",
	}
	e[boundary.DeliverClose] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"SB-F-24"},
		Note: "The session is closed, and goes to the next receiver.",
	}
	e[boundary.DeliverPrefetch] = boundary.Entry{
		Declared: boundary.Exact, Sources: []string{"SB-F-23", "SB-F-53"},
		Note: "But for the session: its later messages wait for the receiver that holds it.",
	}
	e[boundary.DeliverRedeliverReconnect] = boundary.Entry{
		Declared: boundary.AtOnce, Sources: []string{"SB-F-24"},
		Note: "The session is freed with the link. The first receiver takes it back only if nobody else has it by then.",
	}
}
