package crashes

import "time"

// Times that all have to outlast who is frozen, and that a busy machine has to keep.
const (
	brokerLease = time.Second
	// storeLease is long beside what a busy machine may hold a process up for: who
	// loses its lease by that has an effect twice.
	storeLease = 2 * time.Second
	callBound  = 700 * time.Millisecond
	// idleTimeout is after how long a database ends the session of a consumer that is
	// frozen in a transaction.
	idleTimeout = time.Second
	busyTimeout = 200 * time.Millisecond // of SQLite
	retryDelay  = 100 * time.Millisecond
)

// consumerSpec tells a process what it consumes and by which store.
type consumerSpec struct {
	Store        string `json:"store"`
	Address      string `json:"address"` // the store's
	Cell         string `json:"cell"`    // a name of its own for what is in a shared database
	Broker       string `json:"broker"`  // the URL
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	Batch        int    `json:"batch"`
	Day          int    `json:"day"` // of its clock, for stores that mark by the day of arrival
}

// trigger is a message whose consumer is to stop at a point.
type trigger struct {
	ID    string `json:"id"`
	Point Point  `json:"point"`
	Round int    `json:"round"`
}

// The events that a consumer tells of, a JSON object on a line each.
const (
	ready   = "ready"
	at      = "at"      // it is at the point of a trigger, and waits
	passing = "passing" // it is there, and waits behind it
	effect  = "effect"  // it asks for an effect outside of the store, and waits
	handled = "handled" // what became of a message, where that is of interest
	settled = "settled" // acks that the broker took
	note    = "note"    // an error that it goes on after
	failed  = "failed"  // one that it ends by
	ended   = "ended"   // the process is gone; by who reads the others
)

type event struct {
	Event string   `json:"event"`
	Seq   int      `json:"seq,omitempty"` // what an answer refers to
	ID    string   `json:"id,omitempty"`
	IDs   []string `json:"ids,omitempty"`
	Point Point    `json:"point,omitempty"`
	Note  string   `json:"note,omitempty"`
	// Key and Fence are what an effect outside is asked for with.
	Key   string `json:"key,omitempty"`
	Fence int64  `json:"fence,omitempty"`
	// OK of handled: it may be acked; Parked: somebody has to look.
	OK     bool `json:"ok,omitempty"`
	Parked bool `json:"parked,omitempty"`

	from *consumer
}

// command is a line that a consumer gets.
type command struct {
	Trigger *trigger `json:"trigger,omitempty"`
	Seq     int      `json:"seq,omitempty"`
	Do      string   `json:"do,omitempty"` // the answer: goOn, cutOff, done, refused
}

const (
	goOn    = "go"
	cutOff  = "cut"
	done    = "done"
	refused = "refused"
)
