// Package kafka is the adapter for Apache Kafka 4.x, on franz-go. It works with
// consumer groups and, by ?mode=share, with share groups (KIP-932).
//
//	conn, err := broker.Open(ctx, "kafka://kafka1:9092,kafka2:9092?session=10s")
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	rcv, err := conn.OpenReceiver(ctx, "orders/billing")
//
// [Dial] opens by URL, [New] by franz-go's options.
//
// # Names
//
// A topic is a Kafka topic. A subscription is "topic/group".
//
// # URL
//
//	kafka://[user:password@]host[:9092][,host[:port]…][?parameters]
//
//	mode=group|share          consumer group (default) or share group
//	start=earliest|latest     where a new group begins; the default is earliest.
//	                          A share group begins there only if Ensure made it
//	isolation=committed|uncommitted   the default is committed (group)
//	protocol=classic|consumer classic (default) or KIP-848 (group); the latter
//	                          is for brokers from 4.3 on
//	session=45s               until a silent member is thrown out (group, classic)
//	instance=ID               static membership (group)
//	ordered=true              Entity.Ordered, see below (group)
//	max-deliveries=N          Entity.MaxDeliveries, see below; needs dead-letter
//	dead-letter=topic         Entity.DeadLetter, see below
//	partitions=N, replicas=N  of topics that Ensure makes and has no wish for
//	client-id=name            the default is onceline
//	sasl=plain|scram-sha-256|scram-sha-512   with user and password
//	tls=true                  with ca=, cert=, key= as PEM files where needed
//	insecure-credentials=true send user and password without TLS to a host that
//	                          isn't loopback, which is refused otherwise
//
// Kafka has no place for what it knows nothing of. MaxDeliveries, DeadLetter and
// Ordered of an Ensure are remembered by the connection it was called on; a
// receiver of another connection or process has them from the URL or [Options].
//
// # Message
//
//	ID       header onceline-id, always
//	Copy     header onceline-copy, if not empty
//	Key      the record's key, as it is; none: no key
//	Body     the record's value
//	Headers  the record's headers: order, repeats and binary values as they are
//	Time     the record's timestamp; and header onceline-time, if the topic had
//	         LogAppendTime, which overwrites the first, when the publisher was
//	         opened, if that can't be read, or if the time is before 1970
//	Position partition and offset
//
// A record of another producer has what it has; its ID is empty if it has no
// header onceline-id.
//
// # Publishing
//
// The idempotent producer with acks from all in-sync replicas; one client for
// all publishers of a connection. An idempotent record that is in flight can't
// be taken back. So when the context ends, Publish returns Unknown, the record
// stays with the SDK, and a retry of the same ID and Copy on the same publisher
// joins it, whatever its body, and gets its answer; the answers of 16,384 such
// records are remembered until then. Closing the publisher forgets them, and
// closing the connection drops what is still in flight. A publisher opened with
// broker.PublishAtMostOnce has a client of its own without idempotence and
// retries.
//
// When the broker doesn't know a producer's sequence any more, the SDK's client
// stops, its messages are Unknown, and the next Publish has a new one.
//
// # Consumer groups
//
// Messages are settled in any order; what is committed is the lowest contiguous
// settled offset of each partition. Settles that meet share one commit. An ack
// above an open message is Pending until the open one is settled. Partitions
// that are taken away are committed first, and then their handles are LeaseLost.
// A member that was thrown out and joins again begins anew at the group's
// offsets, and nothing that it held before can set those back.
//
// There is no lease: Delivery.Lease is zero and Extend answers Confirmed as long
// as the partition is held. A member that was silent for half a session (with
// KIP-848: for a second) asks the broker first whether it still is one, for a
// process that stood still doesn't know. A nacked message comes again from the receiver
// itself after the delay, later ones of its key wait for it, and the commit
// stays below it, so that the next owner gets it after a crash or a rebalance.
// With Ordered, one message of a key is in hand at a time. At the MaxDeliveries-
// th nack, and on DeadLetter, the message is copied to the dead-letter topic,
// with its ID, and settled.
//
// Receive hands out as many messages as it was asked for. franz-go fetches ahead
// (kgo.FetchMaxBytes and kgo.FetchMaxPartitionBytes bound it), and up to 4,096
// records, or as many as were asked for, wait here while it fetches more; that
// costs memory, and no attempt.
//
// # Share groups
//
// Receive acquires no more than it was asked for (a broker before 4.2 counts by
// batches; the rest goes back at once). Each settle is answered for its own
// message. A lost answer stays Unknown, for Kafka refuses a second ack whether
// or not the first took effect. Extend renews by the group's lease, whatever
// delay it is given, and needs 4.2. A nack with a delay is ErrUnsupported, and
// the handle stays held. Ensure sets share.auto.offset.reset, read_committed as
// share.isolation.level, Lease as share.record.lock.duration.ms, and for MaxDeliveries the broker's own limit as
// high as it goes, for at that limit the broker drops a message.
//
// A new group gets nothing until the brokers have made its state. One that dies
// meanwhile tries again only after 30 s (KAF-F-57).
//
// # Transactions
//
// A broker.Transactor is a transactional ID: a producer of its own, which fences the
// ID's earlier holder. Outputs and the positions of group receivers of the same
// connection are one transaction; the positions go with the member and generation of
// their receiver, and Kafka wants them without a gap: a commit above an open message
// does nothing and says so. Inputs without an output are committed as positions,
// without a transaction. What an abort gives back comes again from its receiver before
// anything later of its key. A lost commit is resolved by the same request again, and
// where another holder has the ID by then, by the marker in the log. Prepare and
// broker.RecoverTransaction work by producer ID and epoch. With transaction.version
// below 2 Scope.Note says what that costs (KAF-F-19).
//
// # What Kafka can't do
//
// A dedup window or any dedup by ID; a lease in a consumer group; order or a
// delay in a share group; MaxDeliveries without a dead-letter topic, or over ten
// in a share group. Each such wish is broker.ErrUnsupported.
//
// # As
//
// Conn sets a **kgo.Client to the client for administration, Publisher to the
// one that publishes now, Transactor to its own, Receiver to its member's (in share mode a plain client
// that isn't a consumer). A delivery sets a **kgo.Record.
package kafka
