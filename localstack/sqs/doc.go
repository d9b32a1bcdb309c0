// Package sqs is an Amazon SQS endpoint in this process, for tests and for
// development. It speaks the JSON protocol of the vendor's SDKs (X-Amz-Target
// AmazonSQS.…, application/x-amz-json-1.0) and all 23 operations, keeps all state
// in memory, and follows the service where a document states or a recording shows
// what that does: each rule cites its fact in docs/facts.md. The vendor's answers
// that nobody documents are modelled, and said to be so there.
//
// A [Server] is an http.Handler. [Server.Serve] runs it on a listener,
// [Server.Transport] without one:
//
//	s := sqs.New()
//	go s.Serve(listener)
//	defer s.Close(ctx)
//
// Point an SDK at it by its base endpoint; any credentials do. Signatures are not
// verified, and permissions are kept but not enforced.
//
// # Time
//
// Leases, delays, retention, the dedup window, long polls and the once-a-minute
// rules count by [Server.Clock], which can be moved ahead, and run inside
// testing/synctest.
//
// # Faults
//
// [Server.Faults] strikes requests by class. SendMessage and SendMessageBatch are
// Publish; ReceiveMessage is Receive; DeleteMessage, ChangeMessageVisibility and
// their batches are Settle; everything else is Admin. Match is the name of a
// queue, API that of an operation. A request whose request or response is lost is
// held until its client gives up, as it looks over a network, or until Restart or
// Close. LoseResponse on a ReceiveMessage strikes only an answer that holds
// messages. Code is an HTTP status:
//
//	0, 503  ServiceUnavailable
//	500     InternalFailure
//	429     ThrottlingException
//	403     RequestThrottled
//	401     AccessDenied (as a 403)
//	404     AWS.SimpleQueueService.NonExistentQueue (as a 400)
//	400     InvalidParameterValue
//	other   InjectedNNN
//
// # What is not there
//
// The query protocol (XML), cross-account access, encryption, throttling, the
// reordering and the doubled deliveries of a real standard queue (SQS-F-25), and
// the lag of the approximate counts, which are exact here.
package sqs
