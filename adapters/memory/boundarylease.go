package memory

import "github.com/onceline/onceline/broker/boundary"

// leases is what this package promises of leases and of what comes again.
func leases() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.DeliverLeaseDefault:      {Declared: boundary.HalfMinute, Note: "WithLease and Entity.Lease say otherwise."},
		boundary.DeliverLeaseAccuracy:     {Declared: boundary.Exact, Note: "Delivery.Lease is the end to the nanosecond, by the broker's clock."},
		boundary.DeliverLeaseExtend:       {Declared: boundary.Honoured, Note: "Outcome.Lease is the new end; Delivery.Lease stays as it was."},
		boundary.DeliverLeaseMax:          {Declared: boundary.NoLimit, Note: "As long as each Extend comes before the end of the lease."},
		boundary.DeliverLeaseClock:        {Declared: boundary.FromArrival, Note: "Nothing is fetched ahead."},
		boundary.DeliverRedeliverNack:     {Declared: boundary.Behind, Note: "With Ordered the message keeps its place, and those of its key wait."},
		boundary.DeliverRedeliverAfterAck: {Declared: boundary.Final, Note: "What was confirmed doesn't come back, nor after Kill."},
		boundary.DeliverRedeliveredFlag:   {Declared: boundary.Exact, Note: "Each hand-over counts."},
		boundary.DeliverPush:              {Declared: boundary.None, Note: "Receivers ask."},
	}
}
