package broker

import (
	"errors"
	"fmt"
)

// The errors of all brokers, to be tested with errors.Is. Each that an adapter
// returns wraps one of these and the SDK's own error.
var (
	ErrInvalid        = errors.New("invalid")                      // the caller's input; nothing was sent
	ErrRefused        = errors.New("refused by the broker")        // for a reason that has no error of its own here
	ErrTooLarge       = errors.New("too large")                    // body, headers or batch over a limit
	ErrUnroutable     = errors.New("unroutable")                   // no queue, stream or partition takes the message
	ErrUnknownOutcome = errors.New("outcome unknown")              // the answer was lost; ask again with the same ID or handle
	ErrLeaseLost      = errors.New("lease lost")                   // too late; somebody else has or will get the message
	ErrWindowExceeded = errors.New("dedup window exceeded")        // a retry could become a second message
	ErrUnsupported    = errors.New("not supported by this broker") // a wish which this broker or configuration can't meet
	ErrNotFound       = errors.New("not found")                    // the entity doesn't exist
	ErrConflict       = errors.New("conflict")                     // with what exists, or with an earlier call
	ErrUnauthorized   = errors.New("unauthorized")                 // credentials or permissions
	ErrBusy           = errors.New("broker pushes back")           // full, throttled or over a quota; try later
	ErrUnavailable    = errors.New("unavailable")                  // no connection, no leader, or shutting down
	ErrClosed         = errors.New("closed")                       // this handle was closed
	ErrFenced         = errors.New("fenced")                       // somebody else opened the same transactor ID, or the broker took this one for gone
	ErrAborted        = errors.New("transaction aborted")          // surely nothing of it took effect
)

// Errorf is fmt.Errorf for adapters and wrappers: "what: kind: cause", so that
// errors.Is finds both kind and cause, and what format wraps by %w. A nil cause is
// left out.
func Errorf(kind, cause error, format string, args ...any) error {
	what := fmt.Errorf(format, args...)
	if cause == nil {
		return fmt.Errorf("%w: %w", what, kind)
	}
	return fmt.Errorf("%w: %w: %w", what, kind, cause)
}

// amount is n of what one is called in errors: "1 attempt", "2 attempts".
func amount(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
