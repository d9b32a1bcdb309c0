// Package dedup makes the effects of at-least-once delivery happen exactly once.
//
// No broker does that for a consumer: between the effect and the ack lies a crash
// that brings the message again, and only the store that holds the effect can know
// that it is already there. So the mark that a message was handled is committed in
// one transaction with its effect:
//
//	inbox := dedup.New(store, "billing", dedup.Options{})
//	outcome, err := inbox.Once(ctx, dedup.Key{ID: m.ID}, func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", amount, id)
//		return err
//	})
//
// [Handler] ties an inbox to [broker.Consume], [HandleBatch] to the deliveries of one
// Receive. [Position] is the cheaper way for consumers that own a partition of a log:
// it keeps one offset in the effect's transaction instead of a marker for each
// message. [Follow] reads a log by it, and seeks where the position says.
//
// [Outbox] is the other direction: messages that are committed with the business data
// they tell of, and that a [Relay] sends to any [broker.Publisher], or exactly once in
// transactions of a broker ([NewTransactionalRelay]). [Versioned] writes
// states that carry a version, and takes no marker.
//
// # What it rests on
//
// The message comes again until it is acked, and is acked only after the outcome is
// [Applied] or [Duplicate]. Marker and effect are in one transaction of a database
// that keeps what it has committed. The marker is unique and still there when the
// last copy comes: [Size] and [Horizon] tell how long that is.
//
// An effect outside of the transaction (a payment, a mail) is not covered. [Calls]
// records it before and after the call, with the provider's idempotency key and its
// answer, and lists what has to be reconciled; package dedup/httpcall does so for
// HTTP. [Lease] only reserves the message and keeps the result. Both come as close as
// the other side allows.
//
// # The identity of a message
//
// A marker is made of the consumer's name and the message's dedup ID, which its
// producer assigned: [JoinID] makes one from the parts that name a business event.
// An ID that a broker assigned, or one made anew for each attempt, finds no
// duplicate that a producer's retry made; one that is a hash of the body takes two
// messages for one. [IDCheck] looks for both, and [Handler] warns of them.
//
// # Counts
//
// [Stats] and [RelayStats] count what happened, to be read at any time; package
// dedup/otel exports them, and docs/operations has alerts and what to do.
//
// This package imports the standard library and package broker. Stores implement
// [Driver]: packages dedup/sqlite (embedded, nothing to install), dedup/postgres and
// dedup/mysql; all of them also [CallDriver], [OutboxDriver] and [RelayRecords], and the
// first two [CheckpointDriver], on which package pipeline rests. Package dedup/redis
// implements [LeaseDriver].
package dedup
