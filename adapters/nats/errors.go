package nats

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

// Causes of this package's own, wrapped beside the broker's kind of error.
var (
	errLinkLost   = errors.New("the connection was lost before the answer came")
	errLinkDown   = errors.New("not connected")
	errNoStream   = errors.New("no stream took the message")
	errNobody     = errors.New("no consumer took the settle")
	errTornAnswer = errors.New("the answer isn't a JetStream acknowledgement")
)

// JetStream error codes that the SDK has no name for.
const (
	codeResourcesExceeded   = 10002
	codeNoPeers             = 10005 // as soon after a cluster's start (NATS-F-45)
	codeUnassigned          = 10007
	codeUnavailable         = 10008
	codeNotLeader           = 10009
	codeInsufficient        = 10023
	codeMaxStreams          = 10027
	codeMemoryExceeded      = 10028
	codeStorageExceeded     = 10047
	codeInvalidStream       = 10052
	codeUnexpectedStream    = 10060
	codeOverlap             = 10065
	codeUnexpectedMsgID     = 10070
	codeReplicas            = 10074
	codeStoreFailed         = 10077
	codeHeadersTooLarge     = 10097
	codeFiltersNotUnique    = 10099
	codeFilterNotUnique     = 10100
	codeReplacementDiffers  = 10106
	codeDuplicateInProcess  = 10158
	codeTooManyRequests     = 10167
	codeStreamOffline       = 10194
	codeConsumerOffline     = 10195
	codeJetStreamNotEnabled = 10076
)

// kindOfCode is which of the broker's errors a JetStream error code means.
func kindOfCode(code jetstream.ErrorCode, description string) error {
	switch code {
	case jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeConsumerDoesNotExist:
		return broker.ErrNotFound
	case jetstream.JSErrCodeStreamNameInUse, jetstream.JSErrCodeConsumerNameExists, jetstream.JSErrCodeConsumerExists,
		jetstream.JSErrCodeConsumerAlreadyExists, codeOverlap, codeFiltersNotUnique, codeFilterNotUnique, codeReplacementDiffers,
		jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant,
		codeUnexpectedStream, codeUnexpectedMsgID:
		return broker.ErrConflict
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeadersTooLarge:
		return broker.ErrTooLarge
	case codeInvalidStream, codeReplicas, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return broker.ErrUnsupported
	case codeResourcesExceeded, codeInsufficient, codeMaxStreams, codeMemoryExceeded, codeStorageExceeded,
		codeTooManyRequests, jetstream.JSErrCodeMaximumConsumersLimit:
		return broker.ErrBusy
	case codeStoreFailed:
		// The code covers every failure of the store; only the text tells a
		// full stream from a broken disk.
		if strings.Contains(description, "maximum") {
			return broker.ErrBusy
		}
		return broker.ErrRefused
	case codeUnavailable, codeNoPeers, codeNotLeader, codeUnassigned, codeStreamOffline, codeConsumerOffline:
		return broker.ErrUnavailable
	case codeDuplicateInProcess:
		return broker.ErrUnknownOutcome
	}
	return broker.ErrRefused
}

// kindOf is which of the broker's errors an SDK error means.
func kindOf(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		return kindOfCode(api.ErrorCode, api.Description)
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		return broker.ErrNotFound
	case errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired), errors.Is(err, natsgo.ErrAuthRevoked),
		errors.Is(err, natsgo.ErrAccountAuthExpired), errors.Is(err, natsgo.ErrPermissionViolation):
		return broker.ErrUnauthorized
	case errors.Is(err, natsgo.ErrMaxPayload):
		return broker.ErrTooLarge
	case errors.Is(err, natsgo.ErrBadHeaderMsg), errors.Is(err, natsgo.ErrBadSubject), errors.Is(err, jetstream.ErrInvalidSubject),
		errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrInvalidConsumerName):
		return broker.ErrInvalid
	case errors.Is(err, natsgo.ErrHeadersNotSupported):
		return broker.ErrUnsupported
	}
	// What is left is a connection that is down, closed or silent, JetStream
	// without a leader, or a context that ended while waiting for either.
	return broker.ErrUnavailable
}

// failure wraps an SDK error of an administrative call. A context's end is
// shown with its cause.
func failure(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return broker.Errorf(kindOf(err), err, format, args...)
}

// neverSent reports whether the SDK refused to take a message, so that surely
// no byte of it left. Any other error of a publish may come from a write that
// failed half-way.
func neverSent(err error) bool {
	for _, known := range []error{
		natsgo.ErrReconnectBufExceeded, natsgo.ErrConnectionClosed, natsgo.ErrConnectionDraining, natsgo.ErrConnectionReconnecting,
		natsgo.ErrMaxPayload, natsgo.ErrBadSubject, natsgo.ErrBadHeaderMsg, natsgo.ErrHeadersNotSupported, natsgo.ErrInvalidConnection,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// pubAck is what JetStream answers to a publish.
type pubAck struct {
	Seq       uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Error     *jetstream.APIError `json:"error"`
}

// parsePubAck reads a publish acknowledgement. The form that the server writes
// for every message stored,
//
//	{"stream":"ORDERS", "seq":17}
//	{"stream":"ORDERS", "domain":"hub", "seq":17,"duplicate": true}
//
// is read by hand; anything else, errors among it, goes through encoding/json.
func parsePubAck(data []byte) (pubAck, error) {
	if a, ok := parsePlainAck(data); ok {
		return a, nil
	}
	var a pubAck
	if err := json.Unmarshal(data, &a); err != nil {
		return pubAck{}, errTornAnswer
	}
	if a.Error == nil && a.Seq == 0 {
		return pubAck{}, errTornAnswer
	}
	return a, nil
}

func parsePlainAck(data []byte) (a pubAck, ok bool) {
	s := data
	var name []byte
	if len(s) == 0 || s[0] != '{' {
		return a, false
	}
	for s = s[1:]; ; s = s[1:] { // each turn eats the comma or brace before it
		if name, s, ok = cutString(s); !ok {
			return a, false
		}
		if s = trimSpace(s); len(s) == 0 || s[0] != ':' {
			return a, false
		}
		s = trimSpace(s[1:])
		switch string(name) {
		case "stream", "domain":
			if _, s, ok = cutString(s); !ok {
				return a, false
			}
		case "seq":
			n := 0
			a.Seq = 0
			for ; n < len(s) && '0' <= s[n] && s[n] <= '9'; n++ {
				a.Seq = a.Seq*10 + uint64(s[n]-'0')
			}
			if n == 0 || n > 19 || (s[0] == '0' && n > 1) {
				return a, false
			}
			s = s[n:]
		case "duplicate":
			if len(s) < 4 || string(s[:4]) != "true" {
				return a, false
			}
			a.Duplicate, s = true, s[4:]
		default:
			return a, false
		}
		if s = trimSpace(s); len(s) == 0 {
			return a, false
		}
		if s[0] == '}' {
			return a, a.Seq > 0 && len(trimSpace(s[1:])) == 0
		}
		if s[0] != ',' {
			return a, false
		}
	}
}

// cutString takes a JSON string without escapes off the front of s.
func cutString(s []byte) (value, rest []byte, ok bool) {
	s = trimSpace(s)
	if len(s) == 0 || s[0] != '"' {
		return nil, s, false
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return s[1:i], s[i+1:], true
		case s[i] == '\\' || s[i] < ' ' || s[i] > '~':
			return nil, s, false
		}
	}
	return nil, s, false
}

func trimSpace(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t' || s[0] == '\r' || s[0] == '\n') {
		s = s[1:]
	}
	return s
}
