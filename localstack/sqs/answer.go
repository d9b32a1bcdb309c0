package sqs

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// answer is a JSON object as it is being written.
type answer struct {
	b     []byte
	empty bool
}

func object(b []byte) answer { return answer{append(b, '{'), true} }

func (o answer) end() []byte { return append(o.b, '}') }

// key writes a key, which needs no escapes.
func (o answer) key(k string) answer {
	if !o.empty {
		o.b = append(o.b, ',')
	}
	o.b = append(appendPlain(o.b, k), ':')
	o.empty = false
	return o
}

// plain writes a value that needs no escapes.
func (o answer) plain(k, v string) answer {
	o = o.key(k)
	o.b = appendPlain(o.b, v)
	return o
}

func (o answer) str(k, v string) answer {
	o = o.key(k)
	o.b = appendQuoted(o.b, v)
	return o
}

// opt is str for a value that may be missing.
func (o answer) opt(k, v string) answer {
	if v == "" {
		return o
	}
	return o.str(k, v)
}

func (o answer) num(k string, n int) answer {
	o = o.key(k)
	o.b = strconv.AppendInt(o.b, int64(n), 10)
	return o
}

// pairs writes a map of strings, if there is something in it.
func (o answer) pairs(k string, ps []pair) answer {
	if len(ps) == 0 {
		return o
	}
	o = o.key(k)
	m := object(o.b)
	for _, p := range ps {
		if !m.empty {
			m.b = append(m.b, ',')
		}
		m.empty = false
		m.b = append(appendQuoted(m.b, p.key), ':')
		m.b = appendQuoted(m.b, p.value)
	}
	o.b = m.end()
	return o
}

func (o answer) urls(k string, names []string, s *Server, h host) answer {
	o = o.key(k)
	o.b = append(o.b, '[')
	for i, n := range names {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendQuoted(o.b, h.url(s, n))
	}
	o.b = append(o.b, ']')
	return o
}

func sortedPairs(m map[string]string) []pair {
	ps := make([]pair, 0, len(m))
	for k, v := range m {
		ps = append(ps, pair{k, v})
	}
	slices.SortFunc(ps, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	return ps
}

// appendSequence writes a sequence number: 20 digits, rising with gaps, more than
// 64 bits can hold (SQS-F-12).
func appendSequence(b []byte, seq uint64) []byte {
	const step = 256
	b = append(b, "188"...)
	var d [17]byte
	n := seq * step
	for i := len(d) - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, d[:]...)
}

// sent writes what the sender of a message is told.
func (o answer) sent(q *queue, m sent) answer {
	o = o.plain("MessageId", m.id).plain("MD5OfMessageBody", m.md5)
	if m.attrsMD5 != "" {
		o = o.plain("MD5OfMessageAttributes", m.attrsMD5)
	}
	if m.systemMD5 != "" {
		o = o.plain("MD5OfMessageSystemAttributes", m.systemMD5)
	}
	if q.fifo {
		o = o.key("SequenceNumber")
		o.b = append(appendSequence(append(o.b, '"'), m.seq), '"')
	}
	return o
}

// results is the answer to a batch: those that succeeded, then those that failed
// (SQS-F-14).
type results struct {
	b         []byte
	object    answer
	succeeded int
	failed    []failedEntry
}

type failedEntry struct {
	e   *entry
	err *apiError
}

func (r *results) ok(e *entry) {
	if r.succeeded == 0 {
		r.b = append(r.b, `{"Successful":[`...)
	} else {
		r.b = append(r.b, ',')
	}
	r.succeeded++
	r.object = object(r.b).plain("Id", e.id.s)
}

func (r *results) close() { r.b = r.object.end() }

func (r *results) fail(e *entry, err *apiError) {
	r.failed = append(r.failed, failedEntry{e, err})
}

func (r *results) end() []byte {
	if r.succeeded > 0 {
		r.b = append(r.b, ']')
	} else {
		r.b = append(r.b, `{"Successful":[]`...)
	}
	for i, f := range r.failed {
		r.b = append(r.b, choose(i == 0, `,"Failed":[`, ",")...)
		o := object(r.b).plain("Id", f.e.id.s).str("Code", f.err.code).str("Message", f.err.msg).key("SenderFault")
		r.b = append(strconv.AppendBool(o.b, f.err.sender()), '}')
	}
	if len(r.failed) > 0 {
		r.b = append(r.b, ']')
	}
	return append(r.b, '}')
}

func appendError(b []byte, e *apiError) []byte {
	return object(b).plain("__type", e.shape).str("message", e.msg).end()
}

// append writes a message as a receiver gets it.
func (h *handed) append(b []byte, q *queue, system, attrs wanted) []byte {
	m := h.m
	o := object(b).plain("MessageId", m.id).key("ReceiptHandle")
	o.b = handle{queue: q.uid, message: m.uid, receive: h.receive, ends: h.ends}.append(append(o.b, '"'))
	o.b = append(o.b, '"')
	o = o.plain("MD5OfBody", m.md5).key("Body")
	if m.escaped {
		o.b = appendQuoted(o.b, m.body)
	} else {
		o.b = appendPlain(o.b, m.body)
	}
	if system.all || len(system.names) > 0 {
		o = h.system(o, q, system)
	}
	if len(m.attrs) > 0 && (attrs.all || len(attrs.names) > 0) {
		o = m.attributes(o, attrs)
	}
	return o.end()
}

// senderID stands for the user who sent a message.
const senderID = "AIDAONCELINEEMULATOR0"

func (h *handed) system(o answer, q *queue, w wanted) answer {
	m := h.m
	was := len(o.b)
	o = o.key("Attributes")
	a := object(o.b)
	num := func(name string, n int64) {
		if w.has(name) {
			a = a.key(name)
			a.b = append(strconv.AppendInt(append(a.b, '"'), n, 10), '"')
		}
	}
	str := func(name, v string) {
		if v != "" && w.has(name) {
			a = a.str(name, v)
		}
	}
	str("SenderId", senderID)
	num("ApproximateFirstReceiveTimestamp", h.first/1e6)
	num("ApproximateReceiveCount", int64(h.count))
	num("SentTimestamp", m.sentAt/1e6)
	if q.fifo && w.has("SequenceNumber") {
		a = a.key("SequenceNumber")
		a.b = append(appendSequence(append(a.b, '"'), m.uid), '"')
	}
	str("MessageDeduplicationId", m.dedup)
	str("MessageGroupId", m.group)
	str("AWSTraceHeader", m.trace)
	str("DeadLetterQueueSourceArn", m.source)
	if a.empty {
		o.b = o.b[:was] // nothing of what was asked for is there
		o.empty = false
		return o
	}
	o.b = a.end()
	return o
}

// attributes writes the attributes that were asked for, and the checksum of these
// (SQS-F-64).
func (m *message) attributes(o answer, w wanted) answer {
	some := m.attrs
	sum := m.attrsMD5
	if !w.all {
		some = make([]attribute, 0, len(m.attrs))
		for _, a := range m.attrs {
			if w.matches(a.name) {
				some = append(some, a)
			}
		}
		if len(some) == 0 {
			return o
		}
		if len(some) < len(m.attrs) {
			md5 := sumAttributes(some)
			sum = hex.EncodeToString(md5[:])
		}
	}
	o = o.plain("MD5OfMessageAttributes", sum).key("MessageAttributes")
	o.b = append(o.b, '{')
	for i := range some {
		a := &some[i]
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(appendQuoted(o.b, a.name), ':')
		v := object(o.b).str("DataType", a.kind)
		if a.binary {
			v = v.key("BinaryValue")
			v.b = base64.StdEncoding.AppendEncode(append(v.b, '"'), []byte(a.value))
			v.b = append(v.b, '"')
		} else {
			v = v.str("StringValue", a.value)
		}
		o.b = v.end()
	}
	o.b = append(o.b, '}')
	return o
}

// appendQuoted appends s as a JSON string.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// appendPlain appends s, which needs no escapes, as a JSON string.
func appendPlain(b []byte, s string) []byte {
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
