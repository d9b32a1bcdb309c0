package nats

import "github.com/onceline/onceline/broker/boundary"

// delivery is what is declared of order, dead letters, what a receiver holds, and what
// comes out.
func delivery() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverOrderRedelivery: {
			Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"NATS-F-30"},
			Note: "With Entity.Ordered. Without it what is given back, or expires, comes after some of those behind it.",
		},
		boundary.DeliverOrderHeadOfLine: {
			Declared: boundary.AllWait, Documented: boundary.AllWait, Sources: []string{"NATS-F-30"},
			Note: "With Entity.Ordered, which admits one unsettled delivery for the whole subscription: a slow message stops all keys. Split keys over subscriptions with a filter where that is too slow.",
		},
		boundary.DeliverDeadLetterAfterMax: {
			Declared: boundary.Moved, Sources: []string{"NATS-F-23", "NATS-F-24"},
			Note: "Moved by the adapter, as somebody receives: without a consumer that runs it stays where it is. The server itself only stops to deliver it.",
		},
		boundary.DeliverDeadLetterReason: {
			Declared: boundary.Kept, Sources: []string{"NATS-F-24"},
			Note: "The adapter's copy carries it in a header. The server has no dead letters; a reason given to a plain +TERM is seen in an advisory alone.",
		},
		boundary.DeliverDeadLetterAttempts: {
			Declared: boundary.Kept, Sources: []string{"NATS-F-25"},
			Note: "The copy has the headers of the message and the server's count of deliveries, which counts also those that no application saw. Resubmit it with a Copy, for its ID is known.",
		},
		boundary.DeliverClose: {
			Declared: boundary.AtOnce, Sources: []string{"NATS-F-14"},
			Note: "The adapter naks what is in hand, which costs an attempt each. A client that only closes its connection leaves it to the lease.",
		},
		boundary.DeliverPrefetch: {
			Declared: boundary.Exact, Sources: []string{"NATS-F-28"},
			Note: "A pull asks for what the caller wants. Clients that fetch ahead, as the vendor's do by default, hold more.",
		},
		boundary.DeliverBody: {
			Declared: boundary.Exact, Sources: []string{"NATS-F-160"},
			Note: "What a header line can't hold travels in headers of this toolkit; other clients see that form. The key travels with or without Entity.Ordered.",
		},
		boundary.DeliverRedeliverReconnect: {
			Declared: boundary.AfterLease, Sources: []string{"NATS-F-27"},
			Note: "The server doesn't tie deliveries to connections. The handles from before the cut are refused here, so the first consumer can't ack late.",
		},
		boundary.DeliverExactlyOnce: {
			Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"NATS-F-05", "NATS-F-17", "NATS-F-39"},
			Note: "By dedup of IDs and by acks that can be asked for again, as long as retries come within the window and the lease. It ends where a process dies: use a dedup store.",
		},
	}
}
