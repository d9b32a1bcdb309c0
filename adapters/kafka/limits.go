package kafka

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limitsGroup and limitsShare are what topics and groups take.
func limitsGroup() map[boundary.LimitName]boundary.Limit {
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Most: 1_048_588, Sources: []string{"KAF-F-12"}, Note: "By default, for a batch with its overhead; a topic can have another limit."},
		boundary.LimitID:     {Absent: true, Sources: []string{"KAF-F-01"}},
		boundary.LimitWindow: {Absent: true, Sources: []string{"KAF-F-01"}},
		boundary.LimitLease:  {Absent: true, Sources: []string{"KAF-F-34"}, Note: "A message is its member's as long as that lives: by default 45 s after its last heartbeat."},
		boundary.LimitDelay:  {Sources: []string{"KAF-F-34"}, Note: "Kept in the receiver's own memory, with all of the partition behind it uncommitted."},
	}
}

func limitsShare() map[boundary.LimitName]boundary.Limit {
	l := limitsGroup()
	l[boundary.LimitLease] = boundary.Limit{Least: int64(15 * time.Second), Most: int64(60 * time.Second), Default: int64(30 * time.Second), Sources: []string{"KAF-F-41"}}
	l[boundary.LimitDelay] = boundary.Limit{Absent: true, Sources: []string{"KAF-F-45"}}
	return l
}
