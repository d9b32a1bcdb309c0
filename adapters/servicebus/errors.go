package servicebus

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/onceline/onceline/broker"
)

// Causes of this package's own, wrapped beside the broker's kind of error.
var (
	errSessionLost = errors.New("the session is lost")
	errNoAnswer    = errors.New("no answer came in time")
	errNoAdmin     = errors.New("the connection was made without an admin client")
)

// conditions are the AMQP conditions by which the service refuses. A condition
// that isn't here is ErrRefused.
var conditions = map[amqp.ErrCond]error{
	amqp.ErrCondNotFound:                     broker.ErrNotFound,
	amqp.ErrCondResourceDeleted:              broker.ErrNotFound,
	amqp.ErrCondUnauthorizedAccess:           broker.ErrUnauthorized,
	amqp.ErrCondMessageSizeExceeded:          broker.ErrTooLarge,
	amqp.ErrCondResourceLimitExceeded:        broker.ErrBusy, // the entity is full
	amqp.ErrCondTransferLimitExceeded:        broker.ErrBusy, // no credit to send
	amqp.ErrCondResourceLocked:               broker.ErrBusy,
	amqp.ErrCondInvalidField:                 broker.ErrInvalid,
	amqp.ErrCondDecodeError:                  broker.ErrInvalid,
	amqp.ErrCondNotAllowed:                   broker.ErrRefused,
	amqp.ErrCondNotImplemented:               broker.ErrUnsupported,
	amqp.ErrCondInternalError:                broker.ErrUnavailable,
	amqp.ErrCondConnectionForced:             broker.ErrUnavailable,
	amqp.ErrCondDetachForced:                 broker.ErrUnavailable,
	amqp.ErrCondStolen:                       broker.ErrUnavailable,
	"com.microsoft:server-busy":              broker.ErrBusy,
	"com.microsoft:timeout":                  broker.ErrUnavailable,
	"com.microsoft:operation-cancelled":      broker.ErrUnavailable,
	"com.microsoft:entity-disabled":          broker.ErrUnavailable,
	"com.microsoft:entity-not-found":         broker.ErrNotFound,
	"com.microsoft:message-lock-lost":        broker.ErrLeaseLost,
	"com.microsoft:session-lock-lost":        broker.ErrLeaseLost,
	"com.microsoft:session-cannot-be-locked": broker.ErrBusy,
	"com.microsoft:argument-error":           broker.ErrInvalid,
	"com.microsoft:argument-out-of-range":    broker.ErrInvalid,
	"com.microsoft:auth-failed":              broker.ErrUnauthorized,
}

// kindOf is which of the broker's errors an SDK error means.
func kindOf(err error) error {
	var (
		coded     *azservicebus.Error
		condition *amqp.Error
		response  *azcore.ResponseError
		login     *azidentity.AuthenticationFailedError
	)
	switch {
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return broker.ErrTooLarge
	case errors.As(err, &condition):
		at := carrier(err)
		kind, known := conditions[condition.Condition]
		switch {
		case at == byConnection, !known && at == byLink:
			// Not an answer to the request, but the end of what carries it.
			return broker.ErrUnavailable
		case !known:
			return broker.ErrRefused
		}
		return kind
	case errors.As(err, &coded):
		return kindOfCode(coded)
	case errors.As(err, &response):
		return kindOfStatus(response.StatusCode)
	case errors.As(err, &login), strings.Contains(err.Error(), "DefaultAzureCredential"):
		return broker.ErrUnauthorized
	case strings.Contains(err.Error(), "closed by user"):
		return broker.ErrClosed
	}
	// What is left is a connection that is down or silent, a link that went, or a
	// context that ended.
	return broker.ErrUnavailable
}

// What an AMQP condition came by.
const (
	byItself     = iota // the answer to one request
	byLink              // the end of a link
	byConnection        // the end of a connection or AMQP session
)

func carrier(err error) int {
	var (
		link    *amqp.LinkError
		session *amqp.SessionError
		conn    *amqp.ConnError
	)
	switch {
	case errors.As(err, &conn), errors.As(err, &session):
		return byConnection
	case errors.As(err, &link):
		return byLink
	}
	return byItself
}

func kindOfCode(err *azservicebus.Error) error {
	switch err.Code {
	case azservicebus.CodeUnauthorizedAccess:
		return broker.ErrUnauthorized
	case azservicebus.CodeLockLost:
		return broker.ErrLeaseLost
	case azservicebus.CodeNotFound:
		return broker.ErrNotFound
	case azservicebus.CodeClosed:
		return broker.ErrClosed
	case azservicebus.CodeConnectionLost:
		// The SDK's error doesn't unwrap, so the condition beneath is found in
		// its text alone.
		return kindOfText(err.Error())
	}
	return broker.ErrUnavailable
}

// kindOfText finds an AMQP condition in the text of an SDK error that hides its
// cause: of those that the SDK takes for a lost connection, the ones that are an
// answer.
func kindOfText(text string) error {
	for _, c := range [...]amqp.ErrCond{"com.microsoft:session-lock-lost", "com.microsoft:message-lock-lost",
		amqp.ErrCondTransferLimitExceeded, amqp.ErrCondResourceDeleted, "com.microsoft:argument-error",
		"com.microsoft:argument-out-of-range", amqp.ErrCondInvalidField, amqp.ErrCondNotImplemented, amqp.ErrCondDecodeError,
		"com.microsoft:entity-not-found", "com.microsoft:auth-failed"} {
		if strings.Contains(text, string(c)) {
			return conditions[c]
		}
	}
	return broker.ErrUnavailable
}

func kindOfStatus(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return broker.ErrUnauthorized
	case http.StatusNotFound, http.StatusGone:
		return broker.ErrNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return broker.ErrConflict
	case http.StatusBadRequest:
		return broker.ErrInvalid
	case http.StatusTooManyRequests:
		return broker.ErrBusy
	}
	return broker.ErrUnavailable
}

// refused reports whether err is the service's own answer to a request, or the
// SDK's before a byte left, rather than the absence of one.
func refused(err error) bool {
	var condition *amqp.Error
	var coded *azservicebus.Error
	switch {
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return true
	case errors.As(err, &condition):
		return carrier(err) == byItself
	case errors.As(err, &coded) && coded.Code == azservicebus.CodeConnectionLost:
		// Conditions by which a message is refused, whether it is the message's
		// disposition or the link's end that carries them.
		switch kindOf(err) {
		case broker.ErrInvalid, broker.ErrUnsupported:
			return true
		}
	}
	return false
}

// cancelled reports whether err is the end of a context.
func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, errAttemptOver) || (err != nil && err.Error() == "context canceled")
}

// lostConnection reports whether err says that a network connection ended.
func lostConnection(err error) bool {
	var conn *amqp.ConnError
	var network net.Error
	return errors.As(err, &conn) || errors.As(err, &network) || errors.Is(err, io.EOF)
}

// needsSession reports whether the service refused because the entity has
// sessions and the request names none. It says so in words only.
func needsSession(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "session") &&
		(strings.Contains(text, string(amqp.ErrCondNotAllowed)) || strings.Contains(text, string(amqp.ErrCondInvalidField)) ||
			strings.Contains(text, "argument-error"))
}

// failure wraps an SDK error of a call that opens or administers. A context's
// end is shown with its cause.
func failure(ctx context.Context, err error, format string, args ...any) error {
	kind := kindOf(err)
	if ctx.Err() != nil && cancelled(err) {
		err = context.Cause(ctx)
	}
	return broker.Errorf(kind, err, format, args...)
}
