package pubsub

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limits are what topics and subscriptions take.
func limits() map[boundary.LimitName]boundary.Limit {
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Most: 10_000_000, Sources: []string{"PS-F-05"}, Note: "Attributes count along with it, and so does the whole request."},
		boundary.LimitID:     {Absent: true, Sources: []string{"PS-F-01"}},
		boundary.LimitWindow: {Absent: true, Sources: []string{"PS-F-01"}},
		boundary.LimitLease:  {Least: int64(10 * time.Second), Most: int64(600 * time.Second), Default: int64(10 * time.Second), Sources: []string{"PS-F-09"}, Note: "Each extension by as much again."},
		boundary.LimitDelay:  {Most: int64(600 * time.Second), Sources: []string{"PS-F-28"}},
	}
}
