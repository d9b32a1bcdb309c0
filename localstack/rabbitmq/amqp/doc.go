// Package amqp is the wire format of AMQP 0-9-1 as RabbitMQ speaks it: frames,
// field tables, message properties and the numbers of its methods. It holds no
// state and knows nothing of connections.
//
// Every decoder takes bytes that a stranger sent: it returns an error where they
// don't fit, and allocates no more than a small multiple of what it was given.
package amqp

// Protocol is the header by which a client opens a connection, and with which a
// server answers one that it doesn't understand.
var Protocol = [8]byte{'A', 'M', 'Q', 'P', 0, 0, 9, 1}
