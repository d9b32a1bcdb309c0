package localstack

import (
	"encoding/binary"
	"fmt"

	"github.com/onceline/onceline/localstack/fault"
)

// Keys of the commands of the stream protocol that the proxy looks into.
const (
	streamDeclarePublisher = 1
	streamPublish          = 2
	streamPublishConfirm   = 3
	streamPublishError     = 4
	streamQuerySequence    = 5
	streamDeletePublisher  = 6
	streamSubscribe        = 7
	streamDeliver          = 8
	streamCredit           = 9
	streamStoreOffset      = 10
	streamQueryOffset      = 11
	streamUnsubscribe      = 12
	streamCreate           = 13
	streamDelete           = 14
	streamMetadata         = 15
	streamMetadataUpdate   = 16
	streamTune             = 20
	streamHeartbeat        = 23
	streamRoute            = 24
	streamPartitions       = 25
	streamConsumerUpdate   = 26
	streamStats            = 28

	streamResponse = 0x8000 // is set in the key of a response
)

// Codes of the stream protocol.
const (
	streamInternalError = 15
	streamNoOffset      = 19
)

// rabbitStreamNames are the commands as the protocol's specification calls them,
// by their keys.
var rabbitStreamNames = [...]string{
	1: "DeclarePublisher", "Publish", "PublishConfirm", "PublishError", "QueryPublisherSequence",
	"DeletePublisher", "Subscribe", "Deliver", "Credit", "StoreOffset", "QueryOffset", "Unsubscribe",
	"Create", "Delete", "Metadata", "MetadataUpdate", "PeerProperties", "SaslHandshake",
	"SaslAuthenticate", "Tune", "Open", "Close", "Heartbeat", "Route", "Partitions", "ConsumerUpdate",
	"ExchangeCommandVersions", "StreamStats", "CreateSuperStream", "DeleteSuperStream",
}

// streamMaxFrame bounds a frame in bytes; beyond it a connection does not speak
// the protocol of streams.
const streamMaxFrame = 256 << 20

// streamFrame is one frame, without its length.
type streamFrame struct {
	key, version uint16
	correlation  uint32 // where it has one
	body         []byte // behind key, version and correlation
}

// streamFrameSize returns the length of the first frame of b with its length
// prefix: 0 when it is not whole yet, -1 when it is none.
func streamFrameSize(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	n := binary.BigEndian.Uint32(b)
	switch {
	case n < 4 || n > streamMaxFrame:
		return -1
	case len(b) < 4+int(n):
		return 0
	}
	return 4 + int(n)
}

// parseStreamFrame reads a whole frame.
func parseStreamFrame(b []byte) streamFrame {
	f := streamFrame{key: binary.BigEndian.Uint16(b[4:]), version: binary.BigEndian.Uint16(b[6:]), body: b[8:]}
	if f.answered() || f.key&streamResponse != 0 && f.key&^streamResponse != streamCredit {
		if len(f.body) >= 4 {
			f.correlation, f.body = binary.BigEndian.Uint32(f.body), f.body[4:]
		}
	}
	return f
}

func (f *streamFrame) name() string {
	if k := int(f.key &^ streamResponse); k > 0 && k < len(rabbitStreamNames) {
		return rabbitStreamNames[k]
	}
	return fmt.Sprintf("command %d", f.key)
}

// answered says whether a request has an answer by its correlation ID.
func (f *streamFrame) answered() bool {
	switch f.key {
	case streamPublish, streamPublishConfirm, streamPublishError, streamDeliver, streamCredit,
		streamStoreOffset, streamMetadataUpdate, streamTune, streamHeartbeat:
		return false
	}
	return f.key&streamResponse == 0
}

// ops returns the classes of a request.
func (f *streamFrame) ops() fault.Ops {
	switch f.key {
	case streamPublish:
		return Publish.Ops()
	case streamCredit:
		return Receive.Ops()
	case streamSubscribe:
		return Receive.Ops() | Admin.Ops()
	case streamStoreOffset, streamQueryOffset:
		return Settle.Ops()
	case streamDeclarePublisher, streamQuerySequence, streamDeletePublisher, streamUnsubscribe, streamCreate,
		streamDelete, streamMetadata, streamRoute, streamPartitions, streamStats, 29, 30:
		return Admin.Ops()
	}
	return 0
}

// published returns the publisher of a Publish and the numbers of its messages.
func (f *streamFrame) published() (publisher uint8, ids []uint64) {
	c := streamCursor{b: f.body}
	publisher = c.u8()
	for n := c.u32(); n > 0 && !c.bad; n-- {
		id := c.u64()
		if f.version >= 2 {
			c.str() // the filter's value
		}
		if len(c.b) > 0 && c.b[0]&0x80 != 0 { // several messages, compressed
			c.take(1 + 2 + 4)
		}
		c.take(int(c.u32()))
		if !c.bad {
			ids = append(ids, id)
		}
	}
	return publisher, ids
}

// refusal makes the frame that answers a request with an error; nil where there
// is none.
func (f *streamFrame) refusal(code uint16) []byte {
	be := binary.BigEndian
	answer := streamFrame{key: f.key | streamResponse, version: 1}
	switch f.key {
	case streamPublish:
		publisher, ids := f.published()
		answer.key = streamPublishError
		b := append(answer.head(nil), publisher)
		b = be.AppendUint32(b, uint32(len(ids)))
		for _, id := range ids {
			b = be.AppendUint16(be.AppendUint64(b, id), code)
		}
		return endStreamFrame(b)
	case streamCredit:
		c := streamCursor{b: f.body}
		return endStreamFrame(append(be.AppendUint16(answer.head(nil), code), c.u8()))
	case streamMetadata:
		c := streamCursor{b: f.body}
		b := be.AppendUint32(answer.head(nil), f.correlation)
		b = be.AppendUint32(b, 0) // no brokers
		n := c.u32()
		b = be.AppendUint32(b, n)
		for ; n > 0 && !c.bad; n-- {
			name := c.str()
			b = append(be.AppendUint16(b, uint16(len(name))), name...)
			b = be.AppendUint16(b, code)
			b = be.AppendUint16(b, 0xffff) // no leader
			b = be.AppendUint32(b, 0)      // no replicas
		}
		return endStreamFrame(b)
	}
	if !f.answered() {
		return nil
	}
	b := be.AppendUint16(be.AppendUint32(answer.head(nil), f.correlation), code)
	switch f.key {
	case streamQuerySequence, streamQueryOffset:
		b = be.AppendUint64(b, 0)
	case 17, 18, 21, 27, streamStats, streamRoute, streamPartitions: // a list, or a map
		b = be.AppendUint32(b, 0)
	}
	return endStreamFrame(b)
}

// head begins a frame of this key and version; endStreamFrame ends it.
func (f *streamFrame) head(b []byte) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, f.key)
	return binary.BigEndian.AppendUint16(b, f.version)
}

func endStreamFrame(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// streamCursor reads the fields of a frame. After the first that isn't whole, bad
// is set and all that follows is zero.
type streamCursor struct {
	b   []byte
	bad bool
}

func (c *streamCursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *streamCursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *streamCursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (c *streamCursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (c *streamCursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (c *streamCursor) str() string {
	n := int16(c.u16())
	if n < 0 {
		return ""
	}
	return string(c.take(int(n)))
}
