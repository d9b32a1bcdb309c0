// Package servicebus is the adapter for Azure Service Bus.
//
//	conn, err := broker.Open(ctx, "servicebus://orders.servicebus.windows.net")
//	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders"})
//	pub, err := conn.OpenPublisher(ctx, "orders")
//	rcv, err := conn.OpenReceiver(ctx, "orders")
//
// [Dial], [FromConnectionString], [FromCredential] and broker.Open make the SDK's
// client, [New] takes one. [BoundaryQueue] and [BoundarySessions] say where the
// guarantees end. Facts such as SB-F-14 are in docs/facts.md.
//
// # Names
//
// A topic is the name of a queue or topic. A subscription is QUEUE or
// TOPIC/SUBSCRIPTION (TOPIC/Subscriptions/SUBSCRIPTION where the topic's own name
// has slashes); with /$deadletterqueue behind it, it is its dead letters.
//
// Ensure makes a queue where Entity.Subscription is empty or the topic itself, and
// a topic with a subscription where it is TOPIC/SUBSCRIPTION. Both get duplicate
// detection unless [WithoutDuplicateDetection] is set: it can't be switched later
// (SB-F-02). Ordered makes a queue or subscription with sessions. DeadLetter is a
// queue, made along with the rest (with sessions where the source has them, for the
// messages keep theirs), to which the service forwards dead letters. Window is 20 s
// to 7 days, Lease 5 s to 5 minutes, MaxDeliveries up to 2000; MaxBody sets the
// premium tier's limit, in KB for body and headers, of 1 MB or more; all else, and
// Partitions over 1, is broker.ErrUnsupported. Delete removes what Ensure made,
// which it marks in the user metadata, and leaves others alone.
//
// # URL
//
//	servicebus://[KEYNAME:KEY@]HOST[:PORT][?parameter=value...]
//
// HOST is the namespace's, NAME.servicebus.windows.net. Percent-encode what a key
// has of / + and =. Without a key azidentity's default chain gives the credential.
// A loopback is spoken to without TLS and takes any key, as the vendor's emulator
// does. The parameters:
//
//	tls=true              TLS on a loopback too
//	ca=FILE               roots in PEM ([TLS])
//	admin=HOST:PORT       of the HTTP interface for Ensure and Delete ([AdminEndpoint])
//	sessions=true         all entities have sessions ([RequireSessions])
//	duplicate-detection=false   for what Ensure makes ([WithoutDuplicateDetection])
//	settle-timeout=DURATION     ([SettleTimeout], 15 s)
//	session-idle=DURATION       ([SessionIdle], 50 ms)
//	application-id=NAME   for the service's logs ([ApplicationID])
//
// Anything else is broker.ErrInvalid. Nothing goes out in plaintext beyond the
// loopback.
//
// # Messages
//
//	ID       MessageID, if it has at most 128 bytes, no control characters, and
//	         Copy is empty; otherwise a hash of ID and Copy, and the ID in
//	         onceline-id. It is always set: the SDK would invent one (SB-F-08)
//	Copy     onceline-copy
//	Key      SessionID, if it has at most 128 bytes; otherwise its hash, and the key
//	         in onceline-key. On a partitioned entity it is the partition key too
//	         (SB-F-05). Received messages of others without one have their
//	         PartitionKey
//	Body     the data section
//	Headers  application properties of the same name where they can be; see below
//	Time     onceline-time, Unix milliseconds
//	Attempt  the service's delivery count, exact (SB-F-18)
//	Position Offset is the sequence number
//	Lease    the lock's end, or the session lock's
//
// A user's header is an application property of type string if name and value are
// valid UTF-8 and the name means nothing to service, SDK or toolkit. Properties
// have no order and no repeats: the receiver sorts them, and where that isn't the
// list that was sent, onceline-headers carries all of it and counts. Properties of
// other producers come as headers whatever their type: numbers in decimal, times
// in RFC 3339. A dead letter has onceline-dead-letter-reason, -source and, by this
// adapter, -attempts.
//
// # Limits
//
// Headers: about 56 KB, checked before a byte is sent. Body: what the admin
// interface tells of the entity; where it doesn't, the SDK's own limit, which
// also refuses before a byte is sent (broker.ErrTooLarge): 256 KB for a whole
// message on the standard tier (SB-F-11).
//
// The SDK may leave a goroutine behind that renews an authorization, where opening
// a link failed half way: seen under injected faults, up to some dozen. It ends with
// the process.
//
// # Publishing
//
// A call's messages are packed into as few batches as the service's limit allows,
// sent one after the other. A batch is one transfer with one answer (SB-F-10).
// Each transfer is made once, whatever the semantics and the client's retry
// options: the SDK's own repeat (SB-F-50) is suppressed, so without duplicate
// detection nothing is doubled behind the receipt. broker.Retry is the retry. A
// transfer that found its link dead never left, and is made over a new one.
//
// A message is Refused if the service said so or it surely didn't leave, and
// Unknown if connection or context ended before the answer.
//
// # Receiving
//
// The lock of a message runs from its hand-over, and the SDK can't take back
// credit that was left over: what comes for it is released again, as often as
// there is credit (SB-F-53). So a pull asks for 8 messages at first, twice as many
// when all of them came, and for as many as came when they were fewer. Receive with
// a max of 100 therefore returns fewer than are there in its first calls.
//
// Leases are counted by the service's clock where that agrees with this
// process's, and otherwise from before the message was asked for; see [Clock].
//
// In a session nothing is left over, for its order would end there: a pull asks for
// one message, and then for as many as a look into the session shows, which costs a
// batch two more round trips.
//
// With sessions the receiver holds one at a time and goes on to the next by itself
// when nothing more comes of it ([SessionIdle], or four times what its first message
// took to come, where that is longer). A session with deliveries in hand
// is kept beside, its order intact. Its lock is renewed while its messages are
// taken; Extend renews it for all its deliveries. When its link or lock is lost all
// its deliveries are LeaseLost at once. A session of which nothing is in hand is
// let go half a second after the last call, and 50 ms after one that nothing came of.
// To get one takes a dozen round trips: the try goes on for as long, for the next
// Receive to take over, so that calls of any length get there. Open more receivers to
// work on several sessions at a time.
//
// # Settling
//
// The SDK settles one message a call; a batch is settled by 16 workers, which
// start with the call and end with it. A lost lock is LeaseLost at once: the SDK's
// own repeats, which take up to a minute (SB-F-51), are suppressed. What has no
// answer within [SettleTimeout] is Unknown. Asked again, it is settled by its lock
// token through the management link; "lock lost" then doesn't say whether the first
// was taken, and the outcome stays Unknown (SB-F-16).
//
// Deliveries of a queue outlive their link and connection: they are settled by
// lock token over the next one. A Nack's delay is broker.ErrUnsupported (SB-F-21),
// and so is dead-lettering a dead letter. Extend renews by the entity's own lock
// duration, whatever Delay is asked for.
//
// Close gives back what is in hand, at the cost of an attempt each.
//
// # Raw access
//
// As of a connection, publisher or receiver sets an *azservicebus.Client or an
// *admin.Client; of a publisher also an *azservicebus.Sender, of a receiver without
// sessions an *azservicebus.Receiver; of a delivery an
// *azservicebus.ReceivedMessage, and with sessions an
// *azservicebus.SessionReceiver. Settling through these goes behind the fence's
// back.
package servicebus
