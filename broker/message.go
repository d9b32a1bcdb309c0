package broker

import "time"

// ReservedPrefix is what the names of this toolkit's own headers begin with.
// Publish refuses a user header whose name begins with it, in any case. The
// names are fixed: onceline-id, onceline-copy, onceline-key, onceline-time and
// onceline-headers. Those of a dead letter (onceline-dead-letter-reason, -source
// and -attempts) may be there when it is published again.
const ReservedPrefix = "onceline-"

// MaxID is the longest dedup ID, in bytes, that Publish takes on any broker.
// A broker whose own field is shorter gets a hash there, and the ID travels in
// a header.
const MaxID = 1024

// Message is what a producer hands to a broker and a consumer gets from it.
type Message struct {
	// ID is the dedup ID, the same on every copy of the logical message.
	// Publish refuses an empty one: an adapter never invents it, for an
	// invented ID differs on a retry and makes a silent second message.
	ID string
	// Copy tells deliberate copies of one logical message apart: a dead-letter
	// resubmit, a replay, a delayed clone. It is empty on every retry. A broker
	// dedups on ID and Copy together, a dedup store on ID alone.
	Copy string
	// Key is the ordering key; messages without one are unordered.
	Key string
	// Body is the payload. Publish doesn't keep or change it after it returned; a
	// Batcher keeps that of an Unknown message.
	Body []byte
	// Headers keep order, repeats and binary values on every broker.
	Headers Headers
	// Time is the producer's time of the first attempt, kept to the
	// millisecond and on every retry; Publish sets it where it is zero. It may
	// differ after a producer's restart, so no uniqueness may rest on it unless
	// the caller took it from the business event.
	Time time.Time
}

// Header is one name and value. A value may hold any bytes.
type Header struct{ Key, Value string }

// Headers is an ordered list that may repeat a name.
type Headers []Header

// Get returns the value of the first header named key, or "". Names are
// compared exactly.
func (h Headers) Get(key string) string {
	for i := range h {
		if h[i].Key == key {
			return h[i].Value
		}
	}
	return ""
}

// Values returns the values of all headers named key, in order.
func (h Headers) Values(key string) []string {
	var vs []string
	for i := range h {
		if h[i].Key == key {
			vs = append(vs, h[i].Value)
		}
	}
	return vs
}

// Position is where a broker keeps a message, in a form that a store can
// compare: a partition and an offset that grows in it, or an opaque token
// where the broker has no order to offer.
type Position struct {
	Partition string // "" where there is one sequence
	Offset    uint64
	Token     string
}
