package conformance

import (
	"slices"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// The layers that a mutant is broken in.
const (
	publishing = "publish"
	receiving  = "receive"
	settling   = "settle"

	transacting = "transact"
)

// Mutants returns those that break any adapter: what they do wrong is against the
// contract.
func Mutants() []Mutant {
	return slices.Concat(publishMutants(), receiveMutants(), settleMutants(), txnMutants())
}

func publishMutants() []Mutant {
	return []Mutant{
		{"new-id-per-retry", "", publishing, "It makes the dedup ID of each attempt anew, so that a retry is another message.",
			boundary.PublishDedupLostResponse, boundary.Twice, mutation{publish: newIDs()}},
		{"swallows-publish-errors", "", publishing, "It logs that no answer came, and returns a receipt that says Stored.",
			boundary.PublishDedupLostRequest, boundary.Lost, mutation{publish: swallowPublishErrors}},
		{"refused-for-unknown", "", publishing, "It returns the time-out of a publish as an error like any other: Refused.",
			boundary.PublishCancel, boundary.ClaimedRefused, mutation{publish: calledInstead(broker.Unknown, broker.Refused)}},
		{"publishes-unseen", "", publishing, "It says Stored as soon as it has sent, and leaves the answer to a goroutine.",
			boundary.PublishCancel, boundary.ClaimedStored, mutation{publish: publishUnseen}},
		{"stored-for-a-duplicate", "", publishing, "It doesn't read the broker's flag that the ID was known.",
			boundary.PublishDedupVerdict, boundary.Accepted, mutation{publish: hideDuplicates}},
		{"stored-for-pushed-back", "", publishing, "It takes any answer for a good one, and a broker that has no room gives one.",
			boundary.PublishBackpressure, boundary.Lost, mutation{publish: calledInstead(broker.Refused, broker.Stored)}},
		{"calls-every-refusal-the-same", "", publishing, "It drops the broker's error code, so that nobody can tell a full broker from a bad message.",
			boundary.PublishBackpressure, boundary.RefusedOtherwise, mutation{publish: sameErrors}},
		{"smears-a-refusal", "", publishing, "It returns the first error of a batch for all of it.",
			boundary.PublishBatchPartial, boundary.Smeared, mutation{publish: smearRefusal}},
		{"believes-a-batch-answer", "", publishing, "It takes a batch that was answered for stored, and doesn't look which of its messages failed.",
			boundary.PublishBatchPartial, boundary.Smeared, mutation{publish: believeStatus}},
		{"reorders-a-batch", "", publishing, "It sends the messages of a batch from the last to the first.",
			boundary.PublishOrderKey, boundary.UntilFailure, mutation{publish: backwards}},
		{"cuts-ids", "", publishing, "It cuts the ID to the 128 bytes that a field of the broker's holds.",
			boundary.PublishIDLength, boundary.TakenForAnother, mutation{publish: changing(cutID)}},
		{"folds-ids", "", publishing, "It trims the ID, makes it lower case and repairs its UTF-8.",
			boundary.PublishIDCharset, boundary.TakenForAnother, mutation{publish: changing(foldID)}},
		{"takes-a-header-for-the-id", "", publishing, "It lets a user's header that has the dedup field's name overwrite the ID.",
			boundary.PublishDedupLookalikeHeader, boundary.TakenForID, mutation{publish: changing(headerAsID)}},
		{"id-from-the-body", "", publishing, "It dedups by a hash of the body, and carries the ID in a header.",
			boundary.PublishDedupContent, boundary.Dropped, idFromBody()},
		{"id-with-the-key", "", publishing, "It puts the ordering key into the dedup ID.",
			boundary.PublishDedupOtherKey, boundary.Twice, mutation{publish: changing(keyInID)}},
		{"ids-of-a-session", "", publishing, "It numbers messages by publisher, so that another publisher's retry isn't recognised.",
			boundary.PublishDedupNewProducer, boundary.Twice, mutation{publish: idsOfSession()}},
		{"copy-lost", "", publishing, "It drops the mark of a deliberate copy, which then is a duplicate.",
			boundary.EffectReplay, boundary.Once, mutation{publish: loseCopies}},
		{"drops-keys", "", publishing, "It forgets the ordering key.",
			boundary.DeliverBody, boundary.Lost, mutation{publish: changing(func(m *broker.Message) { m.Key = "" })}},
		{"loses-headers", "", publishing, "It forgets the headers.",
			boundary.PublishDedupLookalikeHeader, boundary.HeaderLost, mutation{publish: changing(loseHeaders)}},
		{"bodies-as-text", "", publishing, "It sends the body as a JSON string, and bytes that aren't UTF-8 are replaced.",
			boundary.DeliverBody, boundary.Changed, mutation{publish: changing(bodyAsText)}},
		{"empty-body-as-null", "", publishing, "It sends what a JSON encoder makes of a body that is nil or empty.",
			boundary.DeliverBody, boundary.Changed, mutation{publish: changing(emptyAsNull)}},
		{"makes-missing-topics", "", publishing, "It makes a topic that isn't there, to be helpful.",
			boundary.PublishMissingEntity, boundary.Created, mutation{openPublisher: makeTopics}},
		{"calls-a-missing-topic-an-outage", "", publishing, "It returns every error of opening a publisher as a broker that is down.",
			boundary.PublishMissingEntity, boundary.RefusedOtherwise, mutation{openPublisher: hideErrors}},
		{"tells-a-longer-window", "", publishing, "It tells three times the window in which IDs are remembered, and the retry guard believes it.",
			boundary.PublishRetryHorizon, boundary.StoredAgain, mutation{limits: longerWindow}},
		{"tells-no-limit", "", publishing, "It doesn't tell the limit of the body's size, so that the broker has to refuse.",
			boundary.PublishOversize, boundary.RefusedByBroker, mutation{limits: noLimits}},
	}
}

func receiveMutants() []Mutant {
	return []Mutant{
		{"acks-before-delivery", "", receiving, "It acks a message as it comes, before its consumer has it.",
			boundary.EffectCrashBefore, boundary.Lost, ackBefore()},
		{"acks-on-the-next-receive", "", receiving, "It takes the next Receive for a sign that all before it is done, and acks it.",
			boundary.DeliverOrderHeadOfLine, boundary.SameReceiver, ackOnPoll()},
		{"acks-on-close", "", receiving, "It acks all that is in hand as the receiver closes.",
			boundary.DeliverClose, boundary.Never, ackOnClose()},
		{"close-that-leaks", "", receiving, "Its Close closes nothing and gives nothing back.",
			boundary.DeliverClose, boundary.AfterLease, mutation{close: leak}},
		{"cancel-that-strands", "", receiving, "It leaves its request running when the caller's context ends, and drops the messages that it brings.",
			boundary.DeliverCancel, boundary.Stranded, mutation{receive: strand()}},
		{"prefetches", "", receiving, "It keeps a message for the next Receive, with what is left of its lease.",
			boundary.DeliverLeaseClock, boundary.FromHandOver, mutation{receive: prefetch()}},
		{"fetches-ahead", "", receiving, "It asks for more than its caller wants and lets the rest age.",
			boundary.DeliverPrefetch, boundary.Hoarded, mutation{receive: fetchAhead}},
		{"lease-too-long", "", receiving, "It counts the lease from the answer's arrival and some more.",
			boundary.DeliverLeaseAccuracy, boundary.Overstated, mutation{receive: overstateLease}},
		{"forgets-attempts", "", receiving, "It calls each delivery the first.",
			boundary.DeliverAttempt, boundary.Wrong, mutation{receive: forgetAttempts}},
		{"counts-attempts-itself", "", receiving, "It counts deliveries in the receiver, and calls that the broker's number.",
			boundary.DeliverAttempt, boundary.Wrong, mutation{receive: countHere()}},
		{"loses-headers-that-repeat", "", receiving, "It reads headers into a map.",
			boundary.DeliverBody, boundary.Lost, mutation{receive: dropRepeats}},
	}
}

func settleMutants() []Mutant {
	return []Mutant{
		{"drops-acks", "", settling, "It says Confirmed and tells the broker nothing.",
			boundary.SettleFinal, boundary.Redelivered, mutation{settle: dropAcks}},
		{"acks-later", "", settling, "It says Confirmed, collects acks, and sends them with the next Receive.",
			boundary.SettleDurable, boundary.Redelivered, ackLater()},
		{"settles-unseen", "", settling, "It says Confirmed as soon as it has sent, and leaves the answer to a goroutine.",
			boundary.SettleLostRequest, boundary.ClaimedDone, mutation{settle: settleUnseen}},
		{"acks-the-first-of-a-batch", "", settling, "It sends the first ack of a batch, and confirms all.",
			boundary.DeliverRedeliverAfterAck, boundary.Redelivered, mutation{settle: ackFirst}},
		{"acks-all-before-it", "", settling, "It sends an ack that covers everything older, too: a cumulative one.",
			boundary.DeliverClose, boundary.Never, ackMultiple()},
		{"swallows-ack-errors", "", settling, "It logs the error of an ack, and returns Confirmed.",
			boundary.SettleLostResponse, boundary.ClaimedDone, mutation{settle: swallowErrors}},
		{"takes-unknown-for-lost", "", settling, "It says that the lease is lost where no answer came.",
			boundary.SettleLostRequest, boundary.ClaimedLost, mutation{settle: unknownAsLost}},
		{"confirms-as-the-context-ends", "", settling, "It takes an ack whose context ended for one that counted.",
			boundary.SettleCancel, boundary.ClaimedDone, mutation{settle: confirmAtEnd}},
		{"smears-a-bad-settlement", "", settling, "It returns the first error of a batch of settlements for all of it.",
			boundary.SettleBatchPartial, boundary.Smeared, mutation{settle: smearSettlement}},
		{"leaves-the-handle-open", "", settling, "It says of a settle that took effect that nothing was done, so that another may follow.",
			boundary.SettleDouble, boundary.ClaimedLost, mutation{settle: leaveOpen}},
		{"forgets-what-it-confirmed", "", settling, "It says LeaseLost to a second ack of what it has acked.",
			boundary.SettleReack, boundary.ClaimedLost, mutation{settle: forgetConfirmed}},
		{"takes-a-lost-lease-for-an-ack", "", settling, "It doesn't tell when a lease ends, and says Confirmed where the broker says that it has.",
			boundary.SettleStaleBeforeRedelivery, boundary.ClaimedDone, mutation{receive: longLeases, settle: lostAsDone}},
		{"settles-for-whoever-holds-it", "", settling, "It keeps the lock of a message under its ID, so that a late settle is done with the new holder's lock.",
			boundary.SettleStale, boundary.TakesEffect, settleByID()},
		{"extends-nothing", "", settling, "It confirms an Extend and tells the broker nothing.",
			boundary.DeliverLeaseExtend, boundary.Ignored, mutation{settle: extendNothing}},
		{"extends-half", "", settling, "It adds an extension to the old deadline, where the broker counts from now.",
			boundary.DeliverLeaseExtend, boundary.Overstated, mutation{settle: overstateExtend}},
		{"extends-once", "", settling, "It sends the first Extend of a delivery alone.",
			boundary.DeliverLeaseMax, boundary.FirstLease, mutation{settle: extendOnce()}},
		{"extends-what-it-lost", "", settling, "It confirms an Extend whose lease has ended without asking.",
			boundary.SettleExtendStale, boundary.ClaimedDone, mutation{receive: longLeases, settle: extendAnything}},
		{"drops-nacks", "", settling, "It confirms a nack and lets the lease run out.",
			boundary.DeliverRedeliverNack, boundary.Late, mutation{settle: dropNacks}},
		{"nack-as-ack", "", settling, "It settles for good what is given back.",
			boundary.EffectCommitUnknown, boundary.Once, mutation{settle: ackNacks}},
		{"ignores-nack-delay", "", settling, "It gives back at once what is to come later.",
			boundary.DeliverRedeliverNackDelay, boundary.Ignored, mutation{settle: ignoreDelay}},
		{"acks-dead-letters", "", settling, "It acks what is to be dead-lettered.",
			boundary.DeliverDeadLetterAttempts, boundary.Lost, mutation{settle: ackDeadLetters}},
		{"nacks-dead-letters", "", settling, "It gives back what is to be dead-lettered.",
			boundary.DeliverDeadLetterReason, boundary.Lost, mutation{settle: nackDeadLetters}},
		{"dead-letters-without-reason", "", settling, "It dead-letters and leaves the reason out.",
			boundary.DeliverDeadLetterReason, boundary.Lost, mutation{settle: dropReasons}},
	}
}
