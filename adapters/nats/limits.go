package nats

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limits are what streams and consumers take.
func limits() map[boundary.LimitName]boundary.Limit {
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Most: 64 << 20, Default: 1 << 20, Sources: []string{"NATS-F-29"}, Note: "The server's max_payload; headers count along with it."},
		boundary.LimitID:     {Sources: []string{"NATS-F-01"}, Note: "It counts into the message's size. The contract's own bound holds."},
		boundary.LimitWindow: {Least: int64(100 * time.Millisecond), Default: int64(2 * time.Minute), Sources: []string{"NATS-F-02"}, Note: "No longer than the stream keeps messages, nor than the server's max_duplicate_window. The IDs live in memory."},
		boundary.LimitLease:  {Default: int64(30 * time.Second), Sources: []string{"NATS-F-21"}},
		boundary.LimitDelay:  {Sources: []string{"NATS-F-22"}},
	}
}
