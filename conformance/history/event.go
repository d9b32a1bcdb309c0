// Package history is what happened to messages, in order of time, and what can be
// found out from that alone: what was lost, doubled, out of order, and which receipt
// or outcome the rest contradicts. The probes of package conformance record such
// histories; anybody can write down their own and have them checked, by "onceline
// check" or by [Check].
package history

// Schema is the version of the written form. It changes when a field changes its
// meaning; new fields don't change it.
const Schema = 1

// History is what happened, and what its checks have to know beside it.
type History struct {
	// Schema is [Schema].
	Schema int `json:"schema"`
	// Drained says that everything which could still come had come when the history
	// ends: consumers went on until nothing more came. Without it nothing is called
	// lost, for it might have come later.
	Drained bool `json:"drained"`
	// Events are in order of At. Events of the same time are in the order in which
	// they stand.
	Events []Event `json:"events"`
}

// Actor is the one an [Event] starts from.
type Actor string

// The actors.
const (
	Producer Actor = "producer"
	Broker   Actor = "broker"
	Consumer Actor = "consumer"
	Store    Actor = "store"
	Fault    Actor = "fault"
	Clock    Actor = "clock"
)

// The kinds of event that the checks read. Others may stand between them.
const (
	Publish  = "publish"  // an attempt to publish begins
	Receipt  = "receipt"  // the answer to one
	Delivery = "delivery" // a consumer has got the message
	Settle   = "settle"   // a consumer settles a delivery
	Outcome  = "outcome"  // the answer to that
	Effect   = "effect"   // an effect was applied, for good
)

// Event is one thing that happened. Which of the fields from Copy on an event has
// depends on its kind; one that is missing makes the checks that need it see less,
// never more.
type Event struct {
	// At is the time in seconds since the history began.
	At float64 `json:"at"`
	// Actor is who did it.
	Actor Actor `json:"actor"`
	// Kind is what was done; the set is open.
	Kind string `json:"kind"`
	// ID is the dedup ID of the message it concerns; empty for none.
	ID string `json:"id"`
	// Note holds the particulars, for people.
	Note string `json:"note"`

	// Copy tells deliberate copies under one ID apart: of publish, receipt and
	// delivery.
	Copy string `json:"copy,omitempty"`
	// Key is the ordering key: of publish.
	Key string `json:"key,omitempty"`
	// Verdict is a receipt's: Stored, Duplicate, Accepted, Refused or Unknown.
	Verdict string `json:"verdict,omitempty"`
	// Holder is the consumer of a delivery, settle, outcome or effect, or the producer of
	// a publish, whose messages of one key are meant in the order of their events.
	Holder string `json:"holder,omitempty"`
	// Position is where the broker keeps the message, in any form: of delivery, settle
	// and outcome. It tells a second copy from a redelivery of the first.
	Position string `json:"position,omitempty"`
	// Attempt counts the deliveries of a message from 1, as the broker said it: of
	// delivery, settle and outcome.
	Attempt int `json:"attempt,omitempty"`
	// Asked is when the call that brought a delivery began. What comes soon after an
	// outcome, to a call that was waiting before, may have left the broker earlier.
	Asked float64 `json:"asked,omitempty"`
	// Action is Ack, Nack, Extend or DeadLetter: of settle and outcome.
	Action string `json:"action,omitempty"`
	// State is an outcome's: Confirmed, Sent, Pending, LeaseLost or Unknown.
	State string `json:"state,omitempty"`
}

// promised reports whether a receipt's verdict says that the broker has the message.
func (e *Event) promised() bool {
	return e.Verdict == "Stored" || e.Verdict == "Duplicate" || e.Verdict == "Accepted"
}

// message is what makes a message one: its ID and the deliberate copy of it.
type message struct{ id, copy string }

func (e *Event) message() message { return message{e.ID, e.Copy} }
