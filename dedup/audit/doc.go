// Package audit looks for what went wrong with effects that should have taken place
// exactly once, in what is left of them: the rows of the effects, what the producer
// wrote of its messages, an outbox, the markers of an inbox. Most failures of delivery
// are silent when they happen; these are the invariants that show them afterwards:
//
//   - no business key was applied twice, however long apart ([AppliedTwice]);
//   - no producer's sequence has a hole ([Gap]), and none of its numbers two keys
//     ([Renamed]);
//   - what was sent has an effect, and each effect was sent ([Missing], [Unasked],
//     [CountsDiffer]);
//   - the duplicates that were caught are of the magnitude of the producer's retries
//     ([CaughtTooFew], [CaughtTooMany]);
//   - no retry was sent after the broker's window ([RetryLate]);
//   - an outbox holds nothing back ([Held], [Parked], [Stuck]);
//   - markers are kept for the horizon ([MarkersShort]).
//
// The work is done by GROUP BY in the user's own database, in read-only transactions
// whose statements are bounded; what is compared across databases is read in order of
// the key, so that memory doesn't grow with the rows. Files are loaded into a SQLite
// database first ([Load]). Nothing is written to what is audited.
//
// It imports no driver: the caller opens the databases. "onceline audit" is the command.
package audit
