package stream

import (
	"encoding/binary"
)

// The commands by their keys.
const (
	cmdDeclarePublisher  = 1
	cmdPublish           = 2
	cmdPublishConfirm    = 3
	cmdPublishError      = 4
	cmdQueryPublisherSeq = 5
	cmdDeletePublisher   = 6
	cmdSubscribe         = 7
	cmdDeliver           = 8
	cmdCredit            = 9
	cmdStoreOffset       = 10
	cmdQueryOffset       = 11
	cmdUnsubscribe       = 12
	cmdCreate            = 13
	cmdDelete            = 14
	cmdMetadata          = 15
	cmdMetadataUpdate    = 16
	cmdPeerProperties    = 17
	cmdSaslHandshake     = 18
	cmdSaslAuthenticate  = 19
	cmdTune              = 20
	cmdOpen              = 21
	cmdClose             = 22
	cmdHeartbeat         = 23
	cmdRoute             = 24
	cmdPartitions        = 25
	cmdConsumerUpdate    = 26
	cmdExchangeVersions  = 27
	cmdStreamStats       = 28
	cmdCreateSuper       = 29
	cmdDeleteSuper       = 30

	responseBit = 0x8000
)

// names are the commands as the protocol's specification calls them.
var names = [...]string{
	cmdDeclarePublisher: "DeclarePublisher", cmdPublish: "Publish", cmdPublishConfirm: "PublishConfirm",
	cmdPublishError: "PublishError", cmdQueryPublisherSeq: "QueryPublisherSequence",
	cmdDeletePublisher: "DeletePublisher", cmdSubscribe: "Subscribe", cmdDeliver: "Deliver",
	cmdCredit: "Credit", cmdStoreOffset: "StoreOffset", cmdQueryOffset: "QueryOffset",
	cmdUnsubscribe: "Unsubscribe", cmdCreate: "Create", cmdDelete: "Delete", cmdMetadata: "Metadata",
	cmdMetadataUpdate: "MetadataUpdate", cmdPeerProperties: "PeerProperties",
	cmdSaslHandshake: "SaslHandshake", cmdSaslAuthenticate: "SaslAuthenticate", cmdTune: "Tune",
	cmdOpen: "Open", cmdClose: "Close", cmdHeartbeat: "Heartbeat", cmdRoute: "Route",
	cmdPartitions: "Partitions", cmdConsumerUpdate: "ConsumerUpdate",
	cmdExchangeVersions: "ExchangeCommandVersions", cmdStreamStats: "StreamStats",
	cmdCreateSuper: "CreateSuperStream", cmdDeleteSuper: "DeleteSuperStream",
}

// The response codes.
const (
	codeOK                 = 1
	codeNoStream           = 2
	codeSubscriptionExists = 3
	codeNoSubscription     = 4
	codeStreamExists       = 5
	codeStreamUnavailable  = 6
	codeSaslMechanism      = 7
	codeAuthFailure        = 8
	codeSaslError          = 9
	codeUnknownFrame       = 13
	codeFrameTooLarge      = 14
	codeInternal           = 15
	codePrecondition       = 17
	codeNoPublisher        = 18
	codeNoOffset           = 19
)

// The kinds of an offset specification; specNone stands for one that is missing.
const (
	specNone      = 0
	specFirst     = 1
	specLast      = 2
	specNext      = 3
	specOffset    = 4
	specTimestamp = 5
)

// maxName is the longest reference, in bytes (RMS-F-01).
const maxName = 255

// cursor reads a frame's fields. Once a field isn't there, bad is set and all
// that follows is zero; nothing is allocated by a length that is claimed.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// raw is a string's bytes; -1 as its length is none.
func (c *cursor) raw() []byte {
	n := int16(c.u16())
	if n < 0 {
		if n != -1 {
			c.bad = true
		}
		return nil
	}
	return c.take(int(n))
}

func (c *cursor) str() string { return string(c.raw()) }

func (c *cursor) bytes() []byte {
	n := int32(c.u32())
	if n < 0 {
		if n != -1 {
			c.bad = true
		}
		return nil
	}
	return c.take(int(n))
}

// props is a map of strings.
func (c *cursor) props() map[string]string {
	m := map[string]string{}
	for n := c.u32(); n > 0 && !c.bad; n-- {
		k := c.str()
		m[k] = c.str()
	}
	return m
}

// spec is an offset specification.
type spec struct {
	kind  uint16
	value uint64
}

func (c *cursor) spec() spec {
	s := spec{kind: c.u16()}
	switch {
	case s.kind == specOffset || s.kind == specTimestamp:
		s.value = c.u64()
	case s.kind > specTimestamp:
		c.bad = true
	}
	return s
}

func put16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func put32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func put64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

func putStr(b []byte, s string) []byte {
	return append(put16(b, uint16(len(s))), s...)
}

// begin appends a frame's head, whose size end sets.
func begin(b []byte, key uint16) []byte {
	return put16(put16(put32(b, 0), key), 1)
}

// end sets the size of the frame that begins at.
func end(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}
