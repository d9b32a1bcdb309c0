package boundary

import "slices"

// The claims of hop 3 behind a store that guards the effect. What the stores are is in
// package dedup.
const (
	EffectInboxCrashBefore         Claim = "effect.inbox.crash-before"
	EffectInboxCrashAfterEffect    Claim = "effect.inbox.crash-after-effect"
	EffectInboxZombie              Claim = "effect.inbox.zombie"
	EffectInboxReplay              Claim = "effect.inbox.replay"
	EffectInboxCommitUnknown       Claim = "effect.inbox.commit-unknown"
	EffectInboxRewind              Claim = "effect.inbox.rewind"
	EffectPositionCrashBefore      Claim = "effect.position.crash-before"
	EffectPositionCrashAfterEffect Claim = "effect.position.crash-after-effect"
	EffectPositionZombie           Claim = "effect.position.zombie"
	EffectPositionReplay           Claim = "effect.position.replay"
	EffectPositionCommitUnknown    Claim = "effect.position.commit-unknown"
	EffectPositionRewind           Claim = "effect.position.rewind"
	EffectLeaseCrashBefore         Claim = "effect.lease.crash-before"
	EffectLeaseCrashAfterEffect    Claim = "effect.lease.crash-after-effect"
	EffectLeaseZombie              Claim = "effect.lease.zombie"
	EffectLeaseReplay              Claim = "effect.lease.replay"
	EffectLeaseCommitUnknown       Claim = "effect.lease.commit-unknown"
	EffectLeaseFencedZombie        Claim = "effect.lease.fenced.zombie"
	EffectCallCrashBefore          Claim = "effect.call.crash-before"
	EffectCallCrashAfterEffect     Claim = "effect.call.crash-after-effect"
	EffectCallZombie               Claim = "effect.call.zombie"
	EffectCallReplay               Claim = "effect.call.replay"
	EffectCallCommitUnknown        Claim = "effect.call.commit-unknown"
	EffectCallKeyedCrashBefore     Claim = "effect.call.keyed.crash-before"
)

// Guarded adds to entries what an adapter declares of effects behind a store. The
// answers are the stores' own: they hold on each broker that brings a message again
// until it is acked, which sources are about. Owned says that one consumer at a time
// owns a sequence of messages with comparable positions and gets them in order, without
// which a stored position isn't applicable.
func Guarded(entries map[Claim]Entry, owned bool, sources ...string) map[Claim]Entry {
	for claim, e := range guarded {
		e.Sources = append(slices.Clone(sources), e.Sources...)
		entries[claim] = e
	}
	for claim, e := range positioned {
		if !owned {
			e = Entry{Declared: NotApplicable, Note: unowned}
			if claim == EffectInboxRewind {
				e.Note = "There is no log to go back in."
			}
		}
		e.Sources = append(slices.Clone(sources), e.Sources...)
		entries[claim] = e
	}
	return entries
}

const unowned = "No consumer owns a sequence of messages here. One that comes again behind a later one would be below the stored position, and its effect never be applied: use an inbox."

var guarded = map[Claim]Entry{
	EffectInboxCrashBefore: {Declared: Once, Sources: []string{"PG-F-01"},
		Note: "The marker goes with the transaction that the crash ended. A marker in a transaction of its own would stay and the effect never be applied."},
	EffectInboxCrashAfterEffect: {Declared: Once, Sources: []string{"PG-F-01"},
		Note: "Keep the marker as long as copies may come: onceline size."},
	EffectInboxZombie: {Declared: Once, Sources: []string{"PG-F-01"},
		Note: "What the zombie does outside of its transaction it does twice."},
	EffectInboxReplay: {Declared: Once,
		Note: "As long as the copy keeps the message's ID and comes within the window of the markers."},
	EffectInboxCommitUnknown: {Declared: Once, Sources: []string{"PG-F-17"},
		Note: "The inbox asks again, and finds the marker if the commit took place. Never dead-letter a message for it."},

	EffectLeaseCrashBefore: {Declared: Once,
		Note: "The message waits until the lease of the one that crashed has ended."},
	EffectLeaseCrashAfterEffect: {Declared: Twice, Sources: []string{"RED-F-06"},
		Note: "The effect took place and its record didn't. A fencing number doesn't help either, for the next holder has a higher one: the destination must know the message's ID, or use an inbox."},
	EffectLeaseZombie: {Declared: Twice, Sources: []string{"RED-F-06"},
		Note: "The lease went to another while its holder slept. Give the destination the fencing number."},
	EffectLeaseFencedZombie: {Declared: Once, Sources: []string{"RED-F-06"},
		Note: "The destination compares the fencing number in the transaction of the effect, and refuses one that is lower than the highest it saw."},
	EffectLeaseReplay: {Declared: Once, Sources: []string{"RED-F-01", "RED-F-03", "RED-F-04"},
		Note: "As long as Redis has the record: a failover, a crash or eviction can take it."},
	EffectLeaseCommitUnknown: {Declared: Once,
		Note: "The record is asked for again under the same token, and is there. If it was not written, the next copy applies the effect again."},

	EffectCallCrashBefore: {Declared: Lost,
		Note: "Nobody knows whether the call took place, so nobody makes it again: it is in the list of calls to reconcile, for somebody to resume. Send a key, if the provider knows keys."},
	EffectCallCrashAfterEffect: {Declared: Once,
		Note: "The call is in the list of calls to reconcile until somebody resolves it; copies aren't applied meanwhile."},
	EffectCallZombie: {Declared: Once,
		Note: "The next consumer doesn't make a call that was begun. The zombie's is recorded when it ends."},
	EffectCallReplay: {Declared: Once,
		Note: "The copy gets the provider's answer from the record, as long as that is kept."},
	EffectCallCommitUnknown: {Declared: Once,
		Note: "A call without an answer is in the list of calls to reconcile, and isn't made again."},
	EffectCallKeyedCrashBefore: {Declared: Once,
		Note: "The next consumer makes the call again under the same key, within the time that the provider keeps keys."},
}

// positioned are those that need a log.
var positioned = map[Claim]Entry{
	EffectPositionCrashBefore: {Declared: Once,
		Note: "The position goes with the transaction that the crash ended."},
	EffectPositionCrashAfterEffect: {Declared: Once,
		Note: "Start from the stored position rather than from the broker's."},
	EffectPositionZombie: {Declared: Once, Sources: []string{"PG-F-11"},
		Note: "The position is compared with the one that the owner knows, and set: who goes on from another is refused."},
	EffectPositionReplay: {Declared: Twice,
		Note: "Another copy has another position and is a new message to this store. The same record read again, as after a reset of the offsets, is not. Where messages are published again, use an inbox."},
	EffectInboxRewind: {Declared: Once,
		Note: "As far back as the markers are kept: what is older is applied again."},
	EffectPositionRewind: {Declared: Once,
		Note: "What is at the stored position or below was applied. To apply it again on purpose, lower the stored position too."},
	EffectPositionCommitUnknown: {Declared: Once, Sources: []string{"PG-F-17"},
		Note: "The position is read again, and tells whether the commit took place."},
}
