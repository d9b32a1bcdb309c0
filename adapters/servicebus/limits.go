package servicebus

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limits are what queues and topics take.
func limits() map[boundary.LimitName]boundary.Limit {
	const day = 24 * time.Hour
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Most: 256 << 10, Sources: []string{"SB-F-11"}, Note: "Properties count along with it. Premium takes 1 MiB, and up to 100 if the entity says so."},
		boundary.LimitID:     {Most: 128, Sources: []string{"SB-F-01"}, Note: "Of longer ones the adapter sends the SHA-256."},
		boundary.LimitWindow: {Least: int64(20 * time.Second), Most: int64(7 * day), Default: int64(10 * time.Minute), Sources: []string{"SB-F-03"}},
		boundary.LimitLease:  {Least: int64(5 * time.Second), Most: int64(5 * time.Minute), Default: int64(time.Minute), Sources: []string{"SB-F-13", "SB-F-32"}, Note: "Renewed without a bound."},
		boundary.LimitDelay:  {Absent: true, Sources: []string{"SB-F-21"}},
	}
}
