// Package rabbitmq is the adapter for RabbitMQ: quorum and classic queues over
// AMQP 0-9-1, and streams over the stream protocol.
//
//	conn, err := broker.Open(ctx, "rabbitmq://127.0.0.1:5672/")
//	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing"})
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	rcv, err := conn.OpenReceiver(ctx, "orders/billing")
//
// [Dial] and broker.Open make clients, [New] takes one. [BoundaryQuorum],
// [BoundaryClassic] and [BoundaryStream] say where the guarantees end. Facts such
// as RMQ-F-08 are in docs/facts.md. The rest of this page is about queues.
//
// # Names
//
// A topic is one of
//
//	EXCHANGE       a fanout exchange; empty routing key
//	EXCHANGE/KEY   a direct exchange, and that routing key
//	/QUEUE         the default exchange: that queue alone
//
// A subscription is the name of a queue, as it is; Ensure binds it to the topic.
// By convention it begins with the topic and a slash, "orders/billing", which
// nobody reads anything into. A topic /QUEUE has the subscription QUEUE. Existing
// exchanges and queues of any type can be used. Names have up to 255 bytes, those
// of queues some less, for "QUEUE.onceline-retry-MS" is the queue in which its
// messages wait for a delay.
//
// Ensure makes durable exchanges and queues, of the kind that [Queues] says. The
// protocol tells nobody what a queue was declared with, so a connection knows
// lease, limit, dead-letter topic and order of a subscription only if Ensure was
// called on it: call it on each, it changes nothing that exists. What it ensured
// it also declares again where a node has lost it. An argument that differs from
// what exists is broker.ErrConflict, with both values.
//
// # URL
//
//	rabbitmq://[user:password@]host[:port][,host[:port]...]/[vhost][?parameter=value...]
//
// The scheme rabbitmq+tls uses TLS, with port 5671 instead of 5672; so do ca,
// cert and server-name. Without a user it is guest, which a node admits from its
// loopback only. A slash in the virtual host is written %2F; none is "/". The
// hosts are tried in order, the last good one first. The parameters:
//
//	queue=quorum|classic|stream   [Queues]
//	stream-port=N                 [StreamPort], with queue=stream
//	window=N                      [Window]
//	max-in-flight=N               [MaxInFlight]
//	max-body=N                    [MaxBody], bytes
//	consumer-timeout=DURATION     [ConsumerTimeout]
//	heartbeat=DURATION            [Heartbeat]
//	name=NAME                     [Name]
//	ca=FILE                       roots in PEM, instead of the system's
//	cert=FILE, key=FILE           client certificate
//	server-name=NAME              to expect in the server's certificate
//	auth=plain|external           external: the client certificate is the credential
//	insecure-credentials=true     send a password without TLS beyond the loopback
//
// Anything else is broker.ErrInvalid.
//
// # Messages
//
//	ID       message-id, if it is UTF-8 of up to 255 bytes and Copy is empty;
//	         otherwise a hash of ID and Copy is there, and the ID in onceline-id
//	Copy     onceline-copy
//	Key      onceline-key; the broker has no ordering key
//	Body     the body
//	Headers  headers of the same name where they can be; see below
//	Time     onceline-time, Unix milliseconds; the timestamp property has seconds
//	Attempt  x-delivery-count (RMQ-F-16) or x-acquired-count (RMQ-F-15) and what
//	         went before a delayed nack, exact; on classic queues not trusted
//	Position none: a queue has no offsets
//	Lease    asked for + Entity.Lease, or [ConsumerTimeout]
//
// Every message is persistent. A user's header is a header of the broker unless
// its name begins with "x-" or "onceline-", is CC or BCC, which route copies
// (both mean something to the broker), or has over 128 bytes. The broker's headers
// have neither order nor repeats: the receiver sorts them. Where that isn't the
// list that was sent, the header onceline-headers carries all of it and counts.
// Messages of other producers come with their message-id as ID, or none, and with
// all their headers but those that the broker writes; values of other types as
// text.
//
// # Limits
//
// Body: [MaxBody]. Headers: 28 KiB, for header and envelope must fit into one
// frame of 128 KiB. Window: none, the broker knows no copies (RMQ-F-01).
//
// # Publishing
//
// Every publish is mandatory and confirmed. A message is Stored when the confirm
// came and no return before it (RMQ-F-04); Refused with ErrUnroutable if it was
// returned, also where the broker confirmed it; Unknown if the channel, the
// connection or the context ended before the answer. A basic.nack is Unknown too,
// since one full queue nacks what another has stored (RMQ-F-05), except for a
// topic /QUEUE, where it is Refused with ErrBusy: it means a full queue, and only
// if the queue's process crashed at that moment may the message be there. Of two
// messages with one ID in flight at once on one publisher of which one is
// returned, the receipts may be exchanged.
//
// A missing exchange is told when the publisher is opened, and when its channel
// is made anew: ErrNotFound. One that is deleted in between ends the channel, and
// what is in flight is Unknown. So is what is in flight when a body is over the
// node's limit.
//
// Publishes have a connection of their own, since a node that is short of memory
// or disk stops reading from those that publish. While it does, and while there is
// no connection, Publish waits for up to five seconds, and then refuses with
// ErrBusy or ErrUnavailable what didn't leave. With broker.PublishAtMostOnce it
// doesn't wait for a connection. Nothing is retried in here, and nothing is sent
// after Publish has returned. If the channel ends within a batch, what had not
// left goes by another one, unless it has a key, and could overtake a message of
// its key that is Unknown.
//
// # Receiving and settling
//
// Receive asks for what it was asked for and nothing ahead: prefetch, consume,
// wait, cancel. That takes two round trips, and returns what the queue has, without
// waiting for more. [Window] trades exactness for them. A Receive whose context ends
// before waits a tenth of a second longer for what is on its way. What arrives later is
// kept for the next Receive, so that calls with contexts shorter than two round trips
// get something too, and given back after a fifth of a second: on quorum queues before 4.3
// that costs the message an attempt (RMQ-F-15), with which Entity.MaxDeliveries can
// wear it out. Let contexts be longer than that where calls are seldom.
//
// The protocol has no answer to an ack (RMQ-F-09): the outcome is Sent. The acks
// of a batch leave in one write, as one frame if they are the oldest unsettled
// ones. Handles end with their channel, with which the broker takes back all that
// is unsettled: LeaseLost. There is no verb that extends a lease: Extend is
// broker.ErrUnsupported. A delivery whose lease has ended is given back by the next
// Receive, lest the node close the whole channel for it.
//
// A Nack with a delay publishes a confirmed copy to a queue whose messages expire
// and go back, and then acks; a crash in between makes a duplicate, never a loss.
// Delays are rounded up, by a quarter at most, for each needs a queue, which
// expires too.
//
// Entity.Ordered is a single active consumer. Its receivers hold one message at a
// time, whatever is asked for, and a nacked one in hand until its delay has
// passed: the outcome is Pending until then.
//
// # Dead letters
//
// The DeadLetter action, and a Nack at the last of Entity.MaxDeliveries, publish a
// confirmed copy to the dead-letter topic, with onceline-dead-letter-reason, -source
// and -attempts, and then ack; a crash in between makes a second letter. If no queue
// takes the copy the delivery stays as it was. A reject would do without the copy,
// but has no room for the reason, and on a classic queue loses messages when the
// node dies (RMQ-F-17). Deliveries that end with a consumer's death are counted by
// the quorum queue itself, which moves the message at least once; its reason is
// then the broker's, such as delivery_limit.
//
// # Transactions
//
// A broker.Transactor publishes and acks by tx.commit, on the channel of the deliveries
// of one receiver, which is closed behind it: whatever else the receiver has in hand
// goes back. It is atomic for one queue; Scope says what can be torn (RMQ-F-300). What
// no queue takes is lost at the commit and told by ErrUnroutable. A dead letter is
// published before the commit, with a confirm. A lost answer stays unknown. Ordered
// subscriptions and streams have none.
//
// # Raw access
//
// As of a connection sets an *amqp091.Connection, the one that receives; As of a
// publisher or receiver an *amqp091.Channel; As of a delivery an
// *amqp091.Delivery. Settling through the latter goes behind the fence's back.
package rabbitmq
