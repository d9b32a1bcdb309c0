package amqp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// The types of frames.
const (
	FrameAMQP = 0
	FrameSASL = 1
)

// The protocols that a protocol header can ask for.
const (
	ProtocolAMQP = 0
	ProtocolTLS  = 2
	ProtocolSASL = 3
)

const headerSize = 8

// Frame is one frame as it came in. Body is valid until the next is read; it is
// empty in a heartbeat.
type Frame struct {
	Type    byte
	Channel uint16
	Body    []byte
}

// FrameReader reads frames and protocol headers off a connection.
type FrameReader struct {
	r   *bufio.Reader
	buf []byte
	max uint32
}

// NewFrameReader returns a reader of r that refuses frames of more than max bytes.
func NewFrameReader(r io.Reader, max uint32) *FrameReader {
	br, ok := r.(*bufio.Reader)
	if !ok {
		br = bufio.NewReaderSize(r, 32<<10)
	}
	return &FrameReader{r: br, max: max}
}

// Buffered says whether a whole header is there already, so that reading on is
// unlikely to wait.
func (fr *FrameReader) Buffered() bool { return fr.r.Buffered() >= headerSize }

// Protocol reads a protocol header and returns the protocol that it asks for.
func (fr *FrameReader) Protocol() (byte, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(fr.r, h[:]); err != nil {
		return 0, err
	}
	if string(h[:4]) != "AMQP" || h[5] != 1 || h[6] != 0 || h[7] != 0 {
		return 0, fmt.Errorf("%w: protocol header %q", ErrSyntax, h[:])
	}
	return h[4], nil
}

// Next reads the next frame.
func (fr *FrameReader) Next() (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(fr.r, h[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n < headerSize || n > fr.max {
		return Frame{}, fmt.Errorf("%w: frame of %d bytes where at most %d are allowed", ErrSyntax, n, fr.max)
	}
	skip := int(h[4]) * 4
	if skip < headerSize || skip > int(n) {
		return Frame{}, fmt.Errorf("%w: data offset %d in a frame of %d bytes", ErrSyntax, h[4], n)
	}
	if h[5] != FrameAMQP && h[5] != FrameSASL {
		return Frame{}, fmt.Errorf("%w: frame type %d", ErrSyntax, h[5])
	}
	if cap(fr.buf) < int(n) {
		fr.buf = make([]byte, n)
	}
	body := fr.buf[:n-headerSize]
	if _, err := io.ReadFull(fr.r, body); err != nil {
		return Frame{}, err
	}
	return Frame{Type: h[5], Channel: binary.BigEndian.Uint16(h[6:]), Body: body[skip-headerSize:]}, nil
}

// AppendProtocol appends a protocol header.
func AppendProtocol(b []byte, protocol byte) []byte {
	return append(b, 'A', 'M', 'Q', 'P', protocol, 1, 0, 0)
}

// BeginFrame opens a frame; [EndFrame] closes what began at the returned place.
func BeginFrame(b []byte, typ byte, channel uint16) ([]byte, int) {
	return append(b, 0, 0, 0, 0, 2, typ, byte(channel>>8), byte(channel)), len(b)
}

// EndFrame closes the frame that began at at.
func EndFrame(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at))
	return b
}

// AppendHeartbeat appends an empty frame.
func AppendHeartbeat(b []byte) []byte {
	b, at := BeginFrame(b, FrameAMQP, 0)
	return EndFrame(b, at)
}
