package rabbitmq

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// BoundaryStream is where the guarantees of a RabbitMQ stream end, behind this
// adapter.
func BoundaryStream() boundary.Boundary {
	b := boundary.Boundary{
		Broker: "rabbitmq",
		Limits: limitsStream(),
		Of:     "RabbitMQ 4.3 by its source and documentation, stream, single active consumer, a reference for each publisher",
		Earlier: []boundary.Earlier{
			{Before: "4.0", Of: "RabbitMQ 3.11 to 3.13 by their source, stream, single active consumer, a reference for each publisher", Limits: limits3()},
			stream310(),
		},
		Entries: streamEffects(map[boundary.Claim]boundary.Entry{
			boundary.PublishAckDurable: {
				Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMS-F-09"},
				Note: "A majority of the replicas has it, and none has synced it to disk.",
			},
			boundary.PublishBatchPartial: {
				Declared: boundary.Exact, Sources: []string{"RMS-F-03", "RMS-F-17"},
				Note: "A message that no frame can hold, 1 MiB by default, is refused before it joins others.",
			},
			boundary.PublishDedupScope: {
				Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMS-F-01", "RMS-F-02"},
				Note: "A publishing ID dedups what one publisher sends again, and says nothing of the application's ID. That one travels as message-id, for a store to use.",
			},
			boundary.PublishDedupWindow: {
				Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMS-F-01"},
				Note: "A wish for a Window is ErrUnsupported.",
			},
			boundary.PublishDedupVerdict: {
				Declared: boundary.StoredAgain, Sources: []string{"RMS-F-01", "RMS-F-03"},
				Note: "Duplicate is said only of a retry whose first attempt had no answer.",
			},
			boundary.PublishDedupBody: {
				Declared: boundary.BothStored, Sources: []string{"RMS-F-01"},
				Note: "But a retry of what had no answer goes out under the old publishing ID: then the first body is kept.",
			},
			boundary.PublishDedupContent: {
				Declared: boundary.BothStored, Documented: boundary.BothStored, Sources: []string{"RMS-F-01"},
			},
			boundary.PublishDedupLostResponse: {
				Declared: boundary.Once, Documented: boundary.Once, Sources: []string{"RMS-F-01", "RMS-F-02", "RMS-F-17", "RMS-F-18"},
				Note: "Retry with the same publisher and the same ID. It can't be lost below a higher publishing ID: nothing new leaves until the broker has said how far it got. " +
					"A second copy is possible where the broker reads the rest of a lost connection after it was asked on the next one, and where it has forgotten the publisher's name.",
			},
			boundary.PublishDedupNewProducer: {
				Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"RMS-F-01", "RMS-F-04"},
				Note: "Each publisher has a reference of its own, for two that share one lose messages to each other. Dedup by the ID when consuming.",
			},
			boundary.PublishDedupBrokerRestart: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-05"},
				Note: "Publishing IDs outlive the restart, but a second Publish of an answered ID is a new message. One that was under way as the broker restarted is stored once.",
			},
			boundary.PublishDedupAfterConsume: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-01"},
			},
			boundary.PublishHalfOpen: {Declared: boundary.SaysUnknown, Sources: []string{"RMQ-F-220"}, Note: "Try again with the same ID."},
			boundary.DeliverHalfOpen: {Declared: boundary.Recovers, Sources: []string{"RMQ-F-220"}},
			boundary.SettleHalfOpen:  {Declared: boundary.SaysUnknown, Sources: []string{"RMQ-F-220"}, Note: "The same settle once more asks."},
			boundary.DeliverSlow:     {Declared: boundary.Once, Sources: []string{"RMQ-F-221"}},
			boundary.PublishDedupConcurrent: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-01", "RMS-F-04"},
			},
			boundary.PublishDedupWindowAnchor: {
				Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMS-F-01"},
				Note: "Only a publisher's highest publishing ID is remembered, and that without a time.",
			},
			boundary.PublishDedupLostRequest: {
				Declared: boundary.Once, Sources: []string{"RMS-F-02", "RMS-F-17"},
				Note: "A message below the highest publishing ID is confirmed and dropped though it was never stored. The adapter therefore sends nothing new before the broker has said how far it got; a client that goes on with higher IDs loses the message.",
			},
			boundary.PublishDedupTwoProducers: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-01", "RMS-F-04"},
			},
			boundary.PublishDedupAfterPurge: {
				Declared: boundary.NotApplicable, Sources: []string{"RMS-F-10"},
				Note: "A stream has no purge: it is emptied by its retention alone, or deleted.",
			},
			boundary.PublishDedupWithinBatch: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-01"},
				Note: "Each message of a call has a publishing ID of its own.",
			},
			boundary.PublishDedupOtherKey: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-01"},
			},
			boundary.PublishDedupOtherTopic: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-01"},
			},
			boundary.PublishDedupLookalikeHeader: {
				Declared: boundary.Kept, Sources: []string{"RMS-F-01"},
				Note: "The broker doesn't read into a message.",
			},
			boundary.PublishIDLength: {
				Declared: boundary.KeptNotDeduped, Sources: []string{"RMS-F-01"},
				Note: "The ID is the message-id of an AMQP 1.0 message, whole.",
			},
			boundary.PublishIDCharset: {
				Declared: boundary.KeptNotDeduped, Sources: []string{"RMS-F-01"},
				Note: "What isn't UTF-8 is hashed in message-id, and whole in onceline-id.",
			},
			boundary.DeliverRedeliverExpiry: {
				Declared: boundary.NoLease, Documented: boundary.NoLease, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: "It is the receiver's turn as long as its connection lives. A handler that is stuck holds up the stored offset, and nobody else gets the message.",
			},
			boundary.DeliverRedeliverCrash: {
				Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: "At once when the connection closes, after two heartbeats when a machine vanishes. All that the stored offset didn't pass comes again.",
			},
			boundary.DeliverRedeliverNackDelay: {
				Declared: boundary.Honoured, Sources: []string{"RMS-F-10"},
				Note: "The receiver itself delivers again; another one gets the message at once.",
			},
			boundary.DeliverAttempt: {
				Declared: boundary.PerReceiver, Documented: boundary.None, Sources: []string{"RMS-F-10"},
				Note: "Counted by the receiver. One that crashes on a message begins at 1 again: MaxDeliveries doesn't stop it.",
			},
			boundary.DeliverOrderKey: {
				Declared: boundary.OverNack, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: "A stream is in order as a whole. With Ordered a message of a key waits until the one before it is settled.",
			},
			boundary.DeliverCancel: {
				Declared: boundary.GivenBack, Sources: []string{"RMS-F-10", "RMS-F-15"},
				Note: "What has arrived goes to the next Receive, or to the next receiver after Close.",
			},
			boundary.DeliverDeadLetter: {
				Declared: boundary.Moved, Sources: []string{"RMS-F-10"},
				Note: "The adapter copies, then settles: after a crash between the two the copy is there twice, under the same ID. A stream keeps the original until it is trimmed.",
			},
			boundary.SettleAnswer: {
				Declared: boundary.PendingFirst, Sources: []string{"RMS-F-10", "RMS-F-14"},
				Note: "The stored offset covers the messages that are settled without a gap. Ask again for what is Pending.",
			},
			boundary.SettleLostResponse: {
				Declared: boundary.ConfirmedAgain, Sources: []string{"RMS-F-14"},
				Note: "The stored offset tells, also on the next connection.",
			},
			boundary.SettleStale: {
				Declared: boundary.Refused, Sources: []string{"RMS-F-12"},
			},
			boundary.VendorSettleStale: {
				Declared: boundary.Refused, Documented: boundary.TakesEffect, Sources: []string{"RMS-F-12", "RMS-F-14", "RMS-F-16"},
				Note: "The broker takes any offset from anybody, a lower one too. But it gives the turn away only when the connection is gone, and an offset is stored on no other one.",
			},
			boundary.SettleFinal: {
				Declared: boundary.Final, Documented: boundary.Final, Sources: []string{"RMS-F-05", "RMS-F-10"},
				Note: "Confirmed is final, Pending is not. The stored offset is lost when the stream's retention passes it, and with it no message that is still there.",
			},
			boundary.EffectCrashAfterEffect: {
				Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"RMS-F-10"},
				Note: "Commit the ID, or the message's offset, together with the effect.",
			},
			boundary.EffectZombie: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-12"},
				Note: "The late ack is refused, but its effect was done. A stored position with compare-and-set fences it.",
			},
		}),
	}
	maps.Copy(b.Entries, streamLeases())
	streamSettleEntries(b.Entries)
	maps.Copy(b.Entries, streamRefusals())
	maps.Copy(b.Entries, streamDelivery())
	return b
}
