package conformance

import (
	"slices"

	"github.com/onceline/onceline/broker/boundary"
)

// Claim is one question about a boundary, with all the answers it can have.
type Claim struct {
	ID       boundary.Claim    `json:"claim"`
	Hop      int               `json:"hop"` // 1 producer to broker, 2 broker to consumer, 3 consumer to effect
	Question string            `json:"question"`
	Answers  []boundary.Answer `json:"answers"` // from the weakest to the strongest
	Meaning  string            `json:"meaning"` // why a user cares
}

// rank is an answer's place among the claim's answers, or -1.
func (c Claim) rank(a boundary.Answer) int { return slices.Index(c.Answers, a) }

// Claims returns the catalogue, in the order of the report.
func Claims() []Claim { return slices.Clone(catalogue) }

// Lookup returns the claim with the ID.
func Lookup(id boundary.Claim) (Claim, bool) {
	for _, c := range catalogue {
		if c.ID == id {
			return c, true
		}
	}
	return Claim{}, false
}

func answers(as ...boundary.Answer) []boundary.Answer { return as }

var catalogue = []Claim{
	{boundary.PublishAckDurable, 1,
		"Is a message with a good receipt still there after the broker's process is killed and started again?",
		answers(boundary.Lost, boundary.Kept),
		"If not, a producer that trusts the receipt loses messages with each crash of the broker."},
	{boundary.PublishBatchPartial, 1,
		"One message of a batch is refused: what becomes of the others, and do the receipts say so?",
		answers(boundary.BatchLost, boundary.Smeared, boundary.Exact),
		"Where the failure is smeared over the batch, a retry of all of it doubles what was stored."},
	{boundary.PublishDedupScope, 1,
		"Where does the broker look for a dedup ID that it has seen?",
		answers(boundary.None, boundary.Key, boundary.Topic, boundary.Stream),
		"A retry by another way, with another key or to another topic, is caught only inside the scope."},
	{boundary.PublishDedupWindow, 1,
		"How long does the broker remember a dedup ID, against the window that it was configured with?",
		answers(boundary.None, boundary.Shorter, boundary.AsConfigured, boundary.Longer),
		"A retry that comes later than this makes a second message in silence."},
	{boundary.PublishDedupVerdict, 1,
		"What does the receipt say of a publish whose ID the broker knows?",
		answers(boundary.StoredAgain, boundary.Accepted, boundary.Duplicate, boundary.DuplicateAt),
		"Without the flag a producer can't tell a retry that was caught from a new message that was swallowed."},
	{boundary.PublishDedupBody, 1,
		"The same ID comes with another body: what becomes of the second?",
		answers(boundary.BothStored, boundary.FirstKept, boundary.Refused),
		"An ID reused by mistake loses a message where the first is kept in silence."},
	{boundary.PublishDedupContent, 1,
		"The same body comes with another ID: are both stored?",
		answers(boundary.Dropped, boundary.BothStored),
		"Dedup by content swallows two honest messages that happen to look alike."},
	{boundary.PublishDedupLostResponse, 1,
		"The answer to a publish is lost and the same publisher sends the message again: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"The commonest fault on hop 1: a time-out says nothing about what the broker did."},
	{boundary.PublishDedupNewProducer, 1,
		"The answer to a publish is lost, the producer restarts and sends the message again: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"Dedup that lives in the producer's session ends with its process."},
	{boundary.PublishDedupBrokerRestart, 1,
		"The same ID comes before and after a clean restart of the broker: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A memory of IDs that a restart clears opens the window at each deployment of the broker."},
	{boundary.PublishDedupAfterConsume, 1,
		"The same ID comes again after the first message was consumed and acked: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A slow producer retries after a fast consumer is done; dedup against the queue's content alone misses it."},
	{boundary.PublishDedupConcurrent, 1,
		"Two publishers send the same ID at the same time: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"Fail-over of a producer makes two for a while."},

	{boundary.DeliverRedeliverExpiry, 2,
		"A consumer holds a message and does nothing: when does another consumer get it?",
		answers(boundary.Never, boundary.Early, boundary.NoLease, boundary.Late, boundary.AfterLease),
		"This is how long a stuck handler blocks its message, and from when on two may work on it."},
	{boundary.DeliverRedeliverCrash, 2,
		"A consumer's process is killed while it holds a message: when does another consumer get it?",
		answers(boundary.Never, boundary.Late, boundary.AfterSession, boundary.AfterLease, boundary.AtOnce),
		"This is the gap in service that a crash leaves."},
	{boundary.DeliverRedeliverNackDelay, 2,
		"A consumer gives a message back with a delay: is the delay kept?",
		answers(boundary.Unsupported, boundary.Ignored, boundary.Early, boundary.Honoured),
		"Without it a back-off has to be made elsewhere, or a poison message spins."},
	{boundary.DeliverAttempt, 2,
		"How far can the attempt number of a delivery be trusted?",
		answers(boundary.None, boundary.Wrong, boundary.PerReceiver, boundary.Approximate, boundary.Exact),
		"Whoever dead-letters after n attempts must know what n counts."},
	{boundary.DeliverOrderKey, 2,
		"Messages of one key: do they keep their order, also when one is given back?",
		answers(boundary.None, boundary.UntilNack, boundary.OverNack),
		"Order that ends with the first redelivery is no order for a state machine."},
	{boundary.DeliverCancel, 2,
		"A Receive is cancelled as a message arrives: can a consumer have it within a second?",
		answers(boundary.Stranded, boundary.GivenBack),
		"A stranded message waits for its lease at each deployment of the consumer."},
	{boundary.DeliverDeadLetter, 2,
		"A message is given back as often as allowed: where is it then?",
		answers(boundary.Dropped, boundary.KeptApart, boundary.Moved),
		"A dropped poison message is lost; one kept apart is found only by who looks for it."},
	{boundary.SettleAnswer, 2,
		"What does the broker answer to an ack?",
		answers(boundary.None, boundary.Sent, boundary.InOrder, boundary.PendingFirst, boundary.Confirmed),
		"An ack without an answer may be lost in silence; then the message comes again."},
	{boundary.SettleLostResponse, 2,
		"The answer to an ack is lost and the consumer asks again: what does it learn?",
		answers(boundary.ClaimedDone, boundary.ClaimedLost, boundary.StaysUnknown, boundary.ConfirmedAgain),
		"An ack that took effect and is reported as lost makes a consumer undo what is done."},
	{boundary.SettleStale, 2,
		"A consumer acks after its lease, when another one holds the message: does the late ack take effect?",
		answers(boundary.TakesEffect, boundary.ClaimedDone, boundary.Refused),
		"If it does, a message vanishes from under the consumer that works on it."},
	{boundary.VendorSettleStale, 2,
		"The same late ack with this toolkit's fence switched off: what does the broker itself do?",
		answers(boundary.TakesEffect, boundary.ClaimedDone, boundary.Refused),
		"This is what other clients of the same broker get."},
	{boundary.SettleFinal, 2,
		"After a confirmed ack, does the message come again: in three leases, to a new connection, after a restart of the broker?",
		answers(boundary.Redelivered, boundary.Final),
		"A confirmed ack that isn't final needs a dedup store behind it like any other."},

	{boundary.DeliverOrderRedelivery, 2,
		"The first message of a key is given back, or its lease ends: do later ones of the key come before it comes again?",
		answers(boundary.None, boundary.Overtaken, boundary.UntilExpiry, boundary.OverNack),
		"What overtakes a failed message is applied to a state that it doesn't fit."},
	{boundary.DeliverOrderHeadOfLine, 2,
		"A message of a key is out and not settled, on a subscription that was asked for order: what waits behind it?",
		answers(boundary.NoneWaits, boundary.AllWait, boundary.SameReceiver, boundary.KeyWaits),
		"A key that waits is the price of order; where all keys wait, one slow message stops the subscription."},
	{boundary.DeliverDeadLetterAfterMax, 2,
		"A message kills each consumer that gets it: where is it after as many deliveries as allowed?",
		answers(boundary.Dropped, boundary.KeepsComing, boundary.Moved),
		"A limit that counts only what is given back never stops the message that does the most harm."},
	{boundary.DeliverDeadLetterReason, 2,
		"A consumer dead-letters a message with a reason: is that in the dead-letter entity?",
		answers(boundary.Lost, boundary.Changed, boundary.Kept),
		"Whoever looks through the dead letters has nothing else to go by."},
	{boundary.DeliverDeadLetterAttempts, 2,
		"Does a dead letter still have its ID, key, body and headers, and say how often it was delivered?",
		answers(boundary.Lost, boundary.Wrong, boundary.NoAttempts, boundary.Kept),
		"A dead letter that lost its ID can't be resubmitted without making a second message."},
	{boundary.DeliverClose, 2,
		"A receiver is closed with unsettled messages in its hands: when does another one get them?",
		answers(boundary.Never, boundary.Late, boundary.AfterSession, boundary.AfterLease, boundary.AtOnce),
		"This is the gap that each orderly deployment of a consumer leaves."},
	{boundary.DeliverPrefetch, 2,
		"A receiver asked for n messages of many: can another one have the next at once?",
		answers(boundary.Hoarded, boundary.Exact),
		"What is fetched ahead ages under its lease in a buffer, while idle consumers wait."},
	{boundary.DeliverBody, 2,
		"Do ID, key, an empty and a binary body, and headers that repeat or have an empty or binary value come out as they went in?",
		answers(boundary.Lost, boundary.Changed, boundary.Exact),
		"A signature over a body that was changed fails; a header that is lost is a trace that ends."},
	{boundary.DeliverRedeliverReconnect, 2,
		"A consumer's connection is cut while it holds a message: when does the message come again?",
		answers(boundary.Never, boundary.Late, boundary.NoLease, boundary.AfterSession, boundary.AfterLease, boundary.AtOnce),
		"After it comes again two consumers may work on it, for the first one may not have noticed."},
	{boundary.DeliverExactlyOnce, 2,
		"Thousands of messages, some answers to publishes and acks lost at random, both retried: how does each reach a consumer that never fails?",
		answers(boundary.Lost, boundary.Duplicates, boundary.Once),
		"This is what the label exactly-once is worth before any process crashes."},

	{boundary.EffectCrashAfterEffect, 3,
		"A consumer is killed between its effect and its ack, and no store guards the effect: how often is it applied?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"No broker closes this hop; a marker committed with the effect does."},
	{boundary.EffectZombie, 3,
		"A consumer is stopped for longer than it may hold a message, then goes on, and no store guards the effect: how often is it applied?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A fence on the ack comes too late for the effect; the effect's own store must refuse it."},
}
