package conformance

import (
	"context"

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
	NeedFault   Need = 1 << iota // Instance.Inject
	NeedRestart                  // Instance.Restart, on an instance of its own
	NeedKill                     // Instance.Kill, on an instance of its own
	NeedQuiet                    // it loads the broker: alone, where a server is shared by all
)

func (n Need) has(o Need) bool { return n&o != 0 }

// own reports whether the probe does what other probes would notice.
func (n Need) own() bool { return n.has(NeedRestart | NeedKill) }

// Probes returns all probes. Those that wait longest come first, so that a run
// of several at a time ends soonest.
func Probes() []Probe {
	return []Probe{
		{"exactly-once", claims(boundary.DeliverExactlyOnce), NeedFault | NeedQuiet, probeExactlyOnce},
		{"zombie", claims(boundary.EffectZombie), 0, probeZombie},
		{"crash", claims(boundary.DeliverRedeliverCrash, boundary.EffectCrashAfterEffect), 0, probeCrash},
		{"final", claims(boundary.SettleFinal), NeedRestart, probeFinal},
		{"stale", claims(boundary.SettleStale), 0, probeStale},
		{"vendor-stale", claims(boundary.VendorSettleStale), 0, probeVendorStale},
		{"durable", claims(boundary.PublishAckDurable), NeedKill, probeDurable},
		{"broker-restart", claims(boundary.PublishDedupBrokerRestart), NeedRestart, probeBrokerRestart},
		{"window", claims(boundary.PublishDedupWindow), 0, probeWindow},
		{"expiry", claims(boundary.DeliverRedeliverExpiry), 0, probeExpiry},
		{"settle-lost-response", claims(boundary.SettleLostResponse), NeedFault, probeSettleLostResponse},
		{"cancel", claims(boundary.DeliverCancel), 0, probeCancel},
		{"nack-delay", claims(boundary.DeliverRedeliverNackDelay), 0, probeNackDelay},
		{"attempt", claims(boundary.DeliverAttempt), 0, probeAttempt},
		{"dead-letter", claims(boundary.DeliverDeadLetter), 0, probeDeadLetter},
		{"order", claims(boundary.DeliverOrderKey), 0, probeOrder},
		{"settle-answer", claims(boundary.SettleAnswer), 0, probeSettleAnswer},
		{"lost-response", claims(boundary.PublishDedupLostResponse), NeedFault, probeLostResponse},
		{"new-producer", claims(boundary.PublishDedupNewProducer), NeedFault, probeNewProducer},
		{"after-consume", claims(boundary.PublishDedupAfterConsume), 0, probeAfterConsume},
		{"concurrent", claims(boundary.PublishDedupConcurrent), 0, probeConcurrent},
		{"batch", claims(boundary.PublishBatchPartial), 0, probeBatch},
		{"scope", claims(boundary.PublishDedupScope), 0, probeScope},
		{"after-max", claims(boundary.DeliverDeadLetterAfterMax), 0, probeAfterMax},
		{"reconnect", claims(boundary.DeliverRedeliverReconnect), NeedFault, probeReconnect},
		{"order-redelivery", claims(boundary.DeliverOrderRedelivery), 0, probeOrderRedelivery},
		{"head-of-line", claims(boundary.DeliverOrderHeadOfLine), 0, probeHeadOfLine},
		{"dead-letter-content", claims(boundary.DeliverDeadLetterReason, boundary.DeliverDeadLetterAttempts), 0, probeLetter},
		{"close", claims(boundary.DeliverClose), 0, probeClose},
		{"prefetch", claims(boundary.DeliverPrefetch), 0, probePrefetch},
		{"body", claims(boundary.DeliverBody), 0, probeBody},
		{"verdict", claims(boundary.PublishDedupVerdict, boundary.PublishDedupBody, boundary.PublishDedupContent), 0, probeVerdict},
	}
}

func claims(ids ...boundary.Claim) []boundary.Claim { return ids }
