package conformance

import (
	"context"
	"slices"

	"github.com/onceline/onceline/broker/boundary"
)

// Probe is an experiment that answers one or more claims.
type Probe struct {
	Name   string
	Claims []boundary.Claim
	Needs  Need
	Run    func(ctx context.Context, b *Bench) error
}

// Need is what a probe asks of an instance.
type Need uint8

// The needs; they are added up.
const (
	NeedFault   Need = 1 << iota // Instance.Inject: requests are struck one by one
	NeedCut                      // Instance.Inject, or else Instance.Cut on an instance of its own
	NeedLoss                     // Instance.Inject, or else Cut and Network on an instance of its own
	NeedRestart                  // Instance.Restart, on an instance of its own
	NeedKill                     // Instance.Kill, on an instance of its own
	NeedNetwork                  // Instance.Network, on an instance of its own
	NeedLeader                   // Instance.KillLeader, when nobody else is at work
	NeedQuiet                    // it loads the broker: alone, where a server is shared by all
)

func (n Need) has(o Need) bool { return n&o != 0 }

// own reports whether the probe does what other probes on i would notice.
func (n Need) own(i *Instance) bool {
	return n.has(NeedRestart|NeedKill|NeedNetwork|NeedLeader) || n.has(NeedCut|NeedLoss) && i.Inject == nil
}

// meets are the needs of which a meeting of probes is, in the order in which they are
// met.
var meets = []Need{NeedRestart, NeedKill}

// meets is the one of those that is all by which the probe disturbs others; 0 if there
// is more, or nothing.
func (n Need) meets() Need {
	for _, one := range meets {
		if n&^NeedFault == one {
			return one
		}
	}
	return 0
}

// Probes returns all probes. Those that wait longest come first, so that a run
// of several at a time ends soonest.
func Probes() []Probe {
	return append(append(txnProbes(), checkpointProbes()...), []Probe{
		{"zombie", effectClaims(zombied), 0, probeZombie},
		{"exactly-once", claims(boundary.DeliverExactlyOnce), NeedFault | NeedQuiet, probeExactlyOnce},
		{"crash", claims(boundary.DeliverRedeliverCrash, boundary.EffectCrashAfterEffect), 0, probeCrash},
		{"final", claims(boundary.SettleFinal, boundary.DeliverRedeliverAfterAck), NeedRestart, probeFinal},
		{"zombie-settle", claims(boundary.FenceZombie, boundary.SettleNackStale, boundary.SettleExtendStale), 0, probeZombieSettle},
		{"before-redelivery", claims(boundary.SettleStaleBeforeRedelivery), 0, probeBeforeRedelivery},
		{"rebalance", claims(boundary.FenceRebalance), 0, probeRebalance},
		{"settle-durable", claims(boundary.SettleDurable), NeedKill, probeSettleDurable},
		{"settle-on-its-way", claims(boundary.SettleLostRequest, boundary.SettleCancel), NeedFault, probeSettleOnItsWay},
		{"after-reconnect", claims(boundary.SettleAfterReconnect), NeedCut, probeAfterReconnect},
		{"settle-again", claims(boundary.SettleReack, boundary.SettleDouble, boundary.SettleBatchPartial), 0, probeSettleAgain},
		{"stale", claims(boundary.SettleStale, boundary.SettleForeign), 0, probeStale},
		{"vendor-stale", claims(boundary.VendorSettleStale, boundary.VendorSettleForeign), 0, probeVendorStale},
		{"durable", claims(boundary.PublishAckDurable), NeedKill, probeDurable},
		{"broker-restart", claims(boundary.PublishDedupBrokerRestart), NeedRestart, probeBrokerRestart},
		{"network", claims(boundary.DeliverSlow, boundary.PublishHalfOpen, boundary.DeliverHalfOpen, boundary.SettleHalfOpen), NeedNetwork, probeNetwork},
		{"window", claims(boundary.PublishDedupWindow), 0, probeWindow},
		{"expiry", claims(boundary.DeliverRedeliverExpiry), 0, probeExpiry},
		{"settle-lost-response", claims(boundary.SettleLostResponse), NeedFault, probeSettleLostResponse},
		{"partial-route", claims(boundary.PublishPartialRoute), 0, probePartialRoute},
		{"cancel", claims(boundary.DeliverCancel), 0, probeCancel},
		{"nack-delay", claims(boundary.DeliverRedeliverNackDelay), 0, probeNackDelay},
		{"attempt", claims(boundary.DeliverAttempt), 0, probeAttempt},
		{"dead-letter", claims(boundary.DeliverDeadLetter), 0, probeDeadLetter},
		{"order", claims(boundary.DeliverOrderKey), 0, probeOrder},
		{"effect-crash", append(slices.Concat(effectClaims(crashBefore), storeClaims(crashAfter)), boundary.EffectCrashAfterAck), 0, probeEffectCrash},
		{"settle-answer", claims(boundary.SettleAnswer), 0, probeSettleAnswer},
		{"lost-response", claims(boundary.PublishDedupLostResponse), NeedFault, probeLostResponse},
		{"new-producer", claims(boundary.PublishDedupNewProducer), NeedFault, probeNewProducer},
		{"after-consume", claims(boundary.PublishDedupAfterConsume), 0, probeAfterConsume},
		{"concurrent", claims(boundary.PublishDedupConcurrent), 0, probeConcurrent},
		{"batch", claims(boundary.PublishBatchPartial, boundary.PublishBatchAtomic), 0, probeBatch},
		{"scope", claims(boundary.PublishDedupScope), 0, probeScope},
		{"window-anchor", claims(boundary.PublishDedupWindowAnchor), 0, probeWindowAnchor},
		{"lost-request", claims(boundary.PublishDedupLostRequest), NeedLoss, probeLostRequest},
		{"after-purge", claims(boundary.PublishDedupAfterPurge), 0, probeAfterPurge},
		{"ways", claims(boundary.PublishDedupTwoProducers, boundary.PublishDedupWithinBatch, boundary.PublishDedupOtherKey), 0, probeWays},
		{"other-topic", claims(boundary.PublishDedupOtherTopic), 0, probeOtherTopic},
		{"ids", claims(boundary.PublishIDLength, boundary.PublishIDCharset, boundary.PublishDedupLookalikeHeader), 0, probeIDs},
		{"after-max", claims(boundary.DeliverDeadLetterAfterMax), 0, probeAfterMax},
		{"reconnect", claims(boundary.DeliverRedeliverReconnect), NeedCut, probeReconnect},
		{"order-redelivery", claims(boundary.DeliverOrderRedelivery), 0, probeOrderRedelivery},
		{"head-of-line", claims(boundary.DeliverOrderHeadOfLine), 0, probeHeadOfLine},
		{"dead-letter-content", claims(boundary.DeliverDeadLetterReason, boundary.DeliverDeadLetterAttempts), 0, probeLetter},
		{"close", claims(boundary.DeliverClose), 0, probeClose},
		{"prefetch", claims(boundary.DeliverPrefetch), 0, probePrefetch},
		{"body", claims(boundary.DeliverBody), 0, probeBody},
		{"verdict", claims(boundary.PublishDedupVerdict, boundary.PublishDedupBody, boundary.PublishDedupContent), 0, probeVerdict},
		{"replay", slices.Concat(effectClaims(replayed), effectClaims(commitUnknown), effectClaims(rewound)), 0, probeReplay},
		{"redelivered", claims(boundary.DeliverRedeliveredFlag), 0, probeRedelivered},
		{"lease", claims(boundary.DeliverLeaseAccuracy, boundary.DeliverLeaseClock), 0, probeLease},
		{"extend", claims(boundary.DeliverLeaseExtend), 0, probeExtend},
		{"lease-default", claims(boundary.DeliverLeaseDefault), 0, probeLeaseDefault},
		{"lease-max", claims(boundary.DeliverLeaseMax), 0, probeLeaseMax},
		{"nack", claims(boundary.DeliverRedeliverNack), 0, probeNack},
		{"push", claims(boundary.DeliverPush), 0, probePush},
		{"replicated", claims(boundary.PublishAckReplicated), NeedLeader, probeReplicated},
		{"retry-horizon", claims(boundary.PublishRetryHorizon), 0, probeRetryHorizon},
		{"publish-order", claims(boundary.PublishOrderKey), NeedFault, probePublishOrder},
		{"publish-cancel", claims(boundary.PublishCancel), NeedFault, probePublishCancel},
		{"backpressure", claims(boundary.PublishBackpressure), 0, probeBackpressure},
		{"unroutable", claims(boundary.PublishUnroutable), 0, probeUnroutable},
		{"oversize", claims(boundary.PublishOversize), NeedFault, probeOversize},
		{"missing-entity", claims(boundary.PublishMissingEntity), 0, probeMissingEntity},
		{"unauthorized", claims(boundary.PublishUnauthorized), 0, probeUnauthorized},
		{"documented", claims(boundary.PublishScheduled, boundary.PublishRegion), 0, probeDocumented},
	}...)
}

func claims(ids ...boundary.Claim) []boundary.Claim { return ids }
