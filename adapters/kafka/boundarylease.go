package kafka

import "github.com/onceline/onceline/broker/boundary"

// noPush holds for both kinds of group.
var noPush = boundary.Entry{
	Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-141"},
	Note: "Consumers fetch. What calls endpoints, such as a connector, is a consumer itself.",
}

// groupLeases is what is declared of a consumer group, of leases and of what comes
// again.
func groupLeases() map[boundary.Claim]boundary.Entry {
	none := boundary.Entry{Declared: boundary.NotApplicable, Sources: []string{"KAF-F-30", "KAF-F-34"},
		Note: "A member holds partitions and no message has a lease. What a handler may take is bounded by nothing but the session's heartbeats, which the client sends by itself."}
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.NoLease, Documented: boundary.NoLease, Sources: []string{"KAF-F-30", "KAF-F-34"},
			Note: "A wish for a lease is ErrUnsupported.",
		},
		boundary.DeliverLeaseAccuracy: none,
		boundary.DeliverLeaseExtend:   none,
		boundary.DeliverLeaseMax:      none,
		boundary.DeliverLeaseClock:    none,
		boundary.DeliverRedeliverNack: {
			Declared: boundary.SameReceiver, Documented: boundary.Unsupported, Sources: []string{"KAF-F-30", "KAF-F-36"},
			Note: "The receiver delivers it again by itself, before later messages of its key, and holds the commit below. Nobody else can have it: a message that one process can't handle needs the dead letters, or another topic.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"KAF-F-37"},
			Note: "Confirmed is final, Pending is not. A group that stays empty for seven days loses its offsets and begins where a new one would.",
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.FalseFirst, Documented: boundary.None, Sources: []string{"KAF-F-36"},
			Note: "What another member held comes as attempt 1, as a first delivery does. Look every message up in the dedup store.",
		},
		boundary.DeliverPush: noPush,
	}
}

// shareLeases is the same of a share group.
func shareLeases() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault: {
			Declared: boundary.HalfMinute, Documented: boundary.HalfMinute, Sources: []string{"KAF-F-41"},
			Note: "Entity.Lease sets the group's own, of 15 to 60 s unless the broker has other bounds.",
		},
		boundary.DeliverLeaseAccuracy: {
			Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"KAF-F-41"},
			Note: "Counted from before the fetch that brought the message.",
		},
		boundary.DeliverLeaseExtend: {
			Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"KAF-F-45", "KAF-F-140"},
			Note: "From 4.2 on, by the group's lease from now, whatever delay is asked for. Before 4.2 an Extend is ErrUnsupported.",
		},
		boundary.DeliverLeaseMax: {
			Declared: boundary.NoLimit, Sources: []string{"KAF-F-140"},
			Note: "Renewals aren't counted, so a handler that hangs beside its heartbeat holds a message, and a place among the locks of the partition, for ever.",
		},
		boundary.DeliverLeaseClock: {
			Declared: boundary.FromArrival, Sources: []string{"KAF-F-41", "KAF-F-142"},
			Note: "The adapter fetches what its caller asks for, even if that splits a batch. A client that lets the broker hand out whole batches has messages whose locks run while they wait.",
		},
		boundary.DeliverRedeliverNack: {
			Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"KAF-F-45", "KAF-F-51"},
			Note: "In its place by offset among what the partition has to give out; no order is promised.",
		},
		boundary.DeliverRedeliverAfterAck: {
			Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"KAF-F-45"},
		},
		boundary.DeliverRedeliveredFlag: {
			Declared: boundary.Exact, Sources: []string{"KAF-F-49"},
			Note: "Except for what was out as the broker crashed, which comes as a first delivery. Don't skip the look into the dedup store.",
		},
		boundary.DeliverPush: noPush,
	}
}
