package conformance

import (
	"context"
	"errors"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// Store is a way to have effects once, as a value: the suite knows no database and
// no package that guards effects. A target that has none leaves the claims about
// stores unverifiable.
type Store struct {
	// Kind is which of the stores of the claims it is: "inbox" for
	// effect.inbox.zombie. See [StoreKinds].
	Kind string
	// Name is the database's, for the evidence and to tell stores of one kind apart.
	Name string
	// Spare has it asked only where no other one of its kind that comes before it is
	// there. All others of a kind are asked.
	Spare bool
	// Make makes an empty one for a probe, and returns the address that Open takes, in
	// this process and in others. Remove, which may be nil, is called when all that
	// was opened is closed. An error that is [ErrAbsent] leaves the claims
	// unverifiable for its reason.
	Make func(ctx context.Context) (address string, remove func() error, err error)
	// Open opens what Make made.
	Open func(ctx context.Context, address string) (Guard, error)
	// Pipelines runs pipelines whose checkpoints are in it: of the kind [Checkpoints],
	// which has no Open.
	Pipelines *Pipelines
}

// Guard is an opened [Store]: it applies effects, each at most as often as it can
// promise, and counts them where they take place. Its methods may be called from
// several goroutines.
type Guard interface {
	// Apply applies the effect of a delivery of m and calls step, which may block, at
	// the places that [Step] names. Nil means that the message may be acked, which a
	// duplicate may too; an error that is [ErrAgain] that it has to come again; one
	// that is [ErrParked] that it is put aside for somebody to decide. ctx doesn't end
	// what step has let pass.
	Apply(ctx context.Context, m broker.Message, at broker.Position, step func(Step)) error
	// LoseAnswer has the next commit of an effect, or the next call of who takes it, done
	// and its answer lost. The function that it returns reports whether that has
	// happened.
	LoseAnswer() (lost func() bool)
	// Effects returns how often the effect of a message took place.
	Effects(ctx context.Context, id string) (int, error)
	// Close releases it; what Make made stays.
	Close() error
}

// Step is a place in the way of an effect at which a probe stops its consumer.
type Step string

// The steps, in their order.
const (
	// Claimed: what others can see of the consumer's being at it is there: a
	// reservation, a record of a call that was begun, a position that was read. No
	// transaction is open. Where others see nothing before the effect: before all.
	Claimed Step = "claimed"
	// Begun: nothing but the effect is missing. A transaction, if there is one, is
	// open, with the marker in it.
	Begun Step = "begun"
	// Applied: the effect is there for good. What the store writes beside it, if that
	// is another transaction, isn't, and the message isn't acked.
	Applied Step = "applied"
)

var (
	// ErrAgain is what [Guard.Apply] returns of a message that has to come again: it is
	// in other hands, or the store couldn't say.
	ErrAgain = errors.New("conformance: the message has to come again")
	// ErrParked is what it returns of one that nobody may apply before somebody has
	// looked whether its effect took place.
	ErrParked = errors.New("conformance: the message is put aside")
)

// The kinds of [Store].
const (
	Inbox       = "inbox"        // marker and effect in one transaction
	Position    = "position"     // the last offset and the effect in one transaction
	Lease       = "lease"        // a reservation before the effect and a record after it
	LeaseFenced = "lease.fenced" // the same, and the destination refuses a lower fencing number
	Call        = "call"         // a record before and after the call of somebody who knows no keys
	CallKeyed   = "call.keyed"   // the same, of somebody who knows calls by their keys
)

// StoreKinds returns the kinds of store that there are claims about.
func StoreKinds() []string { return []string{Inbox, Position, Lease, LeaseFenced, Call, CallKeyed} }

// effectClaim is the claim about a scenario with a kind of store, "" for none.
func effectClaim(kind, scenario string) boundary.Claim {
	if kind != "" {
		kind += "."
	}
	return boundary.Claim("effect." + kind + scenario)
}
