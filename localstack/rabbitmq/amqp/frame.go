package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of frames.
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8
)

// FrameEnd is the last byte of every frame.
const FrameEnd = 0xCE

// FrameOverhead is what a frame has in bytes beside its payload.
const FrameOverhead = 8

// FrameMin is the smallest limit of a frame's size in bytes, overhead included,
// that peers may agree on; it holds until they have agreed.
const FrameMin = 4096

// ErrShort says that bytes end before what they should hold.
var ErrShort = errors.New("amqp: short of bytes")

// Frame is one frame. Payload points into the bytes it was parsed from.
type Frame struct {
	Type    byte
	Channel uint16
	Payload []byte
}

// FrameError says why bytes are no frame. Both kinds end a connection.
type FrameError struct {
	Frame Frame // type and channel as they were read; the payload may be missing
	Size  int   // of the payload in bytes, where it is over the limit
	Max   int   // the limit of the payload, where it was exceeded
	End   byte  // what stood in FrameEnd's place, where that is the fault
}

// Error says what is wrong with the frame.
func (e *FrameError) Error() string {
	if e.Max > 0 {
		return fmt.Sprintf("amqp: frame of %d bytes is larger than the %d allowed", e.Size, e.Max)
	}
	return fmt.Sprintf("amqp: frame ends with %#x", e.End)
}

// ParseFrame parses the first frame of b. It returns the number of bytes that
// the frame takes; 0 and no error say that b doesn't hold all of it yet. A frame
// whose payload is longer than max bytes is refused as soon as its length can be
// read.
func ParseFrame(b []byte, max int) (f Frame, n int, err error) {
	if len(b) < 7 {
		return Frame{}, 0, nil
	}
	f.Type, f.Channel = b[0], binary.BigEndian.Uint16(b[1:])
	size := int(binary.BigEndian.Uint32(b[3:]))
	if size > max {
		return Frame{}, 0, &FrameError{Frame: f, Size: size, Max: max}
	}
	if len(b) < size+FrameOverhead {
		return Frame{}, 0, nil
	}
	f.Payload = b[7 : 7+size : 7+size]
	if end := b[7+size]; end != FrameEnd {
		return Frame{}, 0, &FrameError{Frame: f, End: end}
	}
	return f, size + FrameOverhead, nil
}

// BeginFrame appends the head of a frame whose payload follows. Its length is
// filled in by [EndFrame], which takes the length that b had here.
func BeginFrame(b []byte, kind byte, channel uint16) []byte {
	return append(b, kind, byte(channel>>8), byte(channel), 0, 0, 0, 0)
}

// EndFrame ends the frame that was begun when b was start bytes long.
func EndFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start+3:], uint32(len(b)-start-7))
	return append(b, FrameEnd)
}

// AppendContent appends the header frame and the body frames of a message. props
// are its properties as [Properties.Append] writes them; frameMax is the limit of
// a frame's size in bytes, overhead included.
func AppendContent(b []byte, channel uint16, props, body []byte, frameMax int) []byte {
	start := len(b)
	b = BeginFrame(b, FrameHeader, channel)
	b = append(b, 0, ClassBasic, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	b = append(b, props...)
	b = EndFrame(b, start)
	for len(body) > 0 {
		part := body[:min(len(body), frameMax-FrameOverhead)]
		body = body[len(part):]
		start = len(b)
		b = BeginFrame(b, FrameBody, channel)
		b = append(b, part...)
		b = EndFrame(b, start)
	}
	return b
}
