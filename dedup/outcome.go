package dedup

import (
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
)

// Outcome is what became of one message's effect.
type Outcome uint8

// The outcomes. Only after Applied and Duplicate, whose error is nil, may the message
// be acked.
const (
	// Unknown: the store couldn't do it or couldn't say: it isn't there, it pushes
	// back, or the answer to a commit was lost and asking again found no answer
	// either. Nothing of this is the message's fault, so it is tried again without
	// an attempt being counted.
	Unknown Outcome = iota
	// Applied: marker and effect are committed.
	Applied
	// Duplicate: the effect was committed before, by another copy.
	Duplicate
	// InFlight: another copy is being applied at this moment, or in a batch an
	// earlier message of the ordering key has to come first. Try later.
	InFlight
	// Failed: the effect returned an error, and nothing of it stands.
	Failed
	// OutsideWindow: markers of the message's time are not kept, or not yet, so
	// nobody can say whether it is a duplicate. It was not applied.
	OutsideWindow
)

func (o Outcome) String() string {
	names := [...]string{"unknown", "applied", "duplicate", "in flight", "failed", "outside window"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// OK reports whether the effect stands, so that the message may be acked: Applied
// or Duplicate.
func (o Outcome) OK() bool { return o == Applied || o == Duplicate }

// Result is the outcome for one message of a batch, and why if it isn't OK.
type Result struct {
	Outcome Outcome
	Err     error
}

// The errors of this package and its stores, to be tested with errors.Is.
var (
	// ErrInFlight comes with [InFlight]: another copy is being applied.
	ErrInFlight = errors.New("dedup: another copy is being applied")
	// ErrHeldBack comes with [InFlight]: a message of the same ordering key that
	// came before was not applied.
	ErrHeldBack = errors.New("dedup: held back behind an earlier message of its key")
	// ErrOutsideWindow comes with [OutsideWindow]. It is also
	// [broker.ErrWindowExceeded].
	ErrOutsideWindow = fmt.Errorf("dedup: outside of the time whose markers are kept: %w", broker.ErrWindowExceeded)
	// ErrCommitUnknown: the answer to a commit was lost; marker and effect are both
	// there or both not. It is also [broker.ErrUnknownOutcome]. To apply the message
	// again finds out which (PG-F-17), so it is tried again and never dead-lettered.
	ErrCommitUnknown = fmt.Errorf("dedup: no answer to the commit: %w", broker.ErrUnknownOutcome)
	// ErrLost: the connection to the store, or the store, was lost before anything
	// was committed. It is also [broker.ErrUnavailable].
	ErrLost = fmt.Errorf("dedup: the store was lost: %w", broker.ErrUnavailable)
	// ErrFenced: somebody else has moved the position. What this owner did was not
	// committed; it must load the position and go on from there, or give up the
	// partition.
	ErrFenced = errors.New("dedup: position moved by another owner")
	// ErrVerify: the store is not set up so that effects happen exactly once. The
	// error says what to change.
	ErrVerify = fmt.Errorf("dedup: store unfit: %w", broker.ErrConflict)
)
