package nats

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// Boundary is where the guarantees of JetStream end, behind this adapter. That of
// streams in other configurations is in variants.go.
func Boundary() boundary.Boundary {
	b := boundary.Boundary{
		Broker: "nats",
		Limits: limits(),
		Of:     "NATS JetStream 2.15, file storage, one replica, limits retention",
		Entries: effects(map[boundary.Claim]boundary.Entry{
			boundary.PublishAckDurable: {
				Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"NATS-F-11", "NATS-F-12"},
				Note: "Kept over a crash of the process. Over a power cut only with sync_interval: always, or with replicas that don't fail together: by default the server syncs every two minutes.",
			},
			boundary.PublishBatchPartial: {
				Declared: boundary.Exact, Sources: []string{"NATS-F-05", "NATS-F-32"},
				Note: "Each message has its own acknowledgement. The server's atomic batches, which are refused as a whole, are not used.",
			},
			boundary.PublishDedupScope: {
				Declared: boundary.Stream, Documented: boundary.Stream, Sources: []string{"NATS-F-01"},
				Note: "The subject plays no part: topics that share a stream share its IDs. Make IDs unique over all topics under one root.",
			},
			boundary.PublishDedupWindow: {
				Declared: boundary.AsConfigured, Documented: boundary.AsConfigured, Sources: []string{"NATS-F-02", "NATS-F-03", "NATS-F-04", "NATS-F-10"},
				Note: "Two minutes unless Ensure is given a Window. Fixed, not sliding: a repeat doesn't prolong it. A stream with sources or a mirror has none.",
			},
			boundary.PublishDedupVerdict: {
				Declared: boundary.DuplicateAt, Documented: boundary.DuplicateAt, Sources: []string{"NATS-F-05"},
			},
			boundary.PublishDedupBody: {
				Declared: boundary.FirstKept, Sources: []string{"NATS-F-01", "NATS-F-05"},
				Note: "The body isn't compared. Derive the ID from what makes the message what it is.",
			},
			boundary.PublishDedupContent: {
				Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"NATS-F-01"},
			},
			boundary.PublishDedupLostResponse: {
				Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"NATS-F-05", "NATS-F-06"},
				Note: "Within the window. In a cluster the retry may be told that the first is still in process, which is Unknown: retry again.",
			},
			boundary.PublishDedupNewProducer: {
				Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"NATS-F-01", "NATS-F-05"},
				Note: "The server keeps the IDs, so a producer needs no state of its own but the ID.",
			},
			boundary.PublishDedupBrokerRestart: {
				Declared: boundary.Once, Sources: []string{"NATS-F-07", "NATS-F-08", "NATS-F-09"},
				Note: "The server reads the IDs back from the messages that it still has. IDs of messages that are gone (work queue and acked, purged, over a limit, in memory) are forgotten.",
			},
			boundary.PublishDedupAfterConsume: {
				Declared: boundary.Once, Sources: []string{"NATS-F-07"},
				Note: "A new message under an old ID is swallowed though the first was consumed: the receipt says Duplicate, which a producer must not take for Stored.",
			},
			boundary.PublishHalfOpen: {Declared: boundary.SaysUnknown, Sources: []string{"NATS-F-220"}, Note: "Try again with the same ID."},
			boundary.DeliverHalfOpen: {Declared: boundary.Recovers, Sources: []string{"NATS-F-220"}},
			boundary.SettleHalfOpen:  {Declared: boundary.SaysUnknown, Sources: []string{"NATS-F-220"}, Note: "The same settle once more asks."},
			boundary.DeliverSlow:     {Declared: boundary.Once, Sources: []string{"NATS-F-221"}},
			boundary.PublishDedupConcurrent: {
				Declared: boundary.Once, Sources: []string{"NATS-F-01", "NATS-F-06"},
			},
			boundary.PublishDedupWindowAnchor: {
				Declared: boundary.FirstSighting, Sources: []string{"NATS-F-100"},
				Note: "Bound the retries of a message, as broker.Retry does by the window: the last one may come no later than the window after the first.",
			},
			boundary.PublishDedupLostRequest: {
				Declared: boundary.Once, Sources: []string{"NATS-F-01", "NATS-F-100"},
				Note: "An ID is known from when its message is stored. A retry comes behind what was published meanwhile.",
			},
			boundary.PublishDedupTwoProducers: {
				Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"NATS-F-01"},
			},
			boundary.PublishDedupAfterPurge: {
				Declared: boundary.Once, Sources: []string{"NATS-F-07"},
				Note: "Until the server restarts, which forgets the IDs of what was purged. To send the same messages anew right after a purge, set Copy or wait for the end of the window: the receipt says Duplicate, and nothing is stored.",
			},
			boundary.PublishDedupWithinBatch: {
				Declared: boundary.Once, Sources: []string{"NATS-F-05", "NATS-F-06"},
				Note: "In a cluster the second may be told that the first is still in process, which is Unknown: retry it. The server's atomic batches would be refused as a whole; they are not used.",
			},
			boundary.PublishDedupOtherKey: {
				Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"NATS-F-01"},
				Note: "The key is a header that the server doesn't read: the first one counts.",
			},
			boundary.PublishDedupOtherTopic: {
				Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"NATS-F-01"},
				Note: "On another subject of the stream, and then whoever reads that subject alone gets nothing. On another stream it is another message.",
			},
			boundary.PublishDedupLookalikeHeader: {
				Declared: boundary.Kept, Sources: []string{"NATS-F-101"},
				Note: "The adapter sends no user's header under a name that begins with Nats-: it travels in onceline-headers. Other clients see it there alone.",
			},
			boundary.PublishIDLength: {
				Declared: boundary.KeptAndDeduped, Sources: []string{"NATS-F-01"},
				Note: "The server compares the whole header value.",
			},
			boundary.PublishIDCharset: {
				Declared: boundary.KeptAndDeduped, Sources: []string{"NATS-F-101"},
				Note: "What isn't printable ASCII, or has spaces around it, is hashed in Nats-Msg-Id; the ID itself travels in onceline-id. A producer without this toolkit must do the same to be deduped against.",
			},
			boundary.DeliverRedeliverExpiry: {
				Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"NATS-F-21", "NATS-F-22", "NATS-F-28"},
				Note: "The lease runs from the hand-over. Receive asks for no more than its caller wants, so none of it is spent in a buffer.",
			},
			boundary.DeliverRedeliverCrash: {
				Declared: boundary.AfterLease, Sources: []string{"NATS-F-27"},
				Note: "A closed connection gives nothing back. Keep leases short and extend them.",
			},
			boundary.DeliverRedeliverNackDelay: {
				Declared: boundary.Honoured, Documented: boundary.Honoured, Sources: []string{"NATS-F-14", "NATS-F-22"},
			},
			boundary.DeliverAttempt: {
				Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"NATS-F-25"},
				Note: "It counts deliveries by the server, so also one that was given back unseen because its Receive had been cancelled.",
			},
			boundary.DeliverOrderKey: {
				Declared: boundary.OverNack, Documented: boundary.OverNack, Sources: []string{"NATS-F-30"},
				Note: "With Entity.Ordered, which admits one unsettled delivery for the whole subscription: all keys share one line. Without it, what is given back comes out of order.",
			},
			boundary.DeliverCancel: {
				Declared: boundary.GivenBack, Sources: []string{"NATS-F-14", "NATS-F-25"},
				Note: "It costs the message an attempt.",
			},
			boundary.DeliverDeadLetter: {
				Declared: boundary.Moved, Documented: boundary.KeptApart, Sources: []string{"NATS-F-23", "NATS-F-24"},
				Note: "Moved by the adapter; the server only stops delivering. A message whose last lease ended is moved by the next Receive, so it needs a consumer that runs.",
			},
			boundary.SettleAnswer: {
				Declared: boundary.Confirmed, Documented: boundary.Confirmed, Sources: []string{"NATS-F-14", "NATS-F-15"},
				Note: "All acks of a batch ask for an answer at once, which costs one round trip for the batch.",
			},
			boundary.SettleLostResponse: {
				Declared: boundary.ConfirmedAgain, Sources: []string{"NATS-F-17"},
				Note: "On the same connection and within the lease. After a reconnect the handle is refused and the outcome stays unknown.",
			},
			boundary.SettleStale: {
				Declared: boundary.Refused, Sources: []string{"NATS-F-16", "NATS-F-18", "NATS-F-19"},
				Note: "Refused here, by the clock of this process; the server would take it.",
			},
			boundary.VendorSettleStale: {
				Declared: boundary.TakesEffect, Sources: []string{"NATS-F-16"},
				Note: "Any delivery's ack settles the message, whoever holds it. Clients that don't go through this toolkit are not fenced.",
			},
			boundary.SettleFinal: {
				Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"NATS-F-15", "NATS-F-17", "NATS-F-41"},
				Note: "A confirmed ack is not yet on disk: a SIGKILL of a one-replica server right after it can bring the message back, so effects need a dedup store.",
			},
			boundary.EffectCrashAfterEffect: {
				Declared: boundary.Twice, Sources: []string{"NATS-F-27", "NATS-F-39"},
				Note: "What the vendor once called exactly once ends before the effect: use a dedup store.",
			},
			boundary.EffectZombie: {
				Declared: boundary.Twice, Sources: []string{"NATS-F-16", "NATS-F-21"},
				Note: "Use a store that compares positions or IDs in the transaction of the effect.",
			},
		}),
	}
	maps.Copy(b.Entries, leases())
	settleEntries(b.Entries)
	maps.Copy(b.Entries, refusals())
	maps.Copy(b.Entries, delivery())
	return b
}
