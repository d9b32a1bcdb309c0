// Package boundary is the vocabulary in which a broker's guarantees are
// written down: claims, and for each the answer that an adapter declares and
// the one that the vendor documents, with its source.
//
// It imports nothing of this module, so that adapters can declare a boundary
// without the conformance suite that checks it.
package boundary

import (
	"maps"
	"slices"
)

// Claim is the ID of one question about a boundary. The questions themselves,
// with their closed answers, are in package conformance.
type Claim string

// The claims of hop 1, producer to broker.
const (
	PublishAckDurable         Claim = "publish.ack.durable"
	PublishBatchPartial       Claim = "publish.batch.partial"
	PublishDedupScope         Claim = "publish.dedup.scope"
	PublishDedupWindow        Claim = "publish.dedup.window"
	PublishDedupVerdict       Claim = "publish.dedup.verdict"
	PublishDedupBody          Claim = "publish.dedup.body"
	PublishDedupContent       Claim = "publish.dedup.content"
	PublishDedupLostResponse  Claim = "publish.dedup.lost-response"
	PublishDedupNewProducer   Claim = "publish.dedup.new-producer"
	PublishDedupBrokerRestart Claim = "publish.dedup.broker-restart"
	PublishDedupAfterConsume  Claim = "publish.dedup.after-consume"
	PublishDedupConcurrent    Claim = "publish.dedup.concurrent"
	PublishHalfOpen           Claim = "publish.half-open"

	PublishDedupWindowAnchor    Claim = "publish.dedup.window.anchor"
	PublishDedupLostRequest     Claim = "publish.dedup.lost-request"
	PublishDedupTwoProducers    Claim = "publish.dedup.two-producers"
	PublishDedupAfterPurge      Claim = "publish.dedup.after-purge"
	PublishDedupWithinBatch     Claim = "publish.dedup.within-batch"
	PublishDedupOtherKey        Claim = "publish.dedup.other-key"
	PublishDedupOtherTopic      Claim = "publish.dedup.other-topic"
	PublishDedupLookalikeHeader Claim = "publish.dedup.lookalike-header"
	PublishIDLength             Claim = "publish.id.length"
	PublishIDCharset            Claim = "publish.id.charset"

	PublishAckReplicated Claim = "publish.ack.replicated"
	PublishBatchAtomic   Claim = "publish.batch.atomic"
	PublishUnroutable    Claim = "publish.unroutable"
	PublishOversize      Claim = "publish.oversize"
	PublishMissingEntity Claim = "publish.missing-entity"
	PublishUnauthorized  Claim = "publish.unauthorized"
	PublishOrderKey      Claim = "publish.order.key"
	PublishCancel        Claim = "publish.cancel"
	PublishRetryHorizon  Claim = "publish.retry-horizon"
	PublishBackpressure  Claim = "publish.backpressure"
	PublishPartialRoute  Claim = "publish.partial-route"
	PublishScheduled     Claim = "publish.scheduled"
	PublishRegion        Claim = "publish.region"
)

// The claims of hop 2, broker to consumer.
const (
	DeliverRedeliverExpiry    Claim = "deliver.redeliver.expiry"
	DeliverRedeliverCrash     Claim = "deliver.redeliver.crash"
	DeliverRedeliverNackDelay Claim = "deliver.redeliver.nack-delay"
	DeliverAttempt            Claim = "deliver.attempt"
	DeliverOrderKey           Claim = "deliver.order.key"
	DeliverCancel             Claim = "deliver.cancel"
	DeliverDeadLetter         Claim = "deliver.deadletter"
	DeliverHalfOpen           Claim = "deliver.half-open"
	DeliverSlow               Claim = "deliver.slow"
	SettleHalfOpen            Claim = "settle.half-open"
	SettleAnswer              Claim = "settle.answer"
	SettleLostResponse        Claim = "settle.lost-response"
	SettleStale               Claim = "settle.stale"
	SettleFinal               Claim = "settle.final"
	VendorSettleStale         Claim = "vendor.settle.stale" // with the fence of package driver off

	DeliverLeaseDefault         Claim = "deliver.lease.default"
	DeliverLeaseAccuracy        Claim = "deliver.lease.accuracy"
	DeliverLeaseExtend          Claim = "deliver.lease.extend"
	DeliverLeaseMax             Claim = "deliver.lease.max"
	DeliverLeaseClock           Claim = "deliver.lease.clock"
	DeliverRedeliverNack        Claim = "deliver.redeliver.nack"
	DeliverRedeliverAfterAck    Claim = "deliver.redeliver.after-confirmed-ack"
	DeliverRedeliveredFlag      Claim = "deliver.redelivered.flag"
	DeliverPush                 Claim = "deliver.push"
	SettleReack                 Claim = "settle.reack"
	SettleDouble                Claim = "settle.double"
	SettleBatchPartial          Claim = "settle.batch.partial"
	SettleLostRequest           Claim = "settle.lost-request"
	SettleCancel                Claim = "settle.cancel"
	SettleAfterReconnect        Claim = "settle.after-reconnect"
	SettleStaleBeforeRedelivery Claim = "settle.stale-before-redelivery"
	SettleForeign               Claim = "settle.foreign"
	VendorSettleForeign         Claim = "vendor.settle.foreign" // with the fence of package driver off
	SettleNackStale             Claim = "settle.nack.stale"
	SettleExtendStale           Claim = "settle.extend.stale"
	SettleDurable               Claim = "settle.durable"
	FenceZombie                 Claim = "fence.zombie"
	FenceRebalance              Claim = "fence.rebalance"
)

// More claims of hop 2: order, dead letters, what a receiver holds, and what comes out.
const (
	DeliverOrderRedelivery    Claim = "deliver.order.redelivery"
	DeliverOrderHeadOfLine    Claim = "deliver.order.head-of-line"
	DeliverDeadLetterAfterMax Claim = "deliver.deadletter.after-max"
	DeliverDeadLetterReason   Claim = "deliver.deadletter.reason"
	DeliverDeadLetterAttempts Claim = "deliver.deadletter.attempts"
	DeliverClose              Claim = "deliver.close"
	DeliverPrefetch           Claim = "deliver.prefetch"
	DeliverBody               Claim = "deliver.body"
	DeliverRedeliverReconnect Claim = "deliver.redeliver.reconnect"
	DeliverExactlyOnce        Claim = "deliver.exactly-once"
)

// The claims of hop 3, consumer to effect.
const (
	EffectCrashAfterEffect Claim = "effect.crash-after-effect"
	EffectZombie           Claim = "effect.zombie"
	EffectCrashBefore      Claim = "effect.crash-before"
	EffectCrashAfterAck    Claim = "effect.crash-after-ack"
	EffectReplay           Claim = "effect.replay"
	EffectCommitUnknown    Claim = "effect.commit-unknown"
	EffectRewind           Claim = "effect.rewind"
)

// Answer is one of a claim's closed answers.
type Answer string

// NotApplicable is what an adapter declares where a claim asks for something that
// its broker's protocol doesn't have, such as the answer to an ack. The entry's
// Note says what is missing.
const NotApplicable Answer = "not-applicable"

// The answers. Which of them a claim admits, and in which order from weak to
// strong, package conformance says.
const (
	None           Answer = "none"
	Lost           Answer = "lost"
	Kept           Answer = "kept"
	Key            Answer = "key"
	Topic          Answer = "topic"
	Stream         Answer = "stream"
	Shorter        Answer = "shorter"
	AsConfigured   Answer = "as-configured"
	Longer         Answer = "longer"
	StoredAgain    Answer = "stored-again"
	Accepted       Answer = "accepted"
	Duplicate      Answer = "duplicate"
	DuplicateAt    Answer = "duplicate-with-position"
	BothStored     Answer = "both-stored"
	FirstKept      Answer = "first-kept"
	Refused        Answer = "refused"
	Dropped        Answer = "dropped"
	Once           Answer = "once"
	Twice          Answer = "twice"
	BatchLost      Answer = "batch-lost"
	Smeared        Answer = "smeared"
	Exact          Answer = "exact"
	NoLease        Answer = "no-lease"
	Never          Answer = "never"
	Late           Answer = "late"
	Early          Answer = "early"
	AfterSession   Answer = "after-session"
	AfterLease     Answer = "after-lease"
	AtOnce         Answer = "at-once"
	Unsupported    Answer = "unsupported"
	Ignored        Answer = "ignored"
	Honoured       Answer = "honoured"
	Wrong          Answer = "wrong"
	PerReceiver    Answer = "per-receiver"
	Approximate    Answer = "approximate"
	UntilNack      Answer = "until-redelivery"
	OverNack       Answer = "over-redelivery"
	Stranded       Answer = "stranded"
	GivenBack      Answer = "given-back"
	KeptApart      Answer = "kept-undelivered"
	Moved          Answer = "moved"
	Sent           Answer = "sent"
	PendingFirst   Answer = "pending-then-confirmed"
	InOrder        Answer = "confirmed-in-order"
	Confirmed      Answer = "confirmed"
	ClaimedDone    Answer = "claimed-confirmed"
	ClaimedLost    Answer = "claimed-lost"
	StaysUnknown   Answer = "stays-unknown"
	ConfirmedAgain Answer = "confirmed-on-asking"
	TakesEffect    Answer = "takes-effect"
	Redelivered    Answer = "redelivered"
	Final          Answer = "final"
	Stuck          Answer = "stuck"
	Guessed        Answer = "guessed"
	SaysUnknown    Answer = "unknown"
	Recovers       Answer = "recovers"

	// Of leases and redelivery.
	Other          Answer = "other"
	TenSeconds     Answer = "10s"
	HalfMinute     Answer = "30s"
	OneMinute      Answer = "1m"
	HalfHour       Answer = "30m"
	HalfDay        Answer = "12h"
	FirstLease     Answer = "first-lease"
	NoLimit        Answer = "no-limit"
	Overstated     Answer = "overstated"
	Understated    Answer = "understated"
	FromHandOver   Answer = "from-hand-over"
	FromArrival    Answer = "from-arrival"
	SameReceiver   Answer = "same-receiver"
	Behind         Answer = "at-once-behind"
	FalseFirst     Answer = "false-first"
	FalseAgain     Answer = "false-redelivery"
	OverConnection Answer = "over-connection"
	ToEndpoint     Answer = "to-endpoint"
	TakenUnnoticed Answer = "taken-unnoticed"
	TakenTold      Answer = "taken-and-told"

	FirstSighting   Answer = "first-sighting"
	LastSighting    Answer = "last-sighting"
	TakenForID      Answer = "taken-for-the-id"
	HeaderLost      Answer = "header-lost"
	TakenForAnother Answer = "taken-for-another"
	Mangled         Answer = "mangled"
	KeptNotDeduped  Answer = "kept-and-stored-again"
	KeptAndDeduped  Answer = "kept-and-deduped"

	OneNode          Answer = "one-node"
	InPart           Answer = "in-part"
	AllOrNone        Answer = "all-or-none"
	HarmsOthers      Answer = "harms-others"
	RefusedOtherwise Answer = "refused-otherwise"
	RefusedByBroker  Answer = "refused-by-broker"
	RefusedUnsent    Answer = "refused-unsent"
	Created          Answer = "created"
	Hangs            Answer = "hangs"
	LetIn            Answer = "let-in"
	UntilFailure     Answer = "until-failure"
	OverFailure      Answer = "over-failure"
	ClaimedStored    Answer = "claimed-stored"
	ClaimedRefused   Answer = "claimed-refused"
	NotRetried       Answer = "not-retried"
	WindowExceeded   Answer = "window-exceeded"
	Waits            Answer = "waits"
	PushedBack       Answer = "pushed-back"
	LeftOut          Answer = "left-out"
	UnknownStored    Answer = "unknown-and-stored"
	UnknownNowhere   Answer = "unknown-and-nowhere"
	DelayOnly        Answer = "delay-only"
	Scheduled        Answer = "scheduled"
	OneRegion        Answer = "within-a-region"
	AllRegions       Answer = "all-regions"
)

// The answers of the claims of hop 2 about order, dead letters, what a receiver holds,
// and what comes out.
const (
	Overtaken   Answer = "overtaken"
	UntilExpiry Answer = "until-expiry"
	NoneWaits   Answer = "none-waits"
	AllWait     Answer = "all-wait"
	KeyWaits    Answer = "key-waits"
	KeepsComing Answer = "keeps-coming"
	Changed     Answer = "changed"
	NoAttempts  Answer = "without-attempts"
	Hoarded     Answer = "hoarded"
	Duplicates  Answer = "duplicates"
)

// Entry is what is known of one claim before anything is measured.
type Entry struct {
	Declared   Answer   // by the adapter, for the real broker in the configuration that Boundary.Of names
	Documented Answer   // by the vendor; empty where the vendor is silent
	Sources    []string // fact IDs of docs/facts.md
	Note       string   // what an application should know beside the answer; may be empty
}

// Boundary is where one broker's guarantees end.
type Boundary struct {
	Broker  string // "nats"
	Of      string // version and configuration: "NATS JetStream 2.15, file storage, one replica"
	Entries map[Claim]Entry
	Limits  map[LimitName]Limit `json:",omitempty"` // what it takes
	Earlier []Earlier           `json:",omitempty"` // what differs in older releases; [Boundary.At] applies it
}

// Claims returns the claims that the boundary has an entry for, sorted.
func (b Boundary) Claims() []Claim { return slices.Sorted(maps.Keys(b.Entries)) }
