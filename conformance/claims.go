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
	{boundary.PublishDedupWindowAnchor, 1,
		"An ID is repeated within its window: does the window go on from the first sighting, or begin anew?",
		answers(boundary.None, boundary.FirstSighting, boundary.LastSighting),
		"A producer that retries without end outlives a window from the first sighting, and its last retry is stored again."},
	{boundary.PublishDedupLostRequest, 1,
		"A publish is lost on its way to the broker, others follow, and then the same message is sent again: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A broker or client that takes the ID for used by then swallows the only copy there is."},
	{boundary.PublishDedupTwoProducers, 1,
		"Two producers are alive and send the same ID one after the other: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"Two instances of a service that see the same business event both publish it."},
	{boundary.PublishDedupAfterPurge, 1,
		"The same ID comes again after the entity was purged: how often was it stored in all?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"Who purges to begin anew loses what is sent again where IDs outlive the purge; where they don't, a late retry gets in."},
	{boundary.PublishDedupWithinBatch, 1,
		"One publish call carries the same ID twice: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A batch that was gathered from two sources can hold a message twice, and dedup against what is stored already misses it."},
	{boundary.PublishDedupOtherKey, 1,
		"The same ID comes again with another ordering key: how often is it stored?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A key that is computed anew for a retry, after a deployment that changed the rule, opens the window."},
	{boundary.PublishDedupOtherTopic, 1,
		"The same ID comes again on another topic (a subject of the same stream where there are such): how many copies do the consumers of both get?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A retry that is routed elsewhere, as after a move to another topic, is another message where each topic has its own memory."},
	{boundary.PublishDedupLookalikeHeader, 1,
		"A user's header has the name of a vendor's dedup field: is it delivered as it is, and not taken for the ID?",
		answers(boundary.TakenForID, boundary.HeaderLost, boundary.Refused, boundary.Kept),
		"A bridge from another broker carries such headers along; taken for the ID they swallow messages."},
	{boundary.PublishIDLength, 1,
		"IDs of up to the contract's longest, 1,024 bytes: are they whole on delivery, told apart by their last byte, and still deduped?",
		answers(boundary.TakenForAnother, boundary.Mangled, boundary.Refused, boundary.KeptNotDeduped, boundary.KeptAndDeduped),
		"An ID that is cut to a field's length makes one message of two, and a dedup store behind it finds nothing."},
	{boundary.PublishIDCharset, 1,
		"IDs of spaces, control characters, unicode and broken UTF-8: are they whole on delivery, told apart, and still deduped?",
		answers(boundary.TakenForAnother, boundary.Mangled, boundary.Refused, boundary.KeptNotDeduped, boundary.KeptAndDeduped),
		"IDs come from business data; one that is trimmed, folded or escaped on the way is another ID."},

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

	{boundary.EffectCrashAfterEffect, 3,
		"A consumer is killed between its effect and its ack, and no store guards the effect: how often is it applied?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"No broker closes this hop; a marker committed with the effect does."},
	{boundary.EffectZombie, 3,
		"A consumer is stopped for longer than it may hold a message, then goes on, and no store guards the effect: how often is it applied?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"A fence on the ack comes too late for the effect; the effect's own store must refuse it."},
}
