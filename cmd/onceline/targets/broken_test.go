package targets_test

import (
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

// brokenPromise is the reference implementation with a promise switched off, and what a
// claim about that promise then answers.
type brokenPromise struct {
	name   string
	option memory.Option
	claim  boundary.Claim
	want   boundary.Answer
}

var brokenPromises = []brokenPromise{
	{"no dedup", memory.WithoutDedup(), boundary.PublishDedupScope, boundary.None},
	{"no dedup", memory.WithoutDedup(), boundary.PublishDedupVerdict, boundary.StoredAgain},
	{"no dedup", memory.WithoutDedup(), boundary.PublishDedupWindow, boundary.None},
	{"no dedup", memory.WithoutDedup(), boundary.PublishDedupConcurrent, boundary.Twice},
	{"no dedup", memory.WithoutDedup(), boundary.PublishDedupLostResponse, boundary.Twice},
	{"dedup by key", memory.WithoutDedupAcrossKeys(), boundary.PublishDedupScope, boundary.Key},
	{"dedup by publisher", memory.WithoutDedupAcrossPublishers(), boundary.PublishDedupNewProducer, boundary.Twice},
	{"dedup by publisher", memory.WithoutDedupAcrossPublishers(), boundary.PublishDedupConcurrent, boundary.Twice},
	{"dedup of what is queued", memory.WithoutDedupAfterAck(), boundary.PublishDedupAfterConsume, boundary.Twice},
	{"IDs forgotten in a restart", memory.WithoutDedupAfterRestart(), boundary.PublishDedupBrokerRestart, boundary.Twice},
	{"dedup by body", memory.WithDedupOnBody(), boundary.PublishDedupContent, boundary.Dropped},
	{"another body stored", memory.WithOtherBodyStored(), boundary.PublishDedupBody, boundary.BothStored},
	{"another body refused", memory.WithOtherBodyRefused(), boundary.PublishDedupBody, boundary.Refused},
	{"window halved", memory.WithWindowHalved(), boundary.PublishDedupWindow, boundary.Shorter},
	{"window doubled", memory.WithWindowDoubled(), boundary.PublishDedupWindow, boundary.Longer},
	{"no verdict", memory.WithoutDedupVerdict(), boundary.PublishDedupVerdict, boundary.Accepted},
	{"no position", memory.WithoutDuplicatePosition(), boundary.PublishDedupVerdict, boundary.Duplicate},
	{"duplicates called stored", memory.WithDuplicatesCalledStored(), boundary.PublishDedupVerdict, boundary.Accepted},
	{"no dedup", memory.WithoutDedup(), boundary.PublishDedupWindowAnchor, boundary.None},
	{"window prolonged", memory.WithWindowRefreshed(), boundary.PublishDedupWindowAnchor, boundary.LastSighting},
	{"dedup by publisher", memory.WithoutDedupAcrossPublishers(), boundary.PublishDedupTwoProducers, boundary.Twice},
	{"dedup between publishes alone", memory.WithoutDedupWithinBatch(), boundary.PublishDedupWithinBatch, boundary.Twice},
	{"dedup by key", memory.WithoutDedupAcrossKeys(), boundary.PublishDedupOtherKey, boundary.Twice},
	{"dedup over all topics", memory.WithDedupAcrossTopics(), boundary.PublishDedupOtherTopic, boundary.Once},
	{"IDs purged too", memory.WithoutDedupAfterPurge(), boundary.PublishDedupAfterPurge, boundary.Twice},
	{"no dedup", memory.WithoutDedup(), boundary.PublishIDLength, boundary.KeptNotDeduped},
	{"no dedup", memory.WithoutDedup(), boundary.PublishIDCharset, boundary.KeptNotDeduped},
	{"a batch refused whole", memory.WithoutBatchPartial(), boundary.PublishBatchPartial, boundary.BatchLost},
	{"a failure smeared", memory.WithoutBatchReceipts(), boundary.PublishBatchPartial, boundary.Smeared},
	{"an ack before it is safe", memory.WithoutDurableAck(), boundary.PublishAckDurable, boundary.Lost},
	{"an ID without its message", memory.WithoutLostResponseStored(), boundary.PublishDedupLostResponse, boundary.Lost},
	{"an ID without its message", memory.WithoutLostResponseStored(), boundary.PublishDedupNewProducer, boundary.Lost},
	{"a batch refused whole", memory.WithoutBatchPartial(), boundary.PublishBatchAtomic, boundary.AllOrNone},
	{"nothing before a subscription", memory.WithoutBacklog(), boundary.PublishUnroutable, boundary.Lost},
	{"no limits told", memory.WithoutLimits(), boundary.PublishOversize, boundary.RefusedByBroker},
	{"topics made by asking", memory.WithTopicsCreated(), boundary.PublishMissingEntity, boundary.Created},
	{"no lease ends", memory.WithoutLeaseExpiry(), boundary.DeliverRedeliverExpiry, boundary.Never},
	{"no lease ends", memory.WithoutLeaseExpiry(), boundary.DeliverRedeliverCrash, boundary.Never},
	{"late leases", memory.WithLateLeaseExpiry(), boundary.DeliverRedeliverExpiry, boundary.Late},
	{"late leases", memory.WithLateLeaseExpiry(), boundary.DeliverRedeliverCrash, boundary.Late},
	{"no delay", memory.WithoutNackDelay(), boundary.DeliverRedeliverNackDelay, boundary.Ignored},
	{"half a delay", memory.WithNackDelayHalved(), boundary.DeliverRedeliverNackDelay, boundary.Early},
	{"a wrong count", memory.WithoutAttemptCount(), boundary.DeliverAttempt, boundary.Wrong},
	{"no count", memory.WithoutAttempts(), boundary.DeliverAttempt, boundary.None},
	{"no order", memory.WithoutKeyOrder(), boundary.DeliverOrderKey, boundary.None},
	{"order until a nack", memory.WithoutKeyOrderOverRedelivery(), boundary.DeliverOrderKey, boundary.UntilNack},
	{"poison dropped", memory.WithoutDeadLetter(), boundary.DeliverDeadLetter, boundary.Dropped},
	{"a cancel strands", memory.WithoutCancelGiveBack(), boundary.DeliverCancel, boundary.Stranded},
	{"no broker's fence", memory.WithoutFencing(), boundary.VendorSettleStale, boundary.TakesEffect},
	{"acks that don't last", memory.WithoutFinalSettle(), boundary.SettleFinal, boundary.Redelivered},
	{"ack before delivery", memory.WithAckOnDelivery(), boundary.DeliverRedeliverCrash, boundary.Never},
	{"ack before delivery", memory.WithAckOnDelivery(), boundary.DeliverRedeliverExpiry, boundary.Never},
	{"acks unanswered", memory.WithoutSettleAnswer(), boundary.SettleAnswer, boundary.Sent},
	{"acks unanswered for ever", memory.WithSettleAnswersLost(), boundary.SettleAnswer, boundary.None},
	{"a lost answer can't be asked for", memory.WithoutSettleMemory(), boundary.SettleLostResponse, boundary.StaysUnknown},
	{"a lost answer called a lost lease", memory.WithoutLostSettleUnknown(), boundary.SettleLostResponse, boundary.ClaimedLost},
	{"ack before delivery", memory.WithAckOnDelivery(), boundary.EffectCrashBefore, boundary.Lost},
	{"ack before delivery", memory.WithAckOnDelivery(), boundary.EffectInboxCrashBefore, boundary.Lost},
	{"a shorter lease by default", memory.WithLease(10 * time.Second), boundary.DeliverLeaseDefault, boundary.TenSeconds},
	{"an odd lease by default", memory.WithLease(20 * time.Second), boundary.DeliverLeaseDefault, boundary.Other},
	{"late leases", memory.WithLateLeaseExpiry(), boundary.DeliverLeaseAccuracy, boundary.Understated},
	{"no lease ends", memory.WithoutLeaseExpiry(), boundary.DeliverLeaseAccuracy, boundary.Understated},
	{"an Extend of nothing", memory.WithoutExtend(), boundary.DeliverLeaseExtend, boundary.Ignored},
	{"an Extend of nothing", memory.WithoutExtend(), boundary.DeliverLeaseMax, boundary.FirstLease},
	{"late leases", memory.WithLateLeaseExpiry(), boundary.DeliverLeaseExtend, boundary.Late},
	{"ack before delivery", memory.WithAckOnDelivery(), boundary.DeliverRedeliverNack, boundary.Never},
	{"the newest first", memory.WithoutKeyOrder(), boundary.DeliverRedeliverNack, boundary.AtOnce},
	{"acks that don't last", memory.WithoutFinalSettle(), boundary.DeliverRedeliverAfterAck, boundary.Redelivered},
	{"a wrong count", memory.WithoutAttemptCount(), boundary.DeliverRedeliveredFlag, boundary.FalseFirst},
	{"no count", memory.WithoutAttempts(), boundary.DeliverRedeliveredFlag, boundary.None},
	{"acks unanswered", memory.WithoutSettleAnswer(), boundary.SettleReack, boundary.Sent},
	{"acks unanswered for ever", memory.WithSettleAnswersLost(), boundary.SettleReack, boundary.StaysUnknown},
	{"a late answer can't be asked for", memory.WithoutSettleMemory(), boundary.SettleCancel, boundary.StaysUnknown},
	{"acks that don't last", memory.WithoutFinalSettle(), boundary.SettleDurable, boundary.Redelivered},
	{"acks that don't last", memory.WithoutFinalSettle(), boundary.SettleBatchPartial, boundary.ClaimedDone},
	{"acks that don't last", memory.WithoutFinalSettle(), boundary.SettleLostRequest, boundary.ClaimedDone},
	{"handles outlive a cut", memory.WithHandlesAcrossCuts(), boundary.SettleAfterReconnect, boundary.TakesEffect},
	{"no broker's fence", memory.WithoutFencing(), boundary.VendorSettleForeign, boundary.TakenUnnoticed},
	{"no fence at all", unfenced, boundary.SettleStale, boundary.TakesEffect},
	{"no fence at all", unfenced, boundary.SettleForeign, boundary.TakenUnnoticed},
	{"no fence at all", unfenced, boundary.SettleStaleBeforeRedelivery, boundary.TakesEffect},
	{"no fence at all", unfenced, boundary.SettleNackStale, boundary.TakesEffect},
	{"no fence at all", unfenced, boundary.SettleExtendStale, boundary.ClaimedDone},
	{"no fence at all", unfenced, boundary.FenceZombie, boundary.TakesEffect},

	{"no order", memory.WithoutKeyOrder(), boundary.DeliverOrderRedelivery, boundary.None},
	{"order until a nack", memory.WithoutKeyOrderOverRedelivery(), boundary.DeliverOrderRedelivery, boundary.Overtaken},
	{"order until a lease ends", memory.WithoutKeyOrderOverExpiry(), boundary.DeliverOrderRedelivery, boundary.UntilExpiry},
	{"nothing waits", memory.WithoutKeyOrderOverRedelivery(), boundary.DeliverOrderHeadOfLine, boundary.NoneWaits},
	{"poison dropped", memory.WithoutDeadLetter(), boundary.DeliverDeadLetterAfterMax, boundary.Dropped},
	{"crashes uncounted", memory.WithoutExpiryCounted(), boundary.DeliverDeadLetterAfterMax, boundary.KeepsComing},
	{"no dead letter", memory.WithoutDeadLetter(), boundary.DeliverDeadLetterReason, boundary.Lost},
	{"no reason", memory.WithoutDeadLetterReason(), boundary.DeliverDeadLetterReason, boundary.Lost},
	{"no count in a dead letter", memory.WithoutDeadLetterAttempts(), boundary.DeliverDeadLetterAttempts, boundary.NoAttempts},
	{"a close strands", memory.WithoutCloseGiveBack(), boundary.DeliverClose, boundary.AfterLease},
	{"fetched ahead", memory.WithPrefetch(), boundary.DeliverPrefetch, boundary.Hoarded},
	{"no lease ends", memory.WithoutLeaseExpiry(), boundary.DeliverRedeliverReconnect, boundary.Never},
	{"late leases", memory.WithLateLeaseExpiry(), boundary.DeliverRedeliverReconnect, boundary.Late},
	{"no dedup", memory.WithoutDedup(), boundary.DeliverExactlyOnce, boundary.Duplicates},
	{"an ID without its message", memory.WithoutLostResponseStored(), boundary.DeliverExactlyOnce, boundary.Lost},
	{"ack before delivery", memory.WithAckOnDelivery(), boundary.EffectCrashAfterEffect, boundary.Once},
	{"acks that don't last", memory.WithoutFinalSettle(), boundary.EffectCrashAfterAck, boundary.Twice},
	{"no lease ends", memory.WithoutLeaseExpiry(), boundary.EffectZombie, boundary.Once},
}

// TestEachBrokenPromiseIsSeen: the reference implementation with one promise
// switched off gives another answer to the claim about that promise, and the
// right one.
func TestEachBrokenPromiseIsSeen(t *testing.T) {
	t.Parallel()
	for _, c := range brokenPromises {
		t.Run(c.name+"/"+string(c.claim), func(t *testing.T) {
			t.Parallel()
			r, err := conformance.Run(t.Context(), targets.Memory(c.option), conformance.Options{Claims: []string{string(c.claim)}, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Targets[0].Findings {
				if f.Observed != string(c.want) || !f.Verdict.Fails() {
					t.Errorf("%s: %s, %q: %s; want %q", f.Claim, f.Verdict, f.Observed, f.Reason, c.want)
				}
			}
		})
	}
}

// unfenced is the reference implementation with neither fence: the broker takes a
// stale settle, and no delivery says when it is stale.
func unfenced(b *memory.Broker) {
	memory.WithoutFencing()(b)
	memory.WithoutLeaseTold()(b)
}

// TestAKeptPoisonMessageIsSeen: a message that is parked is found by nobody who
// looks where it should be.
func TestAKeptPoisonMessageIsSeen(t *testing.T) {
	t.Parallel()
	r, err := conformance.Run(t.Context(), targets.Memory(memory.WithDeadLetterKept()), conformance.Options{Claims: []string{string(boundary.DeliverDeadLetter)}})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Targets[0].Findings[0]; !f.Verdict.Fails() {
		t.Errorf("%s: %s", f.Verdict, f.Reason)
	}
}
