package servicebus

import "github.com/onceline/onceline/broker/boundary"

// leases is what is declared of leases and of what comes again.
func leases(sessions bool) map[boundary.Claim]boundary.Entry {
	e := map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.OneMinute, Documented: boundary.OneMinute, Sources: []string{"SB-F-13"},
			Note: "Ask for another one by Entity.Lease, of 5 s to 5 minutes, or extend.",
		},
		boundary.DeliverLeaseAccuracy: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"SB-F-13", "SB-F-43"},
			Note: "By the service's clock, or from before the message was asked for where the clocks differ. The service takes locks back earlier when it is updated or the entity is changed, and says so only at the next settle.",
		},
		boundary.DeliverLeaseExtend: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"SB-F-13"},
			Note: "By a full lock duration from now, whatever delay is asked for; Outcome.Lease is what the service answered.",
		},
		boundary.DeliverLeaseMax: {
			Declared: boundary.NoLimit, Sources: []string{"SB-F-13", "SB-F-43"},
			Note: "The vendor names no bound for the number of renewals, and doesn't promise that a lock lives so long either: expect to lose it.",
		},
		boundary.DeliverLeaseClock: {
			Declared: boundary.FromArrival, Documented: boundary.FromHandOver, Sources: []string{"SB-F-53", "SB-F-143"},
			Note: "Nothing is fetched ahead here: what comes for credit that was left over is released. In a client's prefetch buffer the lock runs.",
		},
		boundary.DeliverRedeliverNack: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"SB-F-21"},
			Note: "Its place among other messages isn't promised.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"SB-F-14"},
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"SB-F-18", "SB-F-53"},
			Note: "By the delivery count. What a receiver got and let go unseen isn't counted, and wasn't seen by anybody.",
		},
		boundary.DeliverPush: {
			Declared: boundary.OverConnection, Documented: boundary.OverConnection, Sources: []string{"SB-F-144"},
			Note: "Over a receiver's link, as far as it gave credit. To call an endpoint needs another service.",
		},
	}
	if !sessions {
		return e
	}
	e[boundary.DeliverLeaseExtend] = boundary.Entry{
		Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"SB-F-13", "SB-F-23"},
		Note: "The lock is the session's: one Extend is for all deliveries of the key that are in hand.",
	}
	e[boundary.DeliverLeaseClock] = boundary.Entry{
		Declared: boundary.FromArrival, Documented: boundary.FromHandOver, Sources: []string{"SB-F-23", "SB-F-24"},
		Note: "The lock is the session's and runs from when it was accepted; the adapter renews it as it takes messages, so that each has a whole lease.",
	}
	e[boundary.DeliverRedeliverNack] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"SB-F-21", "SB-F-23"},
		Note: "It keeps its place in the session. Another receiver gets it when the one that holds the session lets it go: half a second after its last call, by default.",
	}
	e[boundary.DeliverRedeliveredFlag] = boundary.Entry{
		Declared: boundary.FalseFirst, Documented: boundary.FalseFirst, Sources: []string{"SB-F-18", "SB-F-24"},
		Note: "What a consumer held whose connection ended comes again uncounted, as a first delivery: the session is freed, which costs no attempt. Look every message up in the dedup store.",
	}
	return e
}
