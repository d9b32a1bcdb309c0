package pubsub

import "github.com/onceline/onceline/broker/boundary"

// leases is what is declared of leases and of what comes again.
func leases(exactlyOnce bool) map[boundary.Claim]boundary.Entry {
	e := map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.TenSeconds, Documented: boundary.TenSeconds, Sources: []string{"PS-F-09", "PS-F-10"},
			Note: "The shortest default of all. The vendor's client hides it by extending by itself; this adapter doesn't. Ask for more by Entity.Lease, or extend.",
		},
		boundary.DeliverLeaseAccuracy: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"PS-F-09"},
			Note: "Counted from before the pull. The service may be late to give out again, and waits for a retry policy on top.",
		},
		boundary.DeliverLeaseExtend: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"PS-F-09", "PS-F-13"},
			Note: "In whole seconds from now, ten minutes at most; longer wishes are cut, as Outcome.Lease says. Without exactly-once delivery the service answers OK to an Extend that came too late as well (PS-F-16).",
		},
		boundary.DeliverLeaseMax: {
			Declared: boundary.NoLimit, Sources: []string{"PS-F-09", "PS-F-140"},
			Note: "Ten minutes at a time, without a bound that the vendor names. The hour after which the vendor's client lets go is the client's own (PS-F-11).",
		},
		boundary.DeliverLeaseClock: {
			Declared: boundary.FromArrival, Sources: []string{"PS-F-09", "PS-F-10"},
			Note: "One pull asks for what the caller wants. The vendor's client fetches up to a thousand messages ahead and extends their leases while they wait.",
		},
		boundary.DeliverRedeliverNack: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"PS-F-21", "PS-F-28", "PS-F-142"},
			Note: "Unless a retry policy delays it. No place is promised, except that with ordering the messages of its key that follow come again after it. The vendor's emulator doesn't keep to that unless the nack has a delay.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.NotApplicable, Sources: []string{"PS-F-16", "PS-F-29"},
			Note: "Without exactly-once delivery no ack is confirmed, so nothing is promised.",
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"PS-F-26"},
			Note: "Without a dead-letter topic the service doesn't say. With one (Entity.DeadLetter) there is a number, which the vendor calls an approximation. Look every message up in the dedup store.",
		},
		boundary.DeliverPush: {
			Declared: boundary.ToEndpoint, Documented: boundary.ToEndpoint, Sources: []string{"PS-F-07", "PS-F-141"},
			Note: "At least once: the answer to the request is the ack. This adapter pulls.",
		},
	}
	if !exactlyOnce {
		return e
	}
	e[boundary.DeliverRedeliverAfterAck] = boundary.Entry{
		Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"PS-F-08", "PS-F-29", "PS-F-32"},
		Note: "Seek brings acked messages back, and users report duplicates in the field: effects need a dedup store.",
	}
	e[boundary.DeliverPush] = boundary.Entry{
		Declared: boundary.OverConnection, Documented: boundary.OverConnection, Sources: []string{"PS-F-07"},
		Note: "By a streaming pull. Push to an endpoint has no exactly-once delivery.",
	}
	return e
}
