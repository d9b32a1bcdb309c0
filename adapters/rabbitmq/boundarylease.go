package rabbitmq

import "github.com/onceline/onceline/broker/boundary"

// leases is what is declared of both kinds of queue, of leases and of what comes
// again. timed says that deliveries have the consumer timeout.
func leases(timed bool) map[boundary.Claim]boundary.Entry {
	none := boundary.Entry{Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-13"},
		Note: "From 4.3 on deliveries of classic queues have no lease: bound the work of a message yourself."}
	e := map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.NoLease, Documented: boundary.NoLease, Sources: []string{"RMQ-F-13"},
			Note: "A consumer that hangs holds its messages until its connection ends.",
		},
		boundary.DeliverLeaseAccuracy: none,
		boundary.DeliverLeaseExtend:   none,
		boundary.DeliverLeaseMax:      none,
		boundary.DeliverLeaseClock:    none,
		boundary.DeliverRedeliverNack: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMQ-F-19"},
			Note: "At its old place, or near it; what others have prefetched comes before. A nack has no answer, so others may overtake it on its way.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-09", "RMQ-F-41"},
			Note: "No ack is confirmed. On quorum queues acks written just before a channel closes may not arrive: Close of a receiver asks the queue first.",
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"RMQ-F-02", "RMQ-F-03", "RMQ-F-12", "RMQ-F-16"},
			Note: "An attempt over 1 means redelivered, though a classic queue doesn't count. After a crash of its node all that it finds is marked, delivered before or not. A second copy by a retried publish is not marked.",
		},
		boundary.DeliverPush: {
			Declared: boundary.OverConnection, Documented: boundary.OverConnection, Sources: []string{"RMQ-F-140"},
			Note: "Up to the prefetch of a consumer. The adapter asks for what its caller wants, unless Window says otherwise.",
		},
	}
	if !timed {
		return e
	}
	for claim, timed := range timeouts() {
		e[claim] = timed
	}
	return e
}

// timeouts is what holds where the consumer timeout is the lease.
func timeouts() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.HalfHour, Documented: boundary.HalfHour, Sources: []string{"RMQ-F-13"},
			Note: "The node's consumer timeout, which the adapter can't read: it counts with 30 minutes unless ConsumerTimeout says otherwise. Wish for a lease instead.",
		},
		boundary.DeliverLeaseAccuracy: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"RMQ-F-13"},
			Note: "With a lease from Ensure. With ConsumerTimeout it is as true as what the adapter was told: a node that was given less takes the message back before.",
		},
		boundary.DeliverLeaseExtend: {
			Declared: boundary.Unsupported, Documented: boundary.Unsupported, Sources: []string{"RMQ-F-13"},
			Note: "The protocol has no verb for it. Wish for a lease that covers the longest work.",
		},
		boundary.DeliverLeaseMax: {
			Declared: boundary.FirstLease, Documented: boundary.FirstLease, Sources: []string{"RMQ-F-13"},
			Note: "Longer work than the lease has to be acked first and recorded elsewhere.",
		},
		boundary.DeliverLeaseClock: {
			Declared: boundary.FromArrival, Sources: []string{"RMQ-F-13"},
			Note: "Receive asks for what its caller wants. With a standing Window, and with other clients, what is prefetched has its timeout running.",
		},
	}
}

// quorumLeases is what is otherwise of quorum queues.
func quorumLeases() map[boundary.Claim]boundary.Entry {
	e := leases(true)
	e[boundary.DeliverRedeliverNack] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMQ-F-19", "RMQ-F-40"},
		Note: "Before what waits, for from 4.0 on a queue has a delivery limit; one that was declared without puts it behind all others. A nack has no answer, so others may overtake it on its way.",
	}
	e[boundary.DeliverRedeliveredFlag] = boundary.Entry{
		Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"RMQ-F-02", "RMQ-F-12", "RMQ-F-15", "RMQ-F-16"},
		Note: "Each hand-over counts, by x-acquired-count from 4.3 on. A second copy by a retried publish is not marked.",
	}
	return e
}

// streamLeases is what is declared of a stream.
func streamLeases() map[boundary.Claim]boundary.Entry {
	none := boundary.Entry{Declared: boundary.NotApplicable, Sources: []string{"RMS-F-10"},
		Note: "A stream has no leases: it is the receiver's turn as long as its connection lives."}
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.NoLease, Documented: boundary.NoLease, Sources: []string{"RMS-F-10", "RMS-F-16"},
			Note: "A wish for a lease is ErrUnsupported.",
		},
		boundary.DeliverLeaseAccuracy: none,
		boundary.DeliverLeaseExtend:   none,
		boundary.DeliverLeaseMax:      none,
		boundary.DeliverLeaseClock:    none,
		boundary.DeliverRedeliverNack: {
			Declared: boundary.SameReceiver, Documented: boundary.Unsupported, Sources: []string{"RMS-F-10"},
			Note: "The receiver delivers it again by itself, before what follows, and stores no offset beyond. Nobody else can have it while the receiver has its turn.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"RMS-F-05", "RMS-F-10"},
			Note: "Confirmed is final, Pending is not. The stored offset is lost when the stream's retention passes it, and with it no message that is still there.",
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.FalseFirst, Documented: boundary.None, Sources: []string{"RMS-F-10"},
			Note: "What another receiver held comes as attempt 1, as a first delivery does. Look every message up in the dedup store, or compare its offset with a stored position.",
		},
		boundary.DeliverPush: {
			Declared: boundary.OverConnection, Documented: boundary.OverConnection, Sources: []string{"RMS-F-140"},
			Note: "As far as the subscription gave credit. What has arrived and was not handed out costs memory alone.",
		},
	}
}
