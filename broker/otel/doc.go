// Package otel adds OpenTelemetry spans and metrics to what package broker does,
// by the semantic conventions for messaging, and carries the trace context in the
// messages' headers, on every broker.
//
//	t, err := otel.New("kafka")
//	conn = t.Conn(conn)
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	rcv, err := conn.OpenReceiver(ctx, "orders/billing")
//	err = broker.Consume(ctx, rcv, t.Handler("orders/billing", handle), broker.ConsumeOptions{})
//
// A program that doesn't import this package links no OpenTelemetry, and pays
// nothing.
//
// # Spans
//
//	send TOPIC            a Publish (producer); its context travels in all of its messages
//	receive SUBSCRIPTION  a Receive that brought messages or failed (client), linked to the spans that sent them
//	process SUBSCRIPTION  a handler's work on one message (consumer), child of the span that sent it
//	settle SUBSCRIPTION   a Settle (client)
//
// Beside the conventions' attributes they carry what the broker answered, as
// counts: onceline.receipts.stored, .duplicate, .accepted, .refused and .unknown
// on send; onceline.outcomes.confirmed, .sent, .pending, .lease_lost and .unknown
// on settle; onceline.attempt on process, where the broker counts.
//
// # Metrics
//
//	messaging.client.operation.duration   s, by messaging.operation.name: send, receive, settle
//	messaging.client.sent.messages        with onceline.verdict, so that duplicates and unknowns can be seen
//	messaging.client.consumed.messages    what Receive brought
//	messaging.process.duration            s, of handlers
//	onceline.settled.messages             with onceline.action and onceline.state
//
// The duration of receive is how long the call took, waiting included.
//
// # Cost
//
// For each call one span and a few points, whatever the number of its messages;
// for each message a place in two or three slices that are made once for the call.
package otel
