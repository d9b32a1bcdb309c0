package conformance

import "github.com/onceline/onceline/broker/boundary"

// txnClaims are those of transactions, which tie hop 1 to hop 2: what is published and
// what is settled take effect together. What a consumer does elsewhere is hop 3.
var txnClaims = []Claim{
	{boundary.TxnScope, 2,
		"What can be in one transaction of this broker, so that an abort undoes it and a commit does it?",
		answers(boundary.Unsupported, boundary.PublishesToOne, boundary.Publishes, boundary.PublishesAndSettles),
		"Whoever takes more to be in it than is has a batch that is half done after a crash. Nothing outside of the broker ever is."},
	{boundary.TxnAtomic, 2,
		"The process that holds a transaction is killed at each of its steps, until after the commit: does all of it take effect, or nothing?",
		answers(boundary.Lost, boundary.InPart, boundary.AllOrNone),
		"An input that is done without its output is a loss, an output whose input comes again a double: a transaction is there to rule out both."},
	{boundary.TxnZombie, 2,
		"An instance is frozen within a transaction, another one opens its ID and goes on, and then the first commits: does that take effect?",
		answers(boundary.ClaimedDone, boundary.ClaimedLost, boundary.TakesEffect, boundary.RefusedOtherwise, boundary.Refused),
		"The scheduler starts a second instance where the first is slow, not dead. Without a fence both are right."},
	{boundary.TxnTimeout, 2,
		"A transaction stays open for longer than the time that was asked for: what becomes of it, and what does its commit say?",
		answers(boundary.ClaimedDone, boundary.ClaimedLost, boundary.Ignored, boundary.Unsupported, boundary.AbortedTold),
		"What a dead instance left open holds up readers until then; and one that is merely slow has to learn that its work was undone."},
	{boundary.TxnCommitUnknown, 2,
		"The answer to a commit is lost, on the way there or back: what does its caller learn in the end, and is it true?",
		answers(boundary.ClaimedDone, boundary.ClaimedLost, boundary.StaysUnknown, boundary.Resolved),
		"A commit that took effect and is taken for an abort is done again, and all of its outputs are there twice."},
	{boundary.TxnReadUncommitted, 2,
		"Does a receiver get messages of a transaction that is still open, or that was aborted?",
		answers(boundary.UncommittedDelivered, boundary.CommittedAlone),
		"A reader of uncommitted messages works on what never happened, and then on its repetition."},
	{boundary.TxnExternalEffect, 3,
		"A handler writes a row to a database within a transaction that is aborted, and handles what comes again: how often is the row written?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"The broker can't undo what isn't its own. Derive the row from the outputs, or write it with a marker or an outbox in a transaction of the database."},
	{boundary.TxnRewind, 2,
		"A transaction is aborted and its receiver goes on: do the inputs come again, in their order and before what follows?",
		answers(boundary.Never, boundary.AfterLease, boundary.Behind, boundary.AtOnce),
		"A receiver that goes on from where it was skips what was aborted, and nobody notices until the sums are wrong."},
}
