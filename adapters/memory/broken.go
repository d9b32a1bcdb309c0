package memory

import (
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// broken holds which promises are switched off, and which are kept wrongly.
type broken struct {
	dedup, dedupAcrossKeys, dedupAcrossPublishers, dedupAfterAck, dedupAfterRestart bool
	dedupOnBody, otherBodyStored, otherBodyRefused                                  bool
	windowHalved, windowDoubled, windowRefreshed                                    bool
	dedupAfterPurge, dedupWithinBatch, dedupAcrossTopics                            bool
	dedupVerdict, duplicatePosition, duplicatesCalledStored                         bool
	batchAlone, batchReceipts                                                       bool
	durableAck, durableState, lostResponseStored                                    bool
	backlog, limitsTold, topicsCreated                                              bool

	leaseExpiry, lateLeaseExpiry, extend          bool
	noNackDelay, nackDelayHalved                  bool
	attemptCount, attempts                        bool
	keyOrder, keyOrderOverRedelivery              bool
	deadLetter, deadLetterKept                    bool
	cancelGiveBack, closeGiveBack                 bool
	fencing, finalSettle, ackOnDelivery           bool
	settleAnswer, settleAnswersLost, settleMemory bool
	lostSettleUnknown                             bool
	leaseTold, handlesAcrossCuts                  bool

	keyOrderOverExpiry, expiryCount, prefetch bool
	deadLetterReason, deadLetterAttempts      bool
}

// hashes reports whether a body has to be compared with an earlier one.
func (b *broken) hashes() bool { return b.dedupOnBody || b.otherBodyStored || b.otherBodyRefused }

// answerPublish makes the answer of a publish a broken one. It reports whether
// the broker has any of the messages.
func (b *broken) answerPublish(receipts []broker.Receipt) (stored bool) {
	var refusal error
	for i := range receipts {
		r := &receipts[i]
		stored = stored || r.Verdict.OK()
		if r.Verdict == broker.Refused {
			refusal = r.Err
			continue
		}
		switch {
		case b.dedupVerdict:
			*r = broker.Receipt{Verdict: broker.Accepted}
		case r.Verdict == broker.Duplicate && b.duplicatePosition:
			r.Position = broker.Position{}
		case r.Verdict == broker.Duplicate && b.duplicatesCalledStored:
			r.Verdict = broker.Stored
		}
	}
	if refusal != nil && b.batchReceipts {
		for i := range receipts {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: refusal}
		}
	}
	return stored
}

// answerSettle makes the answer of a settle a broken one.
func (b *broken) answerSettle(op *driver.Op) {
	o := &op.Settlement.Outcome
	switch {
	case b.settleAnswersLost:
		*o = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "%s", describe(op.Settlement))}
	case b.settleAnswer && o.State == broker.Confirmed:
		o.State = broker.Sent
	}
}

// attempt is what a delivery says of its attempt.
func (b *broken) attempt(n int) broker.Attempt {
	switch {
	case b.attempts:
		return broker.Attempt{}
	case b.attemptCount:
		n = 1
	}
	return broker.Attempt{Number: n, Trust: broker.Exact}
}

// nackDelay is how much of a delay is kept.
func (b *broken) nackDelay(d int64) int64 {
	switch {
	case b.noNackDelay:
		return 0
	case b.nackDelayHalved:
		return d / 2
	}
	return d
}

// WithoutDedup stores a message again each time its ID is published.
func WithoutDedup() Option { return func(b *Broker) { b.broken.dedup = true } }

// WithoutDedupAcrossKeys remembers an ID for its key alone: the same ID with
// another key is stored again.
func WithoutDedupAcrossKeys() Option { return func(b *Broker) { b.broken.dedupAcrossKeys = true } }

// WithoutDedupAcrossPublishers remembers an ID for its publisher alone: another
// one, or the same after a restart of the producer, stores it again.
func WithoutDedupAcrossPublishers() Option {
	return func(b *Broker) { b.broken.dedupAcrossPublishers = true }
}

// WithoutDedupAfterAck forgets an ID as soon as its message is settled for good.
func WithoutDedupAfterAck() Option { return func(b *Broker) { b.broken.dedupAfterAck = true } }

// WithoutDedupAfterRestart forgets all IDs in a restart and keeps the messages.
func WithoutDedupAfterRestart() Option {
	return func(b *Broker) { b.broken.dedupAfterRestart = true }
}

// WithDedupOnBody also takes a message for a duplicate whose body was published
// before, within the window, under another ID: it drops a message of its own.
func WithDedupOnBody() Option { return func(b *Broker) { b.broken.dedupOnBody = true } }

// WithOtherBodyStored stores a message again if its ID comes with another body.
func WithOtherBodyStored() Option { return func(b *Broker) { b.broken.otherBodyStored = true } }

// WithOtherBodyRefused refuses a known ID that comes with another body, with
// broker.ErrConflict.
func WithOtherBodyRefused() Option { return func(b *Broker) { b.broken.otherBodyRefused = true } }

// WithWindowHalved remembers an ID for half of the window.
func WithWindowHalved() Option { return func(b *Broker) { b.broken.windowHalved = true } }

// WithWindowDoubled remembers an ID for twice the window.
func WithWindowDoubled() Option { return func(b *Broker) { b.broken.windowDoubled = true } }

// WithWindowRefreshed lets the window of an ID begin anew with each duplicate.
func WithWindowRefreshed() Option { return func(b *Broker) { b.broken.windowRefreshed = true } }

// WithoutDedupVerdict dedups, and answers Accepted to all that it took.
func WithoutDedupVerdict() Option { return func(b *Broker) { b.broken.dedupVerdict = true } }

// WithoutDuplicatePosition answers Duplicate without the position of the first.
func WithoutDuplicatePosition() Option {
	return func(b *Broker) { b.broken.duplicatePosition = true }
}

// WithDuplicatesCalledStored drops a duplicate and answers Stored.
func WithDuplicatesCalledStored() Option {
	return func(b *Broker) { b.broken.duplicatesCalledStored = true }
}

// WithoutBatchPartial refuses all messages of a batch of which one is refused.
func WithoutBatchPartial() Option { return func(b *Broker) { b.broken.batchAlone = true } }

// WithoutBatchReceipts stores the good messages of a batch of which one is
// refused, and answers Refused for all.
func WithoutBatchReceipts() Option { return func(b *Broker) { b.broken.batchReceipts = true } }

// WithoutDurableAck answers a publish before the message is safe: Kill loses
// what was published since the start or the last clean Restart.
func WithoutDurableAck() Option { return func(b *Broker) { b.broken.durableAck = true } }

// WithoutDurableState makes each Restart one that keeps no state.
func WithoutDurableState() Option { return func(b *Broker) { b.broken.durableState = true } }

// WithoutLostResponseStored makes a publish that is struck by LoseResponse
// remember the ID and not store the message: the retry is a Duplicate of nothing,
// and the message is lost.
func WithoutLostResponseStored() Option {
	return func(b *Broker) { b.broken.lostResponseStored = true }
}

// WithoutBacklog stores what is published before the first subscription as it should,
// and drops it: the receipt is good, and nobody gets the message.
func WithoutBacklog() Option { return func(b *Broker) { b.broken.backlog = true } }

// WithoutLimits tells publishers no limit of the body's size, and refuses what is over
// it only when it has come.
func WithoutLimits() Option { return func(b *Broker) { b.broken.limitsTold = true } }

// WithTopicsCreated makes a topic for whoever opens a publisher for one that doesn't
// exist.
func WithTopicsCreated() Option { return func(b *Broker) { b.broken.topicsCreated = true } }

// WithoutLeaseExpiry never gives a message out again whose lease has ended.
func WithoutLeaseExpiry() Option { return func(b *Broker) { b.broken.leaseExpiry = true } }

// WithLateLeaseExpiry gives a message out again after three times its lease.
func WithLateLeaseExpiry() Option { return func(b *Broker) { b.broken.lateLeaseExpiry = true } }

// WithoutExtend confirms each Extend and leaves the lease as it is.
func WithoutExtend() Option { return func(b *Broker) { b.broken.extend = true } }

// WithoutNackDelay delivers again at once, whatever the delay.
func WithoutNackDelay() Option { return func(b *Broker) { b.broken.noNackDelay = true } }

// WithNackDelayHalved delivers again after half of the delay.
func WithNackDelayHalved() Option { return func(b *Broker) { b.broken.nackDelayHalved = true } }

// WithoutAttemptCount calls each delivery the first, and the number exact.
// MaxDeliveries holds all the same.
func WithoutAttemptCount() Option { return func(b *Broker) { b.broken.attemptCount = true } }

// WithoutAttempts tells no number of attempts, as a broker that has none.
func WithoutAttempts() Option { return func(b *Broker) { b.broken.attempts = true } }

// WithoutKeyOrder takes Entity.Ordered and delivers the newest message first.
func WithoutKeyOrder() Option { return func(b *Broker) { b.broken.keyOrder = true } }

// WithoutKeyOrderOverRedelivery takes Entity.Ordered and holds no message back
// for an earlier one of its key: a redelivery comes after later messages.
func WithoutKeyOrderOverRedelivery() Option {
	return func(b *Broker) { b.broken.keyOrderOverRedelivery = true }
}

// WithoutDeadLetter drops a message instead of dead-lettering it.
func WithoutDeadLetter() Option { return func(b *Broker) { b.broken.deadLetter = true } }

// WithDeadLetterKept parks a message that was delivered MaxDeliveries times,
// with a dead-letter topic too.
func WithDeadLetterKept() Option { return func(b *Broker) { b.broken.deadLetterKept = true } }

// WithoutCancelGiveBack strands what a cancelled Receive had asked for: the next
// messages, as many as its max, are handed to nobody and come again after their
// lease.
func WithoutCancelGiveBack() Option { return func(b *Broker) { b.broken.cancelGiveBack = true } }

// WithoutCloseGiveBack keeps what a closed receiver held until its lease ends.
func WithoutCloseGiveBack() Option { return func(b *Broker) { b.broken.closeGiveBack = true } }

// WithoutFencing lets a stale settle take effect at the broker, whoever holds
// the message now. The fence of package driver hides it; an unfenced view shows
// it.
func WithoutFencing() Option { return func(b *Broker) { b.broken.fencing = true } }

// WithoutFinalSettle confirms each Ack and delivers the message again after its
// lease.
func WithoutFinalSettle() Option { return func(b *Broker) { b.broken.finalSettle = true } }

// WithAckOnDelivery takes a message for settled as it is delivered, and confirms
// whatever is settled later: what a consumer doesn't finish is lost.
func WithAckOnDelivery() Option { return func(b *Broker) { b.broken.ackOnDelivery = true } }

// WithoutSettleAnswer answers Sent where it should confirm.
func WithoutSettleAnswer() Option { return func(b *Broker) { b.broken.settleAnswer = true } }

// WithSettleAnswersLost carries each settle out and answers Unknown.
func WithSettleAnswersLost() Option { return func(b *Broker) { b.broken.settleAnswersLost = true } }

// WithoutSettleMemory forgets what a delivery was settled with: who asks again
// after a lost answer stays Unknown.
func WithoutSettleMemory() Option { return func(b *Broker) { b.broken.settleMemory = true } }

// WithoutLostSettleUnknown answers LeaseLost to a settle that LoseResponse
// strikes, though it took effect.
func WithoutLostSettleUnknown() Option { return func(b *Broker) { b.broken.lostSettleUnknown = true } }

// WithoutLeaseTold tells no delivery until when its lease runs, so that the fence of
// package driver, which goes by that, lets late settles through to the broker.
func WithoutLeaseTold() Option { return func(b *Broker) { b.broken.leaseTold = true } }

// WithHandlesAcrossCuts lets handles live on when their connection is cut.
func WithHandlesAcrossCuts() Option { return func(b *Broker) { b.broken.handlesAcrossCuts = true } }

// WithoutDedupAfterPurge forgets the IDs along with the messages when a topic is
// purged.
func WithoutDedupAfterPurge() Option { return func(b *Broker) { b.broken.dedupAfterPurge = true } }

// WithoutDedupWithinBatch compares an ID with those of earlier publishes alone: one
// that comes twice in a publish is stored twice.
func WithoutDedupWithinBatch() Option { return func(b *Broker) { b.broken.dedupWithinBatch = true } }

// WithDedupAcrossTopics takes an ID for known that another topic has seen.
func WithDedupAcrossTopics() Option { return func(b *Broker) { b.broken.dedupAcrossTopics = true } }

// WithoutKeyOrderOverExpiry takes Entity.Ordered and lets the next message of a key
// come before one whose lease has ended.
func WithoutKeyOrderOverExpiry() Option {
	return func(b *Broker) { b.broken.keyOrderOverExpiry = true }
}

// WithoutExpiryCounted counts no delivery whose lease has ended: a message that kills
// its consumers never reaches MaxDeliveries.
func WithoutExpiryCounted() Option { return func(b *Broker) { b.broken.expiryCount = true } }

// WithPrefetch takes up to five messages more than a Receive asks for, and keeps them
// until their lease ends or the receiver is closed.
func WithPrefetch() Option { return func(b *Broker) { b.broken.prefetch = true } }

// WithoutDeadLetterReason leaves the reason out of a dead letter.
func WithoutDeadLetterReason() Option { return func(b *Broker) { b.broken.deadLetterReason = true } }

// WithoutDeadLetterAttempts leaves the number of deliveries out of a dead letter.
func WithoutDeadLetterAttempts() Option {
	return func(b *Broker) { b.broken.deadLetterAttempts = true }
}
