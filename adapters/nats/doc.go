// Package nats is the adapter for NATS JetStream.
//
//	conn, err := broker.Open(ctx, "nats://127.0.0.1:4222")
//	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "ORDERS/billing"})
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	rcv, err := conn.OpenReceiver(ctx, "ORDERS/billing")
//
// [Dial] and broker.Open make a client, [New] takes one. [Boundary] says where
// the guarantees end, for streams in files on one server that keep messages up to
// their limits; [BoundaryMemory], [BoundaryWorkQueue], [BoundaryInterest] and
// [BoundaryReplicated] for others. Facts such as NATS-F-16 are in docs/facts.md.
//
// # Names
//
// A topic is a subject without wildcards. A subscription is STREAM/consumer.
// Ensure makes the stream STREAM, or without a subscription one that is named
// like the topic with '_' for each '.', which captures the subjects topic and
// topic.>; so topics below a topic share its stream, and its dedup IDs. A stream
// that captures the topic already is used as it is. The subscription is a
// durable pull consumer with explicit acks, for topic and topic.> alone.
// Subjects are not mapped from keys: Entity.Ordered puts all keys in one line.
// Entity.Partitions over 1 is broker.ErrUnsupported, StartFrom too.
//
// Delete removes the streams and consumers that Ensure made, which it marks in
// their metadata, and leaves others alone.
//
// # URL
//
//	nats://[user:password@|token@]host[:port][,host[:port]...][?parameter=value...]
//
// The scheme nats+tls is nats with tls=true. The parameters:
//
//	creds=FILE            credentials file with JWT and seed
//	nkey=FILE             file with an NKey seed
//	tls=true              use TLS, with the system's roots unless ca is given
//	ca=FILE               roots in PEM; implies tls
//	cert=FILE, key=FILE   client certificate; imply tls
//	insecure-credentials=true   send credentials without TLS beyond the loopback
//	name=NAME             of the client, as the server's monitoring shows it
//	domain=NAME           JetStream domain ([Domain])
//	replicas=N            of new streams ([Replicas])
//	storage=file|memory   of new streams ([FileStorage], [MemoryStorage])
//	retention=limits|workqueue|interest   of new streams ([LimitsRetention],
//	                      [WorkQueue], [Interest])
//	atomic-batches=true   new streams take transactions ([AtomicBatches])
//	max-ack-pending=N     of new consumers ([MaxAckPending])
//	max-in-flight=N       messages of a publisher without an answer ([MaxInFlight])
//
// Anything else is broker.ErrInvalid. Credentials are not sent in plaintext to a
// host that isn't a loopback, unless insecure-credentials says so; with
// credentials over a plaintext loopback the client ignores servers that the
// cluster tells it of.
//
// # Messages
//
//	ID       Nats-Msg-Id, if it is printable ASCII and Copy is empty; otherwise
//	         a hash of ID and Copy is there, and the ID in onceline-id
//	Copy     onceline-copy
//	Key      onceline-key
//	Body     the payload
//	Headers  NATS headers of the same name where they can be; see below
//	Time     onceline-time, Unix milliseconds
//	Attempt  the server's delivery count, exact (NATS-F-25)
//	Position Offset is the sequence in the stream
//	Lease    asked for the message + AckWait
//
// Values of onceline-id, -copy, -key and of the dead-letter headers are
// percent-encoded where they aren't printable ASCII; a percent sign is encoded
// too. A user's header is a NATS header if its name is a token, its value is
// printable, and its name means nothing to server, SDK or toolkit (Nats-*,
// onceline-*, Status, Description). NATS headers have no order among names: the
// receiver sorts them. Where that isn't the list that was sent, the header
// onceline-headers carries all of it and counts. Messages of other producers
// come with their Nats-Msg-Id as ID, or none, and all their headers but Nats-*;
// headers that can't be read are passed over.
//
// # Limits
//
// Body: the server's max_payload (NATS-F-29) less 2560 bytes, which headers and
// the marks of a dead letter need, or the stream's limit less 1024. Headers: the
// server keeps the length of a header block in 16 bits; 64,000 bytes encoded,
// less what our own headers can take. Both are checked before a byte is sent.
// Window: the stream's; at least 100 ms, 2 minutes by default (NATS-F-02).
//
// # Publishing
//
// A batch is sent at once, as far as [MaxInFlight] and 4 MiB of bodies without
// an answer allow, and each message has its own acknowledgement. Nothing is
// retried in here, the SDK's retry on an unanswered subject (NATS-F-13) included,
// so AtMostOnce and AtLeastOnce are the same; broker.Retry is the retry. A
// message is Refused with ErrUnroutable if no stream takes its subject, and with
// ErrUnavailable if its stream has no leader now, or it surely didn't leave. It is Unknown if the context or the
// connection ended before the answer, at once in both cases, and if a cluster
// says that the same ID is in process (NATS-F-06). Nothing is buffered for a
// connection that is down; see [New] for clients that do.
//
// # Receiving and settling
//
// Receive pulls what it was asked for and nothing ahead. A pull waits for a
// quarter of the lease at most, and is made again. It doesn't wait for a rest
// that the server has no messages for; where the limit of unsettled deliveries
// ends a pull in its middle, the server says nothing, and the rest is waited for
// for a tenth of a second. What arrives after a Receive was cancelled is given
// back, at the cost of an attempt.
//
// On a server without a cluster the pull of a cancelled Receive is taken back. In
// a cluster that can strand a message until its lease ends (NATS-F-48). There a
// pull waits for half a second at most, and stays open when its Receive is
// cancelled, or has returned without the rest of it. The next Receive takes it
// over; what comes before that is given back as soon as the pull is over. Close
// waits for the pull's end.
//
// Every settle asks the server for an answer, so an outcome is Confirmed. The
// settles of a batch share reply subjects by 32: if one answer is lost, all 32
// are Unknown until they are settled again. An ack that finds no consumer is
// LeaseLost if the consumer is gone, and leaves the handle held if it exists. The
// server doesn't fence (NATS-F-16), package driver does. Handles end with their
// connection, for what a reconnect finds may be another server's stream; what
// they held comes again after its lease, or at once after Close.
//
// Extend moves the deadline by the consumer's AckWait, whatever Delay is asked
// for: the protocol has no other. Outcome.Lease says where it is. A Nack's
// delay is the server's.
//
// # Dead letters
//
// The server has no dead-letter queue, and stops delivering without a word at
// its own limit (NATS-F-24). With Entity.DeadLetter the limit is therefore kept
// here: the Nack of the last delivery, and the first delivery after it, publish
// the message to the dead-letter topic's own stream, with all its headers and
// onceline-dead-letter-reason, -source and -attempts, and then terminate it. If
// that publish fails the delivery stays as it was, and the outcome or Receive
// says why. The copy's dedup ID is the same on each try. MaxDeliveries counts
// deliveries by the server. Without DeadLetter it is the server's own limit, and
// the DeadLetter action is broker.ErrUnsupported.
//
// # Transactions
//
// A broker.Transactor sends what is published in a transaction as one atomic batch, at
// the commit: at most 1,000 messages to one stream, which must allow it (allow_atomic,
// since server 2.12). There are no acks in it, the ID is a name and fences nobody, and a
// message ID that the stream knows refuses the whole batch (NATS-F-300). A lost answer
// is resolved by looking in the stream and, within its window, by sending it again.
//
// # Raw access
//
// As of a connection, publisher or receiver sets a *nats.Conn or a
// jetstream.JetStream; As of a delivery sets a *nats.Msg. Acking through the
// latter goes behind the fence's back.
package nats
