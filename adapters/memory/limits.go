package memory

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limits are what the reference implementation takes.
func limits() map[boundary.LimitName]boundary.Limit {
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Default: 1 << 20},
		boundary.LimitID:     {},
		boundary.LimitWindow: {Default: int64(2 * time.Minute)},
		boundary.LimitLease:  {Default: int64(30 * time.Second)},
		boundary.LimitDelay:  {},
	}
}
