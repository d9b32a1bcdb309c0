package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// Causes of this package's own, wrapped beside the broker's kind of error.
var (
	errSessionOver = errors.New("the connection was closed")
	errHungUp      = errors.New("the node hung up in the middle of the login; one that refuses the credentials says so")
	errNoSession   = errors.New("no connection came up")
	errClosing     = errors.New("the publisher was closed")
	errNacked      = errors.New("the broker answered basic.nack")
	errNoQueue     = errors.New("no queue took the message: 312 NO_ROUTE")
	errBlocked     = errors.New("the node is short of memory or disk and takes no publishes")
)

// kindOf is which of the broker's errors an SDK error means, where it says why a
// call failed. A node's reply carries a code of the protocol; what has none is a
// connection that is down.
func kindOf(err error) error {
	for _, kind := range []error{broker.ErrUnauthorized, broker.ErrNotFound, broker.ErrConflict, broker.ErrInvalid, broker.ErrTooLarge,
		broker.ErrBusy, broker.ErrUnsupported, broker.ErrUnroutable, broker.ErrClosed} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	var reply *amqp.Error
	if !errors.As(err, &reply) {
		var unknown x509.UnknownAuthorityError
		var verify *tls.CertificateVerificationError
		if errors.As(err, &unknown) || errors.As(err, &verify) || errors.Is(err, amqp.ErrSASL) {
			return broker.ErrUnauthorized
		}
		return broker.ErrUnavailable
	}
	switch reply.Code {
	case amqp.AccessRefused, amqp.NotAllowed:
		// 403 for credentials and permissions; 530 for a virtual host that the
		// user may not enter, or that doesn't exist.
		return broker.ErrUnauthorized
	case amqp.NotFound:
		return broker.ErrNotFound
	case amqp.PreconditionFailed, amqp.ResourceLocked:
		return broker.ErrConflict
	case amqp.ContentTooLarge:
		return broker.ErrTooLarge
	case amqp.ResourceError:
		return broker.ErrBusy
	case amqp.NotImplemented:
		return broker.ErrUnsupported
	}
	return broker.ErrUnavailable
}

// refusedByNode reports whether a node said that it won't have this client. That it
// drops the socket during the handshake doesn't say so: a node does that too when it
// restarts, and that heals.
func refusedByNode(err error) bool {
	var reply *amqp.Error
	return errors.As(err, &reply) && reply.Server && (reply.Code == amqp.AccessRefused || reply.Code == amqp.NotAllowed)
}

// badCredentials reports whether a node refused the user or the password. 530 isn't
// that: a node says so too when it has connections enough, and another may have room.
func badCredentials(err error) bool {
	var reply *amqp.Error
	return errors.As(err, &reply) && reply.Server && reply.Code == amqp.AccessRefused
}

// sizeLimit is the node's limit of a message's size, in bytes, if err is its
// refusal of one that is over it; 0 otherwise. Only the text says it.
func sizeLimit(err error) int {
	var reply *amqp.Error
	if !errors.As(err, &reply) || reply.Code != amqp.PreconditionFailed {
		return 0
	}
	_, rest, found := strings.Cut(reply.Reason, "is larger than configured max size ")
	if !found {
		return 0
	}
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	return number(rest[:n])
}

// failure wraps an SDK error of an administrative call. A context's end is shown
// with its cause.
func failure(ctx context.Context, err error, format string, args ...any) error {
	kind := kindOf(err)
	if kind == broker.ErrUnavailable && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return broker.Errorf(kind, err, format, args...)
}
