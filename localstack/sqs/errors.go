package sqs

import (
	"fmt"
	"net/http"
	"strconv"
)

// apiError is an answer that refuses a request. On the wire it has two names: the
// shape of the JSON protocol in the body, and the older code of the query protocol
// in a header, which SDKs report as the error's code (SQS-F-55).
type apiError struct {
	status int    // HTTP
	shape  string // what __type says, with its namespace
	code   string // what x-amzn-query-error says
	msg    string
}

func (e *apiError) Error() string { return e.code + ": " + e.msg }

// sender says whose fault it is, as the wire wants to know.
func (e *apiError) sender() bool { return e.status < http.StatusInternalServerError }

const (
	modelled = "com.amazonaws.sqs#"        // shapes that the API's model names
	coral    = "com.amazon.coral.service#" // shapes common to the vendor's services
	legacy   = "AWS.SimpleQueueService."   // prefix of most codes of the query protocol
	wrongFor = "The request include parameter that is not valid for this queue type."
)

func failure(status int, shape, code, format string, args ...any) *apiError {
	return &apiError{status, shape, code, fmt.Sprintf(format, args...)}
}

// invalid is the vendor's answer to most that is wrong (SQS-F-55).
func invalid(format string, args ...any) *apiError {
	return failure(http.StatusBadRequest, coral+"InvalidParameterValueException", "InvalidParameterValue", format, args...)
}

// invalidValue names the value, the parameter and the reason.
func invalidValue(value, parameter, reason string) *apiError {
	return invalid("Value %s for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

func missing(parameter string) *apiError {
	return failure(http.StatusBadRequest, coral+"MissingRequiredParameterException", "MissingParameter", "The request must contain the parameter %s.", parameter)
}

func serialization(why string) *apiError {
	return failure(http.StatusBadRequest, coral+"SerializationException", "SerializationException", "%s", why)
}

func unknownOperation() *apiError {
	return failure(http.StatusBadRequest, coral+"UnknownOperationException", "UnknownOperationException", "The requested operation is not supported or is not recognized.")
}

func tooLarge() *apiError {
	return failure(http.StatusRequestEntityTooLarge, coral+"RequestEntityTooLargeException", "RequestEntityTooLarge", "The request could not be read whole.")
}

func noQueue() *apiError {
	return failure(http.StatusBadRequest, modelled+"QueueDoesNotExist", legacy+"NonExistentQueue", "The specified queue does not exist.")
}

func noResource(format string, args ...any) *apiError {
	return failure(http.StatusNotFound, modelled+"ResourceNotFoundException", "ResourceNotFoundException", format, args...)
}

func unknownAttribute(name string) *apiError {
	return failure(http.StatusBadRequest, modelled+"InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute %s.", name)
}

func badAttribute(name, reason string) *apiError {
	if reason != "" {
		reason = " Reason: " + reason
	}
	return failure(http.StatusBadRequest, modelled+"InvalidAttributeValue", "InvalidAttributeValue", "Invalid value for the parameter %s.%s", name, reason)
}

func badHandle(handle string) *apiError {
	return failure(http.StatusNotFound, modelled+"ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", "The input receipt handle %q is not a valid receipt handle.", handle)
}

func badContents() *apiError {
	return failure(http.StatusBadRequest, modelled+"InvalidMessageContents", "InvalidMessageContents", "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
}

// batchError is one of the refusals of a whole batch, whose codes all have the
// prefix (SQS-F-67).
func batchError(shape, format string, args ...any) *apiError {
	return failure(http.StatusBadRequest, modelled+shape, legacy+shape, format, args...)
}

// injected is the answer of a fault: the error of the vendor that goes with an
// HTTP status. The doc comment of the package lists them.
func injected(status int) *apiError {
	const msg = "This error was injected by the emulator."
	switch status {
	case 0, http.StatusServiceUnavailable:
		return failure(http.StatusServiceUnavailable, coral+"ServiceUnavailableException", "ServiceUnavailable", msg)
	case http.StatusInternalServerError:
		return failure(status, coral+"InternalFailure", "InternalFailure", msg)
	case http.StatusForbidden:
		return failure(status, modelled+"RequestThrottled", "RequestThrottled", msg)
	case http.StatusTooManyRequests:
		return failure(status, coral+"ThrottlingException", "ThrottlingException", msg)
	case http.StatusUnauthorized:
		return failure(http.StatusForbidden, coral+"AccessDeniedException", "AccessDenied", msg)
	case http.StatusNotFound:
		return noQueue()
	case http.StatusBadRequest:
		return invalid(msg)
	}
	return failure(status, coral+"InternalFailure", "Injected"+strconv.Itoa(status), msg)
}
