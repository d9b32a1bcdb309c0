// # Streams
//
// With queue=stream a connection speaks the stream protocol, on stream-port, by
// default 5552, or 5551 over TLS. The plugin rabbitmq_stream must be enabled.
//
//	conn, err := broker.Open(ctx, "rabbitmq://127.0.0.1/?queue=stream")
//	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing"})
//
// A topic is a stream. A subscription is "STREAM/NAME": the stream up to the last
// slash, and the name, of up to 255 bytes, at which the broker keeps the offset of
// the last settled message. Ensure creates streams with the broker's defaults;
// retention is a policy's business. MaxDeliveries, DeadLetter, which is a stream
// too, and Ordered are kept by the connection on which Ensure was called: call it
// on each. Window, Lease, MaxBody and more than one partition are ErrUnsupported.
// Delete deletes the stream, and with it the offsets of all names. The parameters
// window, max-in-flight and consumer-timeout mean nothing to streams; max-body
// counts where it is less than a frame of the broker holds, 1 MiB by default.
//
// The protocol is spoken by this package itself. The vendor's client takes neither
// a context nor a dialer, and hides what the receipts rest on: which publishing
// IDs went out on which connection. Delivery.As sets a **amqp.Message of that
// client to a delivery's message, for who wants it decoded so.
//
// Each publisher has a reference of its own, so that the broker drops what it is
// sent twice (RMS-F-01). A retry of a message without an answer goes out under its
// publishing ID: its receipt is Duplicate if the broker had it, Stored if not. New
// messages leave when the broker has all that left before, or has said that it
// hasn't, because what comes below the highest ID is confirmed and dropped, stored
// or not (RMS-F-02). So one frame of a publisher is under way at a time, of up to
// the broker's frame size, and messages of callers that publish at once share it.
// Stored has no position: the broker tells none. The broker keeps the references
// of 255 publishers of a stream (RMS-F-06), so publishers should be opened for
// long.
//
// The receivers of a name take turns, as single active consumers, from RabbitMQ
// 3.11 on; before, each gets every message. A new name begins at the first message
// there is, or where StartFrom says, which is asked for the partition STREAM.
// Chunks come as they were written, for credit that Receive gives: for about as
// many as hold what it asks for, and one ahead. What has arrived and isn't handed
// out costs memory alone: no lease runs, and Delivery.Lease is zero.
//
// An ack is noted, and what is settled without a gap is stored as the offset and
// asked for in one go: Confirmed if that covers the message, Pending until it
// does. A nack is local: the message comes again to this receiver after its delay,
// and with Ordered, or once a message of a key was given back, no later one of the
// key overtakes it. When the connection is lost the turn is, and what isn't
// covered comes again, to whoever is next. Attempt counts the deliveries of one
// turn.
//
// Messages are stored as AMQP 1.0: the ID, or a hash of ID and Copy, as
// message-id, the rest of ours and the user's headers as application properties
// in their order, binary values as binary, the body as one data section. A list
// that repeats a name, or has one that isn't UTF-8, is in onceline-headers.
// Messages of other producers come with their message-id and their application
// properties as text; batches that they compressed are read.
package rabbitmq
