package rabbitmq

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
)

// The stream protocol is spoken here without the vendor's client, for that one
// takes no context and no dialer, publishes from a queue that it goes on sending
// after the caller has given up, hands confirms over in the goroutine that reads
// the socket, gives an unconfirmed message up by a timer and sleeps for seconds
// when it closes with one, and hides what this adapter answers from: which
// publishing IDs went out on which connection, and the order of a query behind
// them.

// The commands by their keys.
const (
	scDeclarePublisher = 1
	scPublish          = 2
	scPublishConfirm   = 3
	scPublishError     = 4
	scQuerySequence    = 5
	scSubscribe        = 7
	scDeliver          = 8
	scCredit           = 9
	scStoreOffset      = 10
	scQueryOffset      = 11
	scCreate           = 13
	scDelete           = 14
	scMetadata         = 15
	scMetadataUpdate   = 16
	scPeerProperties   = 17
	scSaslHandshake    = 18
	scSaslAuthenticate = 19
	scTune             = 20
	scOpen             = 21
	scClose            = 22
	scHeartbeat        = 23
	scConsumerUpdate   = 26

	scResponse = 0x8000
)

// streamCode is a response code other than OK.
type streamCode uint16

const (
	codeOK             streamCode = 1
	codeNoStream       streamCode = 2
	codeStreamExists   streamCode = 5
	codeUnavailable    streamCode = 6
	codeSaslMechanism  streamCode = 7
	codeAuthFailure    streamCode = 8
	codeSaslError      streamCode = 9
	codeAuthLoopback   streamCode = 11
	codeVHost          streamCode = 12
	codeUnknownFrame   streamCode = 13
	codeFrameTooLarge  streamCode = 14
	codeInternal       streamCode = 15
	codeAccessRefused  streamCode = 16
	codePrecondition   streamCode = 17
	codeNoPublisher    streamCode = 18
	codeNoOffset       streamCode = 19
	codeNoSubscription streamCode = 4
)

var codeWords = map[streamCode]string{
	codeNoStream: "stream does not exist", codeNoSubscription: "subscription does not exist",
	codeStreamExists: "stream exists", codeUnavailable: "stream not available",
	codeSaslMechanism: "SASL mechanism not supported", codeAuthFailure: "authentication failure",
	codeSaslError: "SASL error", codeAuthLoopback: "this user may connect from the loopback only",
	codeVHost: "virtual host access failure", codeUnknownFrame: "unknown frame", codeFrameTooLarge: "frame too large",
	codeInternal: "internal error", codeAccessRefused: "access refused", codePrecondition: "precondition failed",
	codeNoPublisher: "publisher does not exist", codeNoOffset: "no offset",
}

// Error is the code in the protocol's words.
func (c streamCode) Error() string {
	if w, ok := codeWords[c]; ok {
		return w
	}
	return fmt.Sprintf("response code %d", uint16(c))
}

// streamKind is the kind of an error of this protocol, or other.
func streamKind(err, other error) error {
	var c streamCode
	if !errors.As(err, &c) {
		for _, kind := range []error{broker.ErrNotFound, broker.ErrUnauthorized, broker.ErrConflict, broker.ErrInvalid, broker.ErrUnsupported, broker.ErrClosed} {
			if errors.Is(err, kind) {
				return kind
			}
		}
		return other
	}
	switch c {
	case codeNoStream:
		return broker.ErrNotFound
	case codeAuthFailure, codeAccessRefused, codeSaslMechanism, codeSaslError, codeAuthLoopback:
		return broker.ErrUnauthorized
	case codeVHost:
		return broker.ErrNotFound
	case codeUnavailable, codeNoPublisher:
		return broker.ErrUnavailable
	case codePrecondition, codeStreamExists:
		return broker.ErrConflict
	case codeFrameTooLarge:
		return broker.ErrTooLarge
	}
	return broker.ErrRefused
}

// lasting reports whether trying again won't help.
func lasting(err error) bool {
	switch streamKind(err, nil) {
	case broker.ErrNotFound, broker.ErrUnauthorized, broker.ErrInvalid, broker.ErrUnsupported, broker.ErrClosed:
		return true
	}
	return false
}

var errFrame = errors.New("a frame of the broker can't be read")

// streamCursor reads a frame's fields. Once a field isn't there, bad is set and
// all that follows is zero.
type streamCursor struct {
	b   []byte
	bad bool
}

func (c *streamCursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *streamCursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *streamCursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *streamCursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *streamCursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *streamCursor) str() string {
	n := int16(c.u16())
	if n < 0 {
		return "" // none
	}
	return string(c.take(int(n)))
}

func (c *streamCursor) bytes() []byte {
	n := int32(c.u32())
	if n < 0 {
		return nil
	}
	return c.take(int(n))
}

func (c *streamCursor) props() map[string]string {
	m := map[string]string{}
	for n := c.u32(); n > 0 && !c.bad; n-- {
		k := c.str()
		m[k] = c.str()
	}
	return m
}

func put16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func put32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func put64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

func putStr(b []byte, s string) []byte { return append(put16(b, uint16(len(s))), s...) }

func putProps(b []byte, props ...string) []byte {
	b = put32(b, uint32(len(props)/2))
	for _, s := range props {
		b = putStr(b, s)
	}
	return b
}

// putFrame appends a frame that build fills.
func putFrame(b []byte, key uint16, build func(b []byte) []byte) []byte {
	at := len(b)
	b = put16(put16(put32(b, 0), key), 1)
	if build != nil {
		b = build(b)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// putRequest is putFrame with a correlation ID.
func putRequest(b []byte, key uint16, id uint32, build func(b []byte) []byte) []byte {
	return putFrame(b, key, func(b []byte) []byte {
		b = put32(b, id)
		if build != nil {
			b = build(b)
		}
		return b
	})
}

// The kinds of an offset specification.
const (
	specFirst  = 1
	specOffset = 4
)

// putSpec appends where to begin: at an offset, or at the first message there is.
func putSpec(b []byte, from uint64) []byte {
	if from == 0 {
		return put16(b, specFirst)
	}
	return put64(put16(b, specOffset), from)
}
