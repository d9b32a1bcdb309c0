package nats

import "github.com/onceline/onceline/broker/boundary"

// leases is what is declared of leases and of what comes again.
func leases() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.HalfMinute, Documented: boundary.HalfMinute, Sources: []string{"NATS-F-21"},
			Note: "AckWait. Ask for another one by Entity.Lease, or extend.",
		},
		boundary.DeliverLeaseAccuracy: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"NATS-F-21", "NATS-F-27"},
			Note: "Counted from before the message was asked for, with the server's own AckWait, so by the time of a round trip too little and never too much. A BackOff list that others configured replaces AckWait by its own entries.",
		},
		boundary.DeliverLeaseExtend: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"NATS-F-14", "NATS-F-19", "NATS-F-140"},
			Note: "By a full AckWait from now, whatever delay is asked for; Outcome.Lease says so. A superseded consumer that isn't fenced can hold up the redelivery by it.",
		},
		boundary.DeliverLeaseMax: {
			Declared: boundary.NoLimit, Sources: []string{"NATS-F-140"},
			Note: "The server neither counts nor sums up signs of progress: a handler that hangs beside its heartbeat holds a message for ever. Bound the work yourself.",
		},
		boundary.DeliverLeaseClock: {
			Declared: boundary.FromArrival, Sources: []string{"NATS-F-28"},
			Note: "Receive asks for no more than its caller wants. The SDK's own Consume and Messages fetch ahead, and the lease runs in their buffer.",
		},
		boundary.DeliverRedeliverNack: {
			Declared: boundary.AtOnce, Sources: []string{"NATS-F-14", "NATS-F-30", "NATS-F-141"},
			Note: "Before all that wasn't delivered yet, and behind what others hold already.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"NATS-F-15", "NATS-F-17", "NATS-F-41"},
			Note: "Over a clean restart. A confirmed ack is not yet on disk: a SIGKILL of a one-replica server right after it can bring the message back.",
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"NATS-F-25", "NATS-F-41"},
			Note: "Except that a one-replica server which is killed can forget a delivery: then the next one is said to be the first. Don't skip the look into the dedup store.",
		},
		boundary.DeliverPush: {
			Declared: boundary.OverConnection, Documented: boundary.OverConnection, Sources: []string{"NATS-F-142"},
			Note: "Push consumers, which this adapter doesn't use: their leases begin to run in the client's buffer.",
		},
	}
}
