package dedup

import (
	"context"
	"fmt"
)

// Claim is what a store says of one marker.
type Claim uint8

// The claims. The zero is none of them, so that a forgotten one never reads as
// permission.
const (
	// Fresh: the marker is now in the transaction, and stands if that commits.
	Fresh Claim = iota + 1
	// Seen: the marker is there, committed or from earlier in the transaction.
	Seen
	// Held: another transaction that hasn't ended holds it.
	Held
	// Outside: the store keeps no markers of its time.
	Outside
)

func (c Claim) String() string {
	names := [...]string{"none", "fresh", "seen", "held", "outside"}
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("Claim(%d)", uint8(c))
}

// Fault is what a store's error says about trying again.
type Fault uint8

// The faults.
const (
	// Permanent: the statement itself, or what called it, is at fault.
	Permanent Fault = iota
	// Busy: the transaction was refused for the sake of another (a deadlock, a
	// serialization failure, a lock that wasn't had in time). The same may work
	// the next time.
	Busy
	// Lost: the connection or the server is gone, or going.
	Lost
)

// Driver is what a store implements for [Inbox]; T is its transaction. All methods
// are safe for concurrent use, each transaction being used by one goroutine at a
// time.
type Driver[T any] interface {
	// Transact runs f in a new transaction at READ COMMITTED or what serves the
	// same end, commits it if f returns nil, and otherwise, a panic included, rolls
	// it back and returns f's error. It bounds the time that a transaction may
	// wait, for a statement or for its client, so that a frozen consumer doesn't
	// hold its claims for ever.
	//
	// The commit isn't cut by ctx, which would leave its outcome open; before it,
	// an ended ctx is a roll-back. An answer that is lost all the same is
	// [ErrCommitUnknown]; a transaction that couldn't begin, or whose connection
	// turned out dead before the commit was sent, is [ErrLost]; both wrap the
	// store's own error, and f's. A commit that the store refused is neither.
	Transact(ctx context.Context, f func(tx T) error) error
	// Claim tries to put markers, which are sorted by [Marker.Compare] (PG-F-10) and
	// differ, into the transaction, and says in claims, which is as long, how it went. It
	// never waits for another transaction that holds a marker, where the store can
	// tell.
	//
	// It refuses a transaction in which it can't keep its promise, of another
	// isolation for instance, with an error that is [ErrVerify].
	Claim(ctx context.Context, tx T, markers []Marker, claims []Claim) error
	// Release takes markers that were Fresh in this transaction out of it.
	Release(ctx context.Context, tx T, markers []Marker) error
	// Savepoint sets the one savepoint of tx; if again, in place of the one before.
	Savepoint(ctx context.Context, tx T, again bool) error
	// Restore undoes what tx did since the savepoint, which stays. It works also
	// when a statement's error made tx refuse all others.
	Restore(ctx context.Context, tx T) error
	// Fault says what kind of error err is, judging by the store's own errors in
	// it. An error that the store didn't make is Permanent.
	Fault(err error) Fault
}
