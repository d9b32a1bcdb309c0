package sqs

import "github.com/onceline/onceline/broker/boundary"

// leases is what is declared of leases and of what comes again.
func leases(fifo bool) map[boundary.Claim]boundary.Entry {
	e := map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.HalfMinute, Documented: boundary.HalfMinute, Sources: []string{"SQS-F-18"},
			Note: "The queue's visibility timeout. Ask for another one by Entity.Lease, or extend.",
		},
		boundary.DeliverLeaseAccuracy: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"SQS-F-18"},
			Note: "Counted from before the receive, by this process's clock: a long poll that waits makes it shorter by up to a quarter, never longer.",
		},
		boundary.DeliverLeaseExtend: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"SQS-F-18", "SQS-F-40"},
			Note: "In whole seconds, from now.",
		},
		boundary.DeliverLeaseMax: {
			Declared: boundary.HalfDay, Documented: boundary.HalfDay, Sources: []string{"SQS-F-18"},
			Note: "Counted from the receive. The service refuses what goes beyond; the adapter asks for what is left, as Outcome.Lease says. Longer work has to be acked first and recorded elsewhere.",
		},
		boundary.DeliverLeaseClock: {
			Declared: boundary.FromArrival, Sources: []string{"SQS-F-18"},
			Note: "Receive asks for no more than its caller wants. With clients that fetch ahead the timeout runs in their buffer.",
		},
		boundary.DeliverRedeliverNack: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"SQS-F-38", "SQS-F-40"},
			Note: "By a change of visibility to zero. A standard queue promises no place.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.Final, Sources: []string{"SQS-F-25"},
			Note: "The vendor warns that a copy on a replica that missed the delete may be delivered once more, which can't be forced and is rare: effects need a dedup store.",
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.Exact, Sources: []string{"SQS-F-33"},
			Note: "The service calls its count of receives approximate, so that it may be wrong on occasion: don't skip the look into the dedup store.",
		},
		boundary.DeliverPush: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"SQS-F-140"},
			Note: "What calls a function for each message polls the queue itself, and holds the messages by the same leases.",
		},
	}
	if !fifo {
		return e
	}
	e[boundary.DeliverRedeliverNack] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"SQS-F-28", "SQS-F-40", "SQS-F-50"},
		Note: "It keeps its place: what follows it in its group waits for it.",
	}
	e[boundary.DeliverRedeliverAfterAck] = boundary.Entry{
		Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"SQS-F-24", "SQS-F-39"},
	}
	return e
}
