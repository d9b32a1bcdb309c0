package sqs

import (
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// limitsFIFO and limitsStandard are what queues take.
func limitsFIFO() map[boundary.LimitName]boundary.Limit {
	const window = int64(5 * time.Minute)
	l := limitsStandard()
	l[boundary.LimitID] = boundary.Limit{Most: 128, Sources: []string{"SQS-F-01"},
		Note: "Letters, digits and ASCII punctuation. Of others and of longer ones the adapter sends the SHA-256."}
	l[boundary.LimitWindow] = boundary.Limit{Least: window, Most: window, Default: 0, Sources: []string{"SQS-F-02"}}
	return l
}

func limitsStandard() map[boundary.LimitName]boundary.Limit {
	const hours = int64(12 * time.Hour)
	return map[boundary.LimitName]boundary.Limit{
		boundary.LimitBody:   {Most: 1 << 20, Sources: []string{"SQS-F-15"}, Note: "Attributes count along with it, and so does the whole batch. A body that isn't text is sent in base64."},
		boundary.LimitID:     {Absent: true, Sources: []string{"SQS-F-01"}},
		boundary.LimitWindow: {Absent: true, Sources: []string{"SQS-F-01"}},
		boundary.LimitLease:  {Most: hours, Default: int64(30 * time.Second), Sources: []string{"SQS-F-18"}, Note: "Twelve hours from the receive, however often it is extended."},
		boundary.LimitDelay:  {Most: hours, Sources: []string{"SQS-F-18"}},
	}
}
