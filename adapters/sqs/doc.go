// Package sqs is the adapter for Amazon SQS, FIFO and standard queues.
//
//	conn, err := broker.Open(ctx, "sqs://?region=eu-west-1")
//	err = conn.Ensure(ctx, broker.Entity{Topic: "orders.fifo", Subscription: "orders.fifo"})
//	pub, err := conn.OpenPublisher(ctx, "orders.fifo")
//	rcv, err := conn.OpenReceiver(ctx, "orders.fifo")
//
// [Dial] and broker.Open make a client, [New] takes one. [BoundaryFIFO],
// [BoundaryFIFOGroups] and [BoundaryStandard] say where the guarantees end.
// Facts such as SQS-F-22 are in docs/facts.md.
//
// # Names
//
// Topic and subscription are both the queue's name. A queue whose name ends in
// .fifo is a FIFO queue, any other a standard one, and names are used as they
// are. With fifo=true ([FIFO]) every name is that of a FIFO queue, and .fifo is
// added where it lacks: orders and orders.fifo are then the same queue. With
// fifo=false none is. A wish for order or a window on the name of a standard
// queue is broker.ErrUnsupported and says what to do; it never makes a queue of
// the other kind. ACCOUNT/name is a queue of another account.
//
// Ensure makes the queue and its dead-letter queue. Entity.Lease is the
// visibility timeout, in whole seconds up to twelve hours; Window is five minutes
// on a FIFO queue and nothing else (SQS-F-02); MaxDeliveries and DeadLetter are
// the redrive policy, which has a limit of 1000 where none is wished for; MaxBody
// is a limit of the message that leaves 4096 bytes for attributes and a third for
// base64; Partitions over 1, StartFrom, a limit of deliveries without a
// dead-letter queue and anything else that a queue can't be are
// broker.ErrUnsupported. Delete removes what Ensure made, which it marks by the
// tag onceline-made; the service admits no queue of the name for a minute then.
//
// # URL
//
//	sqs://[key:secret@][host[:port]]/[?parameter=value...]
//
// Without a host the endpoint is that of AWS in the region. A host is an
// endpoint: an emulator, or one of a VPC. Credentials, region and the rest come
// from the SDK's default chain (environment, shared files and profiles, SSO, web
// identity, container and instance roles) as far as the URL doesn't say them.
// The parameters:
//
//	region=NAME           of AWS; for an endpoint us-east-1 if nothing names one
//	profile=NAME          of the shared files
//	anonymous=true        made-up credentials, for emulators that check none
//	tls=true|false        to an endpoint; default true, and false for a loopback
//	ca=FILE               roots in PEM, for tls
//	fifo=true|false       what names mean ([FIFO])
//	high-throughput=true  of new FIFO queues ([HighThroughput])
//	pack-keys=true        several messages of a key in one request ([PackKeys])
//	wait=5s               of one poll, whole seconds up to 20s ([PollWait])
//	max-requests=8        of one call at a time ([MaxRequests])
//
// Anything else is broker.ErrInvalid. Credentials in the URL need TLS beyond the
// loopback. The secret key is never sent, but a session token of the chain is:
// tls=false beyond the loopback is for networks that one trusts.
//
// # Messages
//
//	ID       attribute onceline-id, always; on a FIFO queue also
//	         MessageDeduplicationId: the ID where it fits (128 bytes of ASCII
//	         without spaces and control characters, SQS-F-01) and Copy is empty,
//	         else a hash of ID and Copy
//	Copy     onceline-copy
//	Key      MessageGroupId on a FIFO queue, its hash and onceline-key where it
//	         doesn't fit; onceline-key on a standard queue. Without a key the
//	         group is the dedup ID: the message waits for none and blocks none
//	Body     the body as text where it is valid UTF-8 of the characters that XML
//	         1.0 admits; otherwise base64 with onceline-body=base64. An empty body,
//	         which the service refuses, has onceline-body=empty
//	Headers  attributes of the same name, of type String; see below
//	Time     onceline-time, Unix milliseconds
//	Attempt  ApproximateReceiveCount (SQS-F-33)
//	Position Token is the SequenceNumber of a FIFO queue, 20 digits, and the
//	         message's own ID on a standard queue
//	Lease    asked for the message + visibility timeout
//
// Values of onceline-id, -copy, -key and of the dead-letter attributes are
// percent-encoded where they aren't printable ASCII; a percent sign is encoded
// too. A message has ten attributes at most, and they have no order: the
// receiver sorts them by name. Where that isn't the list that was sent, for its
// order, repeats, number, names or values, the attribute onceline-headers carries
// all of it and counts; of the rest as many as there is room for are there as
// well, for consumers that don't know the envelope. Messages of other producers
// come with their MessageDeduplicationId as ID, or on a standard queue the
// service's own MessageId, with their group as Key, and all their attributes as
// headers, binary ones as bytes.
//
// # Limits
//
// A message has 1 MiB or what the queue's MaximumMessageSize says, its body and
// the names, types and values of its attributes together (SQS-F-15); that is
// checked before a byte is sent. A body in base64 has three quarters of it. Those
// of one request have 1 MiB together, and are split accordingly.
//
// # Publishing
//
// A publish is split into requests of ten messages, and each message has its own
// receipt: Stored on a standard queue, Accepted on a FIFO queue, which doesn't
// say whether it knew the ID (SQS-F-03). A failed entry harms no other entry, a
// failed request no other request, and nothing is sent twice: the SDK's retries
// are off (SQS-F-13), so AtMostOnce and AtLeastOnce are the same, and
// broker.Retry is the retry. Refused means that the service said so, or that the
// HTTP transport never read the request's body; where an answer is lost, torn or a
// failure inside the service, or its MD5 of the body doesn't fit, the message is
// Unknown. A transport of one's own that sends what it hasn't read would be believed.
//
// On a standard queue up to [MaxRequests] requests go side by side. On a FIFO
// queue a request carries at most one message of a key, and the next of the key
// is sent as that one is known to be stored; if it isn't, those behind it in the
// call are Refused with ErrUnavailable and not sent, so that nothing overtakes
// it, and a retry sends them all in order. (One that is refused as invalid or
// too large blocks nothing.) So the order of a key costs a request for each
// message; many keys share requests. [PackKeys] gives that up within a request.
//
// # Receiving and settling
//
// Receive asks for what it was asked for, ten in one request and beyond that
// side by side. It polls for a second at first and for longer as it goes on, up
// to [PollWait] and a quarter of the lease; leases of less than four seconds are
// polled without waiting.
//
// A poll is not cancelled with its Receive, for the service may have handed
// messages out that a client which hangs up never sees. It runs on, the next
// Receive takes it over, and where there is none its messages are given back as
// they arrive, at the cost of an attempt; Close waits for it. On a FIFO queue a
// poll whose answer was lost is asked again with the same
// ReceiveRequestAttemptId (SQS-F-27); on a standard queue what it handed out
// comes again after its lease.
//
// Acks are DeleteMessageBatch, nacks and extends ChangeMessageVisibilityBatch,
// each entry with its own outcome, and two handles of one message never in the
// same request. An entry that the service fails by its own fault is sent up to
// three times. A handle that has expired is LeaseLost: package driver refuses it,
// and a FIFO queue too (SQS-F-22); a standard queue would take it (SQS-F-21). An
// ack whose answer was lost is Unknown, and may be asked again within the lease. A
// nack on a standard queue is not sent a second time, for it could hit the next
// consumer's lease. Delays count in whole seconds, rounded up. All leases of a
// delivery together last twelve hours at most (SQS-F-18): an Extend beyond is cut
// to it, as Outcome.Lease says, and a Nack with a delay beyond is
// broker.ErrUnsupported. That a message was deleted under a living lease the
// service doesn't say: an ack of it is Confirmed.
//
// # Dead letters
//
// With a redrive policy the action DeadLetter and the Nack of the last delivery
// send the message to the dead-letter queue, with all its headers and
// onceline-dead-letter-reason, -source and -attempts, and delete it then. The
// copy's dedup ID is the same on each try. If it can't be sent, a DeadLetter
// leaves the delivery as it was, and a Nack is a plain one, after which the
// service's own policy moves the message, as it does one whose last lease ended:
// when somebody next receives from the queue, and without a reason (SQS-F-34,
// SQS-F-35). A dead letter that is published again within five minutes needs a
// Copy, or the FIFO queue swallows it (SQS-F-04).
//
// # Permissions
//
// sqs:GetQueueUrl, and SendMessage, or ReceiveMessage, DeleteMessage and
// ChangeMessageVisibility. Without sqs:GetQueueAttributes the lease is 30 s and no
// dead-letter queue is known. Ensure needs CreateQueue and TagQueue, Delete needs
// ListQueueTags and DeleteQueue.
//
// # Raw access
//
// As of a connection, publisher or receiver sets a *sqs.Client of the SDK, of the
// latter two also a [Queue]; As of a delivery sets a *types.Message. Deleting
// through its handle goes behind the fence's back.
package sqs
