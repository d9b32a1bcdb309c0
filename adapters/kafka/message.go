package kafka

import (
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// ownHeaders is how many headers of our own a record may have.
const ownHeaders = 3

// headersOf appends m's headers to hs: ours first, then the user's in order.
// Values are cut from buf, which has room for them (see sizeOf). The record's
// timestamp is the time already; stamp repeats it where the broker may overwrite
// that, and a time before 1970 always is, for Kafka has none.
func headersOf(hs []kgo.RecordHeader, buf []byte, m *broker.Message, stamp bool) ([]kgo.RecordHeader, []byte) {
	if m.ID != "" { // empty only for a foreign message on its way to a dead-letter topic
		hs, buf = header(hs, buf, driver.HeaderID, m.ID)
	}
	if m.Copy != "" {
		hs, buf = header(hs, buf, driver.HeaderCopy, m.Copy)
	}
	if ms := m.Time.UnixMilli(); stamp || ms < 0 {
		n := len(buf)
		buf = strconv.AppendInt(buf, ms, 10)
		hs = append(hs, kgo.RecordHeader{Key: driver.HeaderTime, Value: buf[n:len(buf):len(buf)]})
	}
	for i := range m.Headers {
		hs, buf = header(hs, buf, m.Headers[i].Key, m.Headers[i].Value)
	}
	return hs, buf
}

func header(hs []kgo.RecordHeader, buf []byte, key, value string) ([]kgo.RecordHeader, []byte) {
	n := len(buf)
	buf = append(buf, value...)
	return append(hs, kgo.RecordHeader{Key: key, Value: buf[n:len(buf):len(buf)]}), buf
}

// sizeOf is what a message takes of the batch's buffer: everything that must
// outlive a Publish whose caller gave up; a given body does by itself.
func sizeOf(m *broker.Message, given bool) int {
	n := len(m.ID) + len(m.Copy) + len(m.Key) + 20 // the time's digits
	if !given {
		n += len(m.Body)
	}
	for i := range m.Headers {
		n += len(m.Headers[i].Value)
	}
	return n
}

// text makes strings of the bytes of many messages with few allocations. The zero
// value is ready; nil makes each by itself.
type text struct{ chunk strings.Builder }

// chunkSize is what a string that is kept may keep alive of others.
const chunkSize = 4096

// of returns v as a string; about so many of its kind are to come.
func (t *text) of(v []byte, many int) string {
	if t == nil || len(v) > chunkSize/4 {
		return string(v)
	}
	if t.chunk.Cap()-t.chunk.Len() < len(v) {
		t.chunk.Reset() // leaves the strings that were cut from it as they are
		t.chunk.Grow(min(len(v)*max(many, 1), chunkSize))
	}
	n := t.chunk.Len()
	t.chunk.Write(v)
	return t.chunk.String()[n:]
}

// decode fills m from a record, one of about so many whose strings are made by t.
// The body is the record's own memory, which no later fetch writes to.
func decode(m *broker.Message, r *kgo.Record, t *text, many int) {
	m.Body = r.Value
	if len(r.Key) > 0 {
		m.Key = t.of(r.Key, many)
	}
	user := len(r.Headers)
	for i := range r.Headers {
		h := &r.Headers[i]
		switch {
		case h.Key == driver.HeaderID && m.ID == "":
			m.ID = t.of(h.Value, many)
		case h.Key == driver.HeaderCopy && m.Copy == "":
			m.Copy = t.of(h.Value, many)
		case h.Key == driver.HeaderTime && m.Time.IsZero():
			if ms, ok := millis(h.Value); ok {
				m.Time = time.UnixMilli(ms)
			}
		default:
			continue
		}
		user--
	}
	if m.Time.IsZero() {
		m.Time = r.Timestamp
	}
	if user == 0 {
		return
	}
	m.Headers = make(broker.Headers, 0, user)
	for i := range r.Headers {
		h := &r.Headers[i]
		switch h.Key {
		case driver.HeaderID, driver.HeaderCopy, driver.HeaderTime:
			if first(r.Headers[:i], h.Key) {
				continue
			}
		}
		m.Headers = append(m.Headers, broker.Header{Key: h.Key, Value: string(h.Value)})
	}
}

// first reports whether no header before is named key: a foreign producer may
// repeat ours, and then the first one counts.
func first(before []kgo.RecordHeader, key string) bool {
	for i := range before {
		if before[i].Key == key {
			return false
		}
	}
	return true
}

// millis reads a decimal number without making a string of it. What isn't one
// is no time: the field is a hint, never a reason to lose a message.
func millis(b []byte) (ms int64, ok bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 17 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = ms*10 + int64(c-'0')
	}
	if neg {
		ms = -ms
	}
	return ms, true
}

// letter is the dead-letter copy of a delivered record: the same identity, so
// that a second copy after a crash is recognised, and where it comes from.
func letter(r *kgo.Record, reason, subscription string, attempts int) broker.Message {
	var m broker.Message
	decode(&m, r, nil, 1)
	hs := make(broker.Headers, 0, len(m.Headers)+3)
	for _, h := range m.Headers {
		switch h.Key {
		case driver.HeaderReason, driver.HeaderSource, driver.HeaderAttempts:
			continue // of an earlier dead-letter topic
		}
		hs = append(hs, h)
	}
	m.Headers = append(hs,
		broker.Header{Key: driver.HeaderReason, Value: reason},
		broker.Header{Key: driver.HeaderSource, Value: subscription},
		broker.Header{Key: driver.HeaderAttempts, Value: strconv.Itoa(attempts)})
	return m
}
