// Package rabbitmq is a RabbitMQ broker in this process: a server of AMQP 0-9-1
// that any client library can talk to, with a movable clock, faults by protocol
// operation, and restarts.
//
// It behaves like RabbitMQ 4.3, or, by [WithRelease], like 3.10, where the two
// differ. What it answers as 3.10 is held line by line against what a real 3.10.8
// answered (testdata/transcripts); what is different in 4.3 is taken from its
// documentation and source, and each such rule names its fact.
//
// # What there is
//
//   - Virtual hosts and users ([WithVHosts], [WithUsers]); PLAIN, AMQPLAIN, and
//     EXTERNAL on TLS connections that showed a verified certificate.
//   - Exchanges of the types direct, fanout, topic and headers, bindings between
//     exchanges, alternate exchanges, CC and BCC.
//   - Classic and quorum queues: durable, exclusive, auto-delete; TTLs, expiry,
//     length limits with all overflow modes, priorities, single active consumers,
//     dead-letter exchanges with x-death, delivery counts and limits.
//   - Confirms, mandatory returns, transactions, prefetch of consumers and channels,
//     consumer priorities and timeouts, direct reply-to, heartbeats.
//   - RabbitMQ's error codes and texts.
//
// # What there isn't
//
// Permissions within a virtual host, policies, the management interface, clusters,
// flow control by connection.blocked, AMQP 1.0, x-death of other protocols, the
// delayed retry of quorum queues (RMQ-F-20), at-least-once dead-lettering
// (x-dead-letter-strategy is taken, and letters move at once, RMQ-F-17), exchange
// types of plugins. Streams are of the stream protocol alone: [WithStreams] hands
// its connections on, and a declaration of a stream by AMQP is refused with 540.
// A classic queue tells 64 priorities apart. The memory is the disk: a queue holds
// what the process can.
//
// # Faults
//
// [Server.Faults] strikes requests by class:
//
//	Publish  basic.publish, with its confirm and its return as the answer; tx.commit
//	Receive  basic.consume, basic.get; with LoseResponse each basic.deliver and
//	         basic.get-ok that hands out a message
//	Settle   basic.ack, basic.nack, basic.reject, which have no answer; tx.commit
//	Admin    exchange.* and queue.*
//
// and everything else ("basic.qos", "basic.cancel", "channel.open",
// "connection.open") by its name in Fault.API alone. Fault.Match equals a queue, an
// exchange or a routing key that the request names, or for a publish a queue that
// it reaches. A message whose confirm was lost is never confirmed, also not by a
// later confirm that would cover it. A channel whose request is delayed waits with
// all that is behind it. Fault.Code is a reply code; 404 closes the channel, 541
// the connection. 0 stands for a basic.nack of a publish with confirms, and else
// for 541.
package rabbitmq
