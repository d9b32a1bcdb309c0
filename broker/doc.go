// Package broker is one Publish/Receive/Settle contract for message brokers
// that answer the same question differently.
//
// The contract hides no difference: it names it. A publish returns a
// [Receipt] whose [Verdict] says what the broker really answered; a settle
// fills an [Outcome] whose [State] says whether it took effect, was merely
// sent, waits for a later commit, came too late, or can't be known.
//
//	conn, err := broker.Open(ctx, "nats://127.0.0.1:4222")
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	receipts, err := pub.Publish(ctx, broker.Message{ID: "order-17", Body: body})
//
//	rcv, err := conn.OpenReceiver(ctx, "ORDERS/billing")
//	err = broker.Consume(ctx, rcv, handle, broker.ConsumeOptions{})
//
// # Words
//
// The dedup ID ([Message.ID]) is the producer-assigned identity of the logical
// message, the same on every copy. The window is how long a broker remembers
// it. A lease is the time a consumer may hold a delivery before the broker
// gives it out again. To settle is to ack, nack, extend or dead-letter.
//
// # Hops
//
// Hop 1 is producer to broker: [Publisher], [Retry], [Batcher]. Hop 2 is broker
// to consumer: [Receiver], [Consume]. From one topic to another of the same broker,
// some join the two in a transaction: [Transactor], [Process]. Hop 3, consumer to effect, is closed by
// a store that commits the message's ID together with the effect; no broker
// closes it.
//
// This package imports the standard library alone. Adapters implement the
// interfaces of package driver, which also validates messages and fences
// handles, once for all brokers.
package broker
