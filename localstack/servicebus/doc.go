// Package servicebus is Azure Service Bus in this process: an AMQP 1.0 peer with
// queues, topics, subscriptions, sessions, duplicate detection, scheduled and
// deferred messages and dead-letter sub-queues, and the HTTP interface of the
// administration clients beside it on the same port.
//
// It holds what the vendor documents, or what was recorded of the service; each
// rule names its fact (SB-F-14). Where neither says, a comment does.
//
// # Connecting
//
// A messaging client takes a connection string like
//
//	Endpoint=sb://127.0.0.1:PORT;SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true
//
// which makes it speak plain AMQP to the port of the listener that [Server.Serve]
// was given. Name and key are held against those of [SharedAccessKey]; without any,
// all are good.
//
// The administration client of the Go SDK has no such switch: it speaks HTTPS to
// the endpoint, always. So a server with the option [TLS] takes both protocols with
// TLS as well as without, on the same port; give the client a transport that trusts
// the certificate:
//
//	admin.NewClientFromConnectionString(connection, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
//		Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}},
//	}})
//
// A messaging client over TLS needs ServerName in its tls.Config, for the SDK would
// ask the certificate for the name with its port. Without that option, [PlainTransport] is a transport that takes the S out of
// HTTPS. Entities can also be made in this process, by [Server.CreateQueue] and its
// like.
//
// # What isn't there
//
// Transactions, links that time out when idle, quotas of size and of connections,
// AMQP over WebSockets.
package servicebus
