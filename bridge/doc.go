// Package bridge moves messages between any two brokers, with their IDs, keys, headers,
// times and bodies.
//
//	b := bridge.New(receiver, publisher, bridge.Options{})
//	err := b.Run(ctx)
//
// # How often a message is at the far side
//
// A message is published under the ID that its producer gave it, and acked when the far
// side has it: Stored, Duplicate or Accepted. Without an answer it is published again
// under the same ID and never acked before. So nothing is lost, and a message is
// published more than once when an answer was lost, when the bridge was killed between
// publish and ack, or when the ack was lost. What becomes of the second one the far side
// decides:
//
//   - It knows IDs over a producer's restart (NATS, SQS FIFO, Service Bus with duplicate
//     detection): it is no second copy, within the far side's window. Within one process
//     the bridge notes when it first sent a message and doesn't send it again when the
//     window is over ([Options].Late). A bridge that was killed knows nothing of that:
//     the window has to be longer than it may be away.
//   - It doesn't (Kafka, RabbitMQ, Pub/Sub, SQS standard): it is a second copy with the
//     same ID. Within one process the bridge knows what it has moved
//     ([Options].Remember), and Kafka's producer joins a retry with what is in flight;
//     after a kill there are as many copies as were under way. The consumers behind it
//     need an inbox.
//
// [Through] puts a database in between: marks and messages in one transaction. The
// messages are in its outbox exactly once, as long as the marks are kept, and a
// [dedup.Relay] sends them on. That closes the first half for all pairs, and the second
// half where the far side knows IDs, for the relay notes in the database when it first
// sent a message, and holds one whose time is over. Where the far side knows none but has
// transactions that can be prepared (Kafka), [dedup.NewTransactionalRelay] closes it, too.
// Elsewhere publish and removal from the outbox aren't one transaction, and there are
// copies.
//
// [Judge] says all this of a pair, by the boundaries that the adapters declare.
//
// # Order
//
// The messages of a key are published in the order in which the source brings them. One
// that fails is tried again in hand, its lease extended, before those behind it; other
// keys go on. Where a lease is lost all that is behind the message is given back. What
// the source's own order is when messages come again, its boundary says (claim
// deliver.order.redelivery): where it doesn't keep the order then, a kill can cost that
// of some keys, and [Options].HoldOff makes it rare.
//
// # One bridge at a time
//
// Two bridges on one subscription divide its messages, by what the source makes of that:
// partitions, sessions, message groups. On sources that don't keep a key with one
// consumer they break its order, and do no other harm.
package bridge
