package sqs

import "github.com/onceline/onceline/broker/boundary"

// delivery is what is declared of dead letters, what a receiver holds and what comes
// out, of both kinds of queue.
func delivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverDeadLetterAfterMax: {
			Declared: boundary.Moved, Documented: boundary.Moved, Sources: []string{"SQS-F-33", "SQS-F-34"},
			Note: "By the service, as somebody receives from the queue after the last lease; without a reason. A message that kills its consumers is stopped.",
		},
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Sources: []string{"SQS-F-35"},
			Note: "In an attribute of the adapter's copy. What the service moves by itself has no reason.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"SQS-F-33", "SQS-F-60"},
			Note: "In an attribute of the adapter's copy, by the service's approximate count. What the service moves by itself keeps its attributes and goes on counting.",
		},
		boundary.DeliverClose: {
			Declared: boundary.AtOnce, Sources: []string{"SQS-F-40"},
			Note: "The adapter sets the visibility of what is in hand to zero, which costs an attempt each. The service itself notices no close.",
		},
		boundary.DeliverPrefetch: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"SQS-F-42", "SQS-F-160"},
			Note: "A poll asks for no more than is wanted, ten at most. On a FIFO queue it may bring several of a key, and the rest of the key waits.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Sources: []string{"SQS-F-61", "SQS-F-69"},
			Note: "The service takes neither an empty nor a binary body, nor an empty attribute. The adapter encodes those and marks it; other clients see that form.",
		},
		boundary.DeliverRedeliverReconnect: {
			Declared: boundary.AfterLease, Sources: []string{"SQS-F-18", "SQS-F-41"},
			Note: "The service knows no connections. The handle goes on: an ack after the cut counts.",
		},
	}
}

// fifoDelivery and standardDelivery are where the two kinds of queue differ.
func fifoDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverOrderRedelivery] = boundary.Entry{
		Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"SQS-F-28", "SQS-F-50"},
		Note: "Over a nack and over the end of a lease. Several of a key that came with one receive are the consumer's to keep in order.",
	}
	e[boundary.DeliverOrderHeadOfLine] = boundary.Entry{
		Declared: boundary.KeyWaits, Documented: boundary.KeyWaits, Sources: []string{"SQS-F-28", "SQS-F-32"},
		Note: "Other keys go on, as long as a long backlog of the blocked one doesn't hide them.",
	}
	e[boundary.DeliverExactlyOnce] = boundary.Entry{
		Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"SQS-F-02", "SQS-F-24", "SQS-F-39"},
		Note: "As long as retries come within five minutes and the lease. The vendor's label names both as its ends, and a consumer that dies is a third: use a dedup store.",
	}
}

func standardDelivery(e map[boundary.Claim]boundary.Entry) {
	e[boundary.DeliverOrderRedelivery] = boundary.Entry{
		Declared: boundary.None, Documented: boundary.None, Sources: []string{"SQS-F-38"},
		Note: "Use a FIFO queue where order matters.",
	}
	e[boundary.DeliverOrderHeadOfLine] = boundary.Entry{
		Declared: boundary.NoneWaits, Documented: boundary.NoneWaits, Sources: []string{"SQS-F-38"},
		Note: "Entity.Ordered is refused; nothing waits for anything.",
	}
	e[boundary.DeliverExactlyOnce] = boundary.Entry{
		Declared: boundary.Duplicates, Documented: boundary.Duplicates, Sources: []string{"SQS-F-01", "SQS-F-13", "SQS-F-25"},
		Note: "Each send that is retried after a lost answer is stored again. Use a FIFO queue, or a dedup store at the consumer.",
	}
}
