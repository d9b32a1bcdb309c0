package pubsub

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/broker"
)

// Causes of this package's own, wrapped beside the broker's kind of error.
var (
	errNoDeadLetter = errors.New("the subscription has no dead-letter topic")
	errUnordered    = errors.New("an earlier message of the key is not settled yet")
	errEarlierKey   = errors.New("an earlier part of the batch with this key failed, and order would be lost")
)

// kindOf is which of the broker's errors a gRPC status means.
func kindOf(err error) error {
	switch status.Code(err) {
	case codes.NotFound:
		return broker.ErrNotFound
	case codes.AlreadyExists, codes.FailedPrecondition:
		return broker.ErrConflict
	case codes.InvalidArgument, codes.OutOfRange:
		return broker.ErrInvalid
	case codes.PermissionDenied, codes.Unauthenticated:
		return broker.ErrUnauthorized
	case codes.ResourceExhausted:
		return broker.ErrBusy
	case codes.Unimplemented:
		return broker.ErrUnsupported
	}
	return broker.ErrUnavailable // also a context that ended
}

// refused reports whether a status says that the request was surely not carried
// out. Any other may come from a proxy or a connection after the service has done
// it.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.ResourceExhausted:
		return true
	}
	return false
}

// failure wraps the error of an administrative call. A context's end is shown
// with its cause.
func failure(ctx context.Context, err error, format string, args ...any) error {
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
		return broker.Errorf(broker.ErrUnavailable, err, format, args...)
	}
	return broker.Errorf(kindOf(err), err, format, args...)
}

// reasons are what the service says of the ack IDs that it could not settle on a
// subscription with exactly-once delivery; nil for an answer that isn't about
// them (PS-F-13).
func reasons(err error) map[string]string {
	for _, d := range status.Convert(err).Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok {
			continue
		}
		for _, why := range info.Metadata {
			if strings.HasPrefix(why, permanent) || strings.HasPrefix(why, transient) {
				return info.Metadata
			}
		}
	}
	return nil
}

// What the reasons begin with, and the one that heals only by another settle
// (PS-F-38).
const (
	permanent = "PERMANENT_FAILURE_"
	transient = "TRANSIENT_FAILURE_"
	unordered = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
)
