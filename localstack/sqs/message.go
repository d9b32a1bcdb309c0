package sqs

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"strings"
)

// state is where a message of a queue is. A message is in one heap at most, which
// follows from its state.
type state uint8

const (
	ready    state = iota // may be received; in a FIFO queue when those before it in its group may too
	inFlight              // received, and hidden until visibleAt
	delayed               // sent, and hidden until visibleAt
	gone                  // deleted, moved, purged or past its retention
)

// message is a stored message. Its text doesn't change after the send, so it may
// be read without the server's lock; all else is guarded by it. Times are
// nanoseconds of the Unix epoch by the server's clock.
type message struct {
	uid   uint64 // rises with the order of arrival in the queue
	text  string // backs all strings below, so that a message costs one of them
	id    string
	body  string
	md5   string // of the body
	group string
	dedup string
	trace string // system attribute AWSTraceHeader
	attrs []attribute
	// attrsMD5 is the checksum of all attributes, "" without.
	attrsMD5 string
	escaped  bool   // the body needs escapes in JSON
	source   string // ARN of the queue that dead-lettered it

	state      state
	heapIndex  int32
	receives   int // from this queue, which redrive goes by (SQS-F-34)
	count      int // ApproximateReceiveCount (SQS-F-33); goes on in a dead-letter queue (SQS-F-60)
	sentAt     int64
	enqueuedAt int64 // what retention counts from (SQS-F-35)
	visibleAt  int64
	firstAt    int64 // first receive
	takenAt    int64 // latest receive; the longest lease counts from it (SQS-F-18)
	leaseEnds  int64 // as the latest handle says: it was visibleAt when it was made

	prev, next   *message // in the queue, in order of arrival
	gprev, gnext *message // in its group
	inGroup      *group
}

// newMessage copies what is kept of e, for e lives as long as its request.
func newMessage(e *entry, dedup string) *message {
	m := &message{escaped: e.body.escaped, heapIndex: -1}
	n := 36 + 32 + 32 + len(e.body.s) + len(e.group.s) + len(dedup)
	for i := range e.attrs {
		a := &e.attrs[i]
		n += len(a.name) + len(a.kind) + len(a.value)
	}
	var b strings.Builder
	b.Grow(n)
	var fixed [36]byte
	uuid(&fixed)
	b.Write(fixed[:])
	sum := md5.Sum([]byte(e.body.s))
	hex.Encode(fixed[:], sum[:])
	b.Write(fixed[:32])
	if len(e.attrs) > 0 {
		sum = sumAttributes(e.attrs)
		hex.Encode(fixed[:], sum[:])
		b.Write(fixed[:32])
	}
	b.WriteString(e.body.s)
	b.WriteString(e.group.s)
	b.WriteString(dedup)
	for i := range e.attrs {
		a := &e.attrs[i]
		b.WriteString(a.name)
		b.WriteString(a.kind)
		b.WriteString(a.value)
	}
	m.text = b.String()
	rest := m.text
	cut := func(n int) string {
		s := rest[:n]
		rest = rest[n:]
		return s
	}
	m.id, m.md5 = cut(36), cut(32)
	if len(e.attrs) > 0 {
		m.attrsMD5 = cut(32)
	}
	m.body, m.group, m.dedup = cut(len(e.body.s)), cut(len(e.group.s)), cut(len(dedup))
	if len(e.attrs) > 0 {
		m.attrs = make([]attribute, len(e.attrs))
		for i, a := range e.attrs {
			m.attrs[i] = attribute{name: cut(len(a.name)), kind: cut(len(a.kind)), value: cut(len(a.value)), binary: a.binary}
		}
	}
	for _, a := range e.system {
		m.trace = strings.Clone(a.value) // the only one there is
	}
	return m
}

// uuid writes a random UUID (version 4).
func uuid(dst *[36]byte) {
	var u [16]byte
	binary.LittleEndian.PutUint64(u[:], rand.Uint64())
	binary.LittleEndian.PutUint64(u[8:], rand.Uint64())
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	hex.Encode(dst[:8], u[:4])
	dst[8] = '-'
	hex.Encode(dst[9:13], u[4:6])
	dst[13] = '-'
	hex.Encode(dst[14:18], u[6:8])
	dst[18] = '-'
	hex.Encode(dst[19:23], u[8:10])
	dst[23] = '-'
	hex.Encode(dst[24:], u[10:])
}

// sumAttributes is the MD5 of attributes which are sorted by name: length and
// bytes of name and type, 1 or 2 for text or bytes, length and bytes of the value
// (SQS-F-61).
func sumAttributes(attrs []attribute) [md5.Size]byte {
	var scratch [1024]byte // most have room in it
	b := scratch[:0]
	put := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	for i := range attrs {
		a := &attrs[i]
		put(a.name)
		put(a.kind)
		if a.binary {
			b = append(b, 2)
		} else {
			b = append(b, 1)
		}
		put(a.value)
	}
	return md5.Sum(b)
}

// handle is a receipt handle taken apart: one for each receive of a message.
type handle struct {
	queue   uint64 // its uid: the handles of a deleted queue don't fit its successor
	message uint64
	receive uint32 // which receive of the message it came from
	ends    int64  // when the lease would end that it was given with
}

const handleBytes = 3 + 8 + 8 + 4 + 8 + 4

// castagnoli sums a handle, so that one that was made up is told from an old one.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h handle) append(dst []byte) []byte {
	var raw [handleBytes]byte
	b := append(raw[:0], 1, 1, 1) // prints as the AQEB of the vendor's handles
	b = binary.BigEndian.AppendUint64(b, h.queue)
	b = binary.BigEndian.AppendUint64(b, h.message)
	b = binary.BigEndian.AppendUint32(b, h.receive)
	b = binary.BigEndian.AppendUint64(b, uint64(h.ends))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.StdEncoding.AppendEncode(dst, b)
}

// parseHandle is false for what no receive has given out.
func parseHandle(s string) (h handle, ok bool) {
	var raw [handleBytes + 2]byte
	if len(s) != base64.StdEncoding.EncodedLen(handleBytes) {
		return h, false
	}
	n, err := base64.StdEncoding.Decode(raw[:], []byte(s))
	b := raw[:]
	if err != nil || n != handleBytes ||
		crc32.Checksum(b[:handleBytes-4], castagnoli) != binary.BigEndian.Uint32(b[handleBytes-4:]) {
		return h, false
	}
	h.queue = binary.BigEndian.Uint64(b[3:])
	h.message = binary.BigEndian.Uint64(b[11:])
	h.receive = binary.BigEndian.Uint32(b[19:])
	h.ends = int64(binary.BigEndian.Uint64(b[23:]))
	return h, true
}
