// Package pubsub is Google Cloud Pub/Sub in this process: the gRPC services
// Publisher and Subscriber, as far as the vendor's documentation fixes what they
// answer, over a model of our own.
//
//	s := pubsub.New()
//	go s.Serve(listener)
//	defer s.Close(ctx)
//
// Point a client at it by PUBSUB_EMULATOR_HOST, or by an endpoint without TLS and
// credentials.
//
// # What is modelled
//
// Topics, subscriptions, snapshots and their limits; Publish all or nothing
// (PS-F-05), with the limits on attributes and keys (PS-F-20, PS-F-35); Pull and
// StreamingPull with flow control; leases of 0 to 600 s (PS-F-09); the answers of
// subscriptions with exactly-once delivery, by ErrorInfo, and the silence of
// those without (PS-F-16, PS-F-36); delivery attempts, counted for each
// subscription and shown only with a dead-letter policy (PS-F-26); dead-letter
// topics with the vendor's attributes (PS-F-37); retry policies (PS-F-28);
// ordering keys, where what follows a redelivered message is redelivered with it
// (PS-F-21, PS-F-38); retention (PS-F-24); filters; Seek.
//
// Where documentation is silent the answers are those of the vendor's own
// emulator, version 0.8.20, which the tests are run against by hand
// (ONCELINE_PUBSUB=host:port go test -run TestReal). It takes more than the
// service does (long attributes, several keys in a request) and ignores retry
// policies; there the documentation is followed.
//
// Push, BigQuery and Cloud Storage subscriptions, schemas, message transforms and
// IAM are UNIMPLEMENTED. Expiration policies are kept and not carried out.
//
// # Time
//
// All time is that of [Server.Clock], which can be moved.
//
// # State
//
// It lives as long as the Server. [Server.Restart] ends all connections and keeps
// everything, for the service is one that doesn't lose what it has stored: killed
// or not is the same.
//
// # Faults
//
// [Server.Inject] strikes by class: Publish is the method Publish, Receive is Pull
// and StreamingPull, Settle is Acknowledge and ModifyAckDeadline, Admin all the
// rest. Match is the ID of the topic or subscription in the request, without the
// project, or its full name; a request about a subscription is about its topic too.
// API is the method's name, Code a gRPC status code, by
// default 14, UNAVAILABLE. LoseRequest and LoseResponse hold the call until the
// client gives up, Cut closes its connection. A StreamingPull is struck as it
// opens; LoseResponse on Receive drops each response that hands out messages, which
// stay leased.
package pubsub
