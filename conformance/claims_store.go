package conformance

import (
	"fmt"
	"slices"

	"github.com/onceline/onceline/broker/boundary"
)

// guardedClaims are the claims of hop 3 behind a store: each scenario that a store of
// the kind has an answer of its own to. With the message acked there is nothing left
// that it could guard.
func guardedClaims() []Claim {
	scenarios := []struct{ name, question string }{
		{crashBefore, "A consumer is killed between the delivery and its effect, %s: how often is it applied?"},
		{crashAfter, "A consumer is killed between its effect and its ack, %s: how often is it applied?"},
		{zombied, "A consumer is stopped for longer than it may hold a message, then goes on, %s: how often is the effect applied?"},
		{replayed, "A message is published again on purpose, as from a dead-letter entity, %s: how often is the effect applied?"},
		{commitUnknown, "A consumer hears no answer to what applies its effect, and gives the message back, %s: how often is it applied?"},
		{rewound, "A log is read again from an earlier place, %s: how often is the effect applied?"},
	}
	// To a record under the message's ID a rewind is one more copy, as a replay is.
	copies := []string{crashBefore, crashAfter, zombied, replayed, commitUnknown}
	var cs []Claim
	for _, kind := range []struct {
		name, store, meaning string
		only                 []string // these scenarios; empty for all
	}{
		{Inbox, "with a marker that is committed in one transaction with the effect",
			"This is the one store that closes each way to a second effect that a database can know of.", nil},
		{Position, "with the offset of the last message committed in one transaction with the effect",
			"One row for each partition does what a marker for each message does, unless messages are published twice.", nil},
		{Lease, "with a reservation in Redis before the effect and a record after it",
			"A lease keeps two consumers apart while both are well; it makes no effect happen once.", copies},
		{LeaseFenced, "with a reservation in Redis, and a destination that refuses a lower fencing number",
			"Only a destination that checks stops who lost the lease and doesn't know it.", []string{zombied}},
		{Call, "with a record before and after the call of a provider that knows no keys",
			"A payment that may have been made is neither made again nor forgotten: it waits for somebody to look.", copies},
		{CallKeyed, "with a record before and after the call of a provider that knows calls by their keys",
			"With the same key for each attempt nobody has to look.", []string{crashBefore}},
	} {
		for _, s := range scenarios {
			if len(kind.only) == 0 || slices.Contains(kind.only, s.name) {
				cs = append(cs, Claim{effectClaim(kind.name, s.name), 3, fmt.Sprintf(s.question, kind.store),
					answers(boundary.Lost, boundary.Twice, boundary.Once), kind.meaning})
			}
		}
	}
	return cs
}
