// Package pubsub is the adapter for Google Cloud Pub/Sub.
//
//	conn, err := broker.Open(ctx, "pubsub:///my-project?exactly-once=true")
//	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "billing"})
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	rcv, err := conn.OpenReceiver(ctx, "billing")
//
// [Dial] and broker.Open make a client, [New] takes one. [Boundary],
// [BoundaryExactlyOnce] and [BoundaryExactlyOnceOrdered] say where the guarantees end. Facts such as PS-F-16 are
// in docs/facts.md.
//
// # Names
//
// A topic is its ID or projects/PROJECT/topics/ID, a subscription its ID or
// projects/PROJECT/subscriptions/ID. Ensure makes topic, dead-letter topic and
// subscription, and labels them onceline-ensured: Delete removes these alone. A
// subscription belongs to one topic for good. Entity.Window and Partitions over 1
// are broker.ErrUnsupported, StartFrom too. Entity.Ordered and exactly-once
// delivery are settings of the subscription. MaxDeliveries needs DeadLetter.
//
// # URL
//
//	pubsub://[host[:port]]/PROJECT[?parameter=value...]
//
// Without a host it is the service, with the application default credentials,
// unless the environment's PUBSUB_EMULATOR_HOST names an emulator: then the SDK
// talks to that. A host is a regional endpoint (port 443), with the same
// credentials over TLS; or, on the loopback, an emulator (port 8085), without
// either. A host that is no emulator is refused while PUBSUB_EMULATOR_HOST is set.
// There is no user in the URL. The parameters:
//
//	exactly-once=true|false   what Ensure wishes for ([ExactlyOnce])
//	plaintext=true            neither TLS nor credentials for any host ([Plaintext])
//	pull-wait=DURATION        how long a pull waits ([PullWait])
//
// Anything else is broker.ErrInvalid.
//
// # Messages
//
//	ID       attribute onceline-id; there is no dedup
//	Copy     attribute onceline-copy
//	Key      ordering key; one that isn't UTF-8 is hashed, and in onceline-key
//	Body     data
//	Headers  attributes of the same name where they can be; see below
//	Time     attribute onceline-time, Unix milliseconds
//	Attempt  delivery_attempt, approximate; only with a dead-letter topic (PS-F-26)
//	Position Token is the service's message_id
//	Lease    asked for the message + the subscription's ack deadline
//
// Values of onceline-id, -copy, -key and of the dead-letter headers are
// percent-encoded where they aren't UTF-8 of at most 1024 bytes or hold a percent
// sign, and go on in onceline-id-1 and so on where they are longer. A user's
// header is an attribute if its name is UTF-8 of at most 256 bytes and begins
// neither with goog nor with onceline-, and its value is UTF-8 of at most 1024
// bytes. Attributes have no order and no repeats: the receiver sorts them. Where
// that isn't the list that was sent, the attributes onceline-headers,
// onceline-headers-1 and so on carry all of it and count. Messages of other
// producers come with their message_id as ID and all their attributes as headers,
// in order of their names.
//
// # Limits
//
// Body: 10,000,000 bytes, the limit of a request (PS-F-05), less 132,096 for what
// goes with it. Headers: 12 KiB together, checked before a byte is sent; many
// short names with binary values can need more than the service's 100 attributes,
// and are ErrTooLarge too. There is no window. Lease: whole seconds from 10 to 600.
//
// # Publishing
//
// A call sends a request for what has no key and one for each key, at most 16 at
// a time, cut at 1000 messages and 10 MB. A request is stored or refused as a
// whole. Nothing is retried or hedged in here, for the service would store it
// again (PS-F-03, PS-F-04), so AtMostOnce and AtLeastOnce are the same;
// broker.Retry is the retry. A message is Refused if the service says so or no
// connection took the request, and Unknown if an answer didn't come. Messages of a
// key behind a part that failed are Refused unsent; the next call starts anew, so
// no key stays paused (PS-F-23). A verdict is never Duplicate. Publishers that may
// not look at topics (roles/pubsub.publisher) can't be told of a missing one when
// they open: the first Publish says so.
//
// # Receiving and settling
//
// Receive is a unary Pull for what it was asked for, and nothing is pulled ahead
// or extended by itself, so the SDK's MinDurationPerAckExtension (PS-F-10) plays
// no part. A pull asks the service to wait for a quarter of the lease, at most for
// [PullWait], and is made again. It isn't cut off when a Receive is cancelled, for
// what it brings would stay leased to nobody: the next Receive takes it over, or
// its messages are given back. Close waits for it. Receivers need the right to look
// at their subscription (pubsub.subscriptions.get, as in roles/pubsub.viewer).
//
// Acks, and nacks and extensions of the same length, go out in one request each
// for up to 1000. With exactly-once delivery an outcome is Confirmed, or LeaseLost
// where the service says that the ack ID is not the newest. Without, it is Sent:
// the service answers the same to an ack without effect (PS-F-16). What may heal
// is asked again until the caller's context or the lease ends; an ack ID that is
// invalid only when asked again is Unknown (PS-F-18). With order and exactly-once
// delivery the service takes the acks of a key in order: they are sorted here
// within a call, and one that is ahead of an earlier message is ErrConflict and
// stays held. Handles outlive a lost connection.
//
// Extend takes 1 to 600 s, in whole seconds; longer is cut, as Outcome.Lease
// says. A Nack's delay is such an extension by which the handle ends, rounded up;
// over 600 s is ErrUnsupported.
//
// # Dead letters
//
// The service counts deliveries from 5 to 100 and moves the message itself
// (PS-F-27, PS-F-37), with the default of 5 where DeadLetter is given without
// MaxDeliveries; its agent needs rights that Ensure can't grant. A limit below 5 is
// kept here by the service's count: the Nack of the last delivery, and the first
// delivery after it, publish the message to the dead-letter topic and ack it. The
// action DeadLetter does the same. If the publish fails the delivery stays as it
// was. The headers onceline-dead-letter-source and -attempts are there in each
// case, -reason where the adapter moved it. If the ack of a moved message is lost
// it can be moved twice.
//
// # Raw access
//
// As of a connection, publisher or receiver sets a *pubsub.Client,
// *apiv1.TopicAdminClient or *apiv1.SubscriptionAdminClient; As of a delivery sets
// a *pubsubpb.ReceivedMessage. Acking through them goes behind the fence's back.
package pubsub
