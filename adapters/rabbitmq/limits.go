package rabbitmq

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limits are what queues take from 4.0 on.
func limits() map[boundary.LimitName]boundary.Limit {
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Most: 16 << 20, Sources: []string{"RMQ-F-24"}, Note: "The node's max_message_size by default."},
		boundary.LimitID:     {Absent: true, Sources: []string{"RMQ-F-01"}},
		boundary.LimitWindow: {Absent: true, Sources: []string{"RMQ-F-01"}},
		boundary.LimitLease:  {Absent: true, Sources: []string{"RMQ-F-12"}},
		boundary.LimitDelay:  {Sources: []string{"RMQ-F-28"}, Note: "By a copy in a queue whose messages expire."},
	}
}

// limitsQuorum has the consumer timeout beside them.
func limitsQuorum() map[boundary.LimitName]boundary.Limit {
	l := limits()
	l[boundary.LimitLease] = boundary.Limit{Default: int64(30 * time.Minute), Sources: []string{"RMQ-F-13"}, Note: "It can't be extended."}
	return l
}

// limitsStream: of what one named publisher sends a stream remembers the highest
// number, without a window.
func limitsStream() map[boundary.LimitName]boundary.Limit {
	l := limits()
	l[boundary.LimitID] = boundary.Limit{Absent: true, Sources: []string{"RMS-F-01"}}
	l[boundary.LimitWindow] = boundary.Limit{Absent: true, Sources: []string{"RMS-F-01"}}
	l[boundary.LimitDelay] = boundary.Limit{Sources: []string{"RMS-F-01"}, Note: "Kept in the receiver's own memory."}
	return l
}

// limits3 are what 3.x took otherwise.
func limits3() map[boundary.LimitName]boundary.Limit {
	return map[boundary.LimitName]boundary.Limit{boundary.LimitBody: {Most: 128 << 20, Sources: []string{"RMQ-F-24"}}}
}
