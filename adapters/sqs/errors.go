package sqs

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onceline/onceline/broker"
)

// Causes of this package's own, wrapped beside the broker's kind of error.
var (
	errNoAnswer = errors.New("the answer doesn't name the entry")
	errChecksum = errors.New("the body's MD5 in the answer differs")
	errBehind   = errors.New("an earlier message of its key is not known to be stored")
	errNotSent  = errors.New("not sent")
	errGone     = errors.New("somebody else may hold the message by now")
	errNoLetter = errors.New("the queue has no redrive policy that names a dead-letter queue")
)

// queryPrefix is what some codes begin with where the service says them by the
// names of its older protocol.
const queryPrefix = "AWS.SimpleQueueService."

// kindOfCode is which of the broker's errors a code of the service means. The
// codes of requests and those of a batch's entries are the same.
func kindOfCode(code, message string) error {
	switch strings.TrimPrefix(code, queryPrefix) {
	case "QueueDoesNotExist", "NonExistentQueue", "ResourceNotFoundException":
		return broker.ErrNotFound
	case "QueueNameExists", "QueueAlreadyExists":
		return broker.ErrConflict
	case "BatchRequestTooLong":
		return broker.ErrTooLarge
	case "InvalidMessageContents", "InvalidAttributeName", "InvalidAttributeValue", "MissingParameter", "InvalidAddress",
		"BatchEntryIdsNotDistinct", "EmptyBatchRequest", "InvalidBatchEntryId", "TooManyEntriesInBatchRequest", "ValidationException":
		return broker.ErrInvalid
	case "InvalidParameterValue", "InvalidParameterValueException", "InvalidParameterCombination":
		if tooLong(message) {
			return broker.ErrTooLarge
		}
		return broker.ErrInvalid
	case "UnsupportedOperation":
		return broker.ErrUnsupported
	case "RequestThrottled", "ThrottlingException", "Throttling", "TooManyRequestsException", "OverLimit", "QueueDeletedRecently",
		"PurgeQueueInProgress", "KmsThrottled", "KMS.ThrottlingException", "RequestLimitExceeded", "SlowDown":
		return broker.ErrBusy
	case "AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidSecurity", "InvalidClientTokenId", "UnrecognizedClientException",
		"SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
		"ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "OptInRequired", "NotAuthorized",
		"KmsAccessDenied", "KMS.AccessDeniedException", "KmsOptInRequired", "KMS.OptInRequired":
		return broker.ErrUnauthorized
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidIdFormat":
		return broker.ErrLeaseLost
	case "InternalError", "InternalFailure", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException":
		return broker.ErrUnavailable
	}
	return broker.ErrRefused
}

// tooLong reports whether a message of the service is about a message's size,
// for which it has no code of its own.
func tooLong(message string) bool { return strings.Contains(message, "must be shorter than") }

// handleLost reports whether an answer to a settle says that the handle's time
// is over. The service has codes for some of it; that a FIFO handle has expired
// and that the message is deleted are told by their text alone (SQS-F-20,
// SQS-F-22).
func handleLost(code, message string) bool {
	if kindOfCode(code, message) == broker.ErrLeaseLost {
		return true
	}
	return strings.HasPrefix(code, "InvalidParameterValue") &&
		(strings.Contains(message, "handle has expired") || strings.Contains(message, "not available for visibility timeout change"))
}

// failed is what a request that failed as a whole means.
type failed struct {
	kind error // of the broker's errors
	// surely is set where nothing of the request took effect: it was refused, or
	// it never left.
	surely bool
	// answered is set where the service itself said no.
	answered      bool
	code, message string
}

// explain reads an error of the SDK. b is the body of the request, nil if that wasn't
// watched.
func explain(err error, b *outgoing) failed {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		f := failed{answered: true, code: codeOf(api), message: api.ErrorMessage()}
		f.kind = kindOfCode(f.code, f.message)
		status := 0
		if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
			status = r.HTTPStatusCode()
		}
		switch {
		case f.kind == broker.ErrRefused && status >= 500:
			f.kind = broker.ErrUnavailable
		case f.kind == broker.ErrRefused && (status == 401 || status == 403):
			f.kind = broker.ErrUnauthorized
		}
		// A failure inside the service may come after the request took effect.
		f.surely = f.kind != broker.ErrUnavailable
		return f
	}
	// The SDK puts an empty response around errors of the transport too.
	_, sending := errors.AsType[*smithyhttp.RequestSendError](err)
	_, canceled := errors.AsType[*smithy.CanceledError](err)
	if sending || canceled || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return failed{kind: broker.ErrUnavailable, surely: b.never()}
	}
	_, response := errors.AsType[*smithyhttp.ResponseError](err)
	_, garbled := errors.AsType[*smithy.DeserializationError](err)
	if response || garbled {
		return failed{kind: broker.ErrUnavailable} // an answer that can't be read
	}
	// What is left failed before the transport: credentials, endpoint, input.
	kind := broker.ErrUnavailable
	var op *smithy.OperationError
	if errors.As(err, &op) && strings.Contains(op.Err.Error(), "credential") {
		kind = broker.ErrUnauthorized
	}
	return failed{kind: kind, surely: true}
}

// codeOf is the service's code. ErrorCode may be that of the older protocol, so
// the types that matter are told apart by themselves.
func codeOf(err smithy.APIError) string {
	switch err.(type) {
	case *types.QueueDoesNotExist:
		return "QueueDoesNotExist"
	case *types.QueueNameExists:
		return "QueueNameExists"
	case *types.ReceiptHandleIsInvalid:
		return "ReceiptHandleIsInvalid"
	case *types.MessageNotInflight:
		return "MessageNotInflight"
	}
	return err.ErrorCode()
}

// entryFailure is what the service said of one entry of a batch.
type entryFailure struct{ code, message string }

func (e *entryFailure) Error() string { return e.code + ": " + e.message }

func entryError(f *types.BatchResultErrorEntry) (code, message string) {
	return aws.ToString(f.Code), aws.ToString(f.Message)
}

// failure wraps an SDK error of an administrative call. A context's end is shown
// with its cause.
func failure(ctx context.Context, err error, format string, args ...any) error {
	f := explain(err, nil)
	if ctx.Err() != nil && !f.answered {
		err = context.Cause(ctx)
	}
	return broker.Errorf(f.kind, err, format, args...)
}
