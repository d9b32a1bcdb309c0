package rabbitmq

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// A message in a stream is an AMQP 1.0 message: message-id holds the dedup ID,
// application-properties ours and the user's headers in their order, the body is
// one data section. What AMQP can't say there goes into the envelope: a name that
// repeats or isn't UTF-8. A value that isn't is of AMQP's type binary.

// The codes of AMQP 1.0 that are written here.
const (
	amqpDescribed  = 0x00
	amqpSmallUlong = 0x53
	amqpStr8       = 0xa1
	amqpStr32      = 0xb1
	amqpBin8       = 0xa0
	amqpBin32      = 0xb0
	amqpList8      = 0xc0
	amqpList32     = 0xd0
	amqpMap32      = 0xd1

	sectionProperties    = 0x73
	sectionAppProperties = 0x74
	sectionData          = 0x75
	sectionSequence      = 0x76
	sectionValue         = 0x77
)

// putMessage appends m as it is stored.
func putMessage(b []byte, m *broker.Message) []byte {
	field, natural := "", true
	if m.ID != "" || m.Copy != "" {
		field, natural = driver.DedupID(m, broker.MaxID, utf8.ValidString)
	}
	if field != "" {
		b = append(b, amqpDescribed, amqpSmallUlong, sectionProperties)
		size := 1 + 2 + len(field) // the count, and the string
		if len(field) > 255 {
			size += 3
		}
		if size <= 255 {
			b = append(b, amqpList8, byte(size), 1)
		} else {
			b = put32(put32(append(b, amqpList32), uint32(size+3)), 1)
		}
		b = putText(b, field)
	}
	b = append(b, amqpDescribed, amqpSmallUlong, sectionAppProperties, amqpMap32)
	at := len(b)
	b = put32(put32(b, 0), 0)
	n := 0
	add := func(name, value string) {
		b = putText(putText(b, name), value)
		n++
	}
	if !natural {
		add(driver.HeaderID, m.ID)
	}
	if m.Copy != "" {
		add(driver.HeaderCopy, m.Copy)
	}
	if m.Key != "" {
		add(driver.HeaderKey, m.Key)
	}
	b = putText(b, driver.HeaderTime)
	b = append(b, amqpStr8, 0)
	from := len(b)
	b = strconv.AppendInt(b, m.Time.UnixMilli(), 10)
	b[from-1] = byte(len(b) - from)
	n++
	if len(m.Headers) > 0 {
		if plainHeaders(m.Headers) {
			for i := range m.Headers {
				add(m.Headers[i].Key, m.Headers[i].Value)
			}
		} else {
			add(driver.HeaderEnvelope, driver.EncodeHeaders(m.Headers))
		}
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	binary.BigEndian.PutUint32(b[at+4:], uint32(2*n))
	b = append(b, amqpDescribed, amqpSmallUlong, sectionData)
	if len(m.Body) <= 255 {
		b = append(b, amqpBin8, byte(len(m.Body)))
	} else {
		b = put32(append(b, amqpBin32), uint32(len(m.Body)))
	}
	return append(b, m.Body...)
}

// putText appends a string, or a binary if it isn't UTF-8.
func putText(b []byte, s string) []byte {
	short, long := byte(amqpStr8), byte(amqpStr32)
	if !utf8.ValidString(s) {
		short, long = amqpBin8, amqpBin32
	}
	if len(s) <= 255 {
		return append(append(b, short, byte(len(s))), s...)
	}
	return append(put32(append(b, long), uint32(len(s))), s...)
}

// messageRoom is about what putMessage appends.
func messageRoom(m *broker.Message) int {
	n := len(m.ID) + len(m.Copy) + len(m.Key) + len(m.Body) + 128 + driver.HashedSize
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value) + 10
	}
	return n
}

// plainHeaders reports whether a map of AMQP can hold the list.
func plainHeaders(hs broker.Headers) bool {
	for i := range hs {
		if !utf8.ValidString(hs[i].Key) {
			return false
		}
		for j := range i {
			if hs[j].Key == hs[i].Key {
				return false
			}
		}
		if i > 32 {
			return false // comparing each with each is dearer than the envelope
		}
	}
	return true
}

// readMessage fills m from what is stored; the body is raw's own memory. What
// isn't a message of AMQP 1.0 is all body: nothing garbled keeps it from being
// delivered.
func readMessage(m *broker.Message, raw []byte) {
	// All strings are cut from one copy of what is before the body.
	r := amqpReader{b: raw, s: string(raw[:beforeBody(raw)])}
	body, several := []byte(nil), false
	for len(r.b) > 0 && !r.bad {
		section := r.section()
		switch section {
		case sectionProperties:
			r.properties(m)
		case sectionAppProperties:
			r.appProperties(m)
		case sectionData:
			_, data, _ := r.value()
			switch {
			case body == nil:
				body = data
			case !several:
				body, several = append(append(make([]byte, 0, len(body)+len(data)), body...), data...), true
			default:
				body = append(body, data...)
			}
		case sectionValue, sectionSequence:
			from := r.b
			code, data, _ := r.value()
			if !textual(code) {
				data = from[:len(from)-len(r.b)] // as it is encoded
			}
			body = data
		default:
			r.value()
		}
	}
	if r.bad {
		*m = broker.Message{Body: raw}
		return
	}
	m.Body = body
	if m.Headers != nil {
		m.Headers = unwrap(m.Headers)
	}
}

// beforeBody is how many bytes a message has before its body.
func beforeBody(raw []byte) int {
	r := amqpReader{b: raw}
	for len(r.b) > 0 && !r.bad {
		at := len(raw) - len(r.b)
		switch r.section() {
		case sectionData, sectionSequence, sectionValue:
			return at
		}
		r.value()
	}
	return len(raw) - len(r.b)
}

// unwrap replaces the envelope by what is in it, where that can be read. What
// marks a dead letter stays behind it.
func unwrap(hs broker.Headers) broker.Headers {
	for i := range hs {
		if hs[i].Key != driver.HeaderEnvelope {
			continue
		}
		inner, err := driver.DecodeHeaders(hs[i].Value)
		if err != nil {
			return hs
		}
		for j := range hs {
			if j != i {
				inner = append(inner, hs[j])
			}
		}
		return inner
	}
	return hs
}

// keyOf is a stored message's ordering key.
func keyOf(raw []byte) string {
	var m broker.Message
	readMessage(&m, raw)
	return m.Key
}
