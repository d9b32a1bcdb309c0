package nats

import (
	"slices"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	headerMsgID = natsgo.MsgIdHdr // the server's dedup field
	natsPrefix  = "Nats-"         // of headers that the server reads or writes

	// blockEnds is what a header block has beside its lines: the version line
	// and the empty line; lineEnds is ": " and CRLF.
	blockEnds = len("NATS/1.0\r\n\r\n")
	lineEnds  = 4
)

// outgoing builds NATS messages, one after the other, in one place. The SDK
// copies a message into its write buffer, so message, map and value slices are
// used again.
type outgoing struct {
	msg     natsgo.Msg
	id      [1]string
	time    [1]string
	timeMS  int64    // what time[0] says
	present [2]bool  // id and time are in the map
	values  []string // of all other headers; grows, each slice of it stays good
	more    bool     // the map holds other headers than these two
}

// set makes o.msg the NATS form of m, without subject and reply, and returns
// the size of its header block.
func (o *outgoing) set(m *broker.Message) (block int) {
	if o.msg.Header == nil {
		o.msg.Header = make(natsgo.Header, 8)
	}
	if o.more {
		clear(o.msg.Header)
		o.more, o.present = false, [2]bool{}
		o.values = o.values[:0]
	}
	o.msg.Data = m.Body
	block = blockEnds
	field, natural := "", true
	if m.ID != "" || m.Copy != "" {
		field, natural = driver.DedupID(m, broker.MaxID, driver.Printable)
		block += len(headerMsgID) + len(field) + lineEnds
		o.id[0] = field
	}
	if has := field != ""; has != o.present[0] {
		if has {
			o.msg.Header[headerMsgID] = o.id[:]
		} else {
			delete(o.msg.Header, headerMsgID)
		}
		o.present[0] = has
	}
	if ms := m.Time.UnixMilli(); ms != o.timeMS || o.time[0] == "" {
		o.timeMS, o.time[0] = ms, driver.FormatTime(m.Time)
	}
	if !o.present[1] {
		o.msg.Header[driver.HeaderTime] = o.time[:]
		o.present[1] = true
	}
	block += len(driver.HeaderTime) + len(o.time[0]) + lineEnds
	if !natural {
		block += o.add(driver.HeaderID, driver.Escape(m.ID))
	}
	if m.Copy != "" {
		block += o.add(driver.HeaderCopy, driver.Escape(m.Copy))
	}
	if m.Key != "" {
		block += o.add(driver.HeaderKey, driver.Escape(m.Key))
	}
	if len(m.Headers) > 0 {
		block += o.addUser(m.Headers)
	}
	return block
}

// add adds a header line and returns its size.
func (o *outgoing) add(name, value string) int {
	o.more = true
	o.values = append(o.values, value)
	n := len(o.values)
	o.msg.Header[name] = o.values[n-1 : n : n]
	return len(name) + len(value) + lineEnds
}

// addUser adds the user's headers: as headers of NATS where those can hold
// them, and all of them once more in the envelope where the list couldn't be
// rebuilt from the former.
func (o *outgoing) addUser(hs broker.Headers) (size int) {
	exact := true
	for i := range hs {
		name, value := hs[i].Key, hs[i].Value
		if !native(name) || !driver.Printable(value) {
			exact = false
			continue
		}
		if i > 0 && name < hs[i-1].Key {
			exact = false // the receiver sorts: a NATS header has no order among names
		}
		if vs, again := o.msg.Header[name]; again {
			o.msg.Header[name] = append(vs, value)
			size += len(name) + len(value) + lineEnds
			continue
		}
		size += o.add(name, value)
	}
	if !exact {
		size += o.add(driver.HeaderEnvelope, driver.EncodeHeaders(hs))
	}
	return size
}

// native reports whether a user's header may travel under its own name: the
// name is a token, and neither the server, an SDK nor this toolkit reads a
// meaning into it.
func native(name string) bool {
	if name == "" || reserved(name) {
		return false
	}
	for i := 0; i < len(name); i++ {
		if !tokenByte[name[i]] {
			return false
		}
	}
	return true
}

// reserved reports whether a header name means something to somebody on the
// way: "Nats-" to the server, "onceline-" to this toolkit, and Status and
// Description to SDKs, which take a message with an empty body and one of these
// for a control message. All in any case, though names are compared exactly
// (nats-server#3645).
func reserved(name string) bool {
	return hasPrefixFold(name, natsPrefix) || hasPrefixFold(name, broker.ReservedPrefix) ||
		strings.EqualFold(name, "Status") || strings.EqualFold(name, "Description")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// tokenByte holds the bytes that a header name of NATS may have (ADR-4, in the
// stricter form of HTTP and of the SDK).
var tokenByte = func() (t [256]bool) {
	for c := '!'; c <= '~'; c++ {
		t[c] = !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}
	return t
}()

// fill makes d the message that m carries. Nothing in a header, garbled or
// hostile, keeps it from being delivered.
func fill(d *broker.Message, m *natsgo.Msg) {
	h := m.Header
	d.Body = m.Data
	if len(h) == 0 {
		return
	}
	known := 0
	if vs := h[headerMsgID]; len(vs) > 0 {
		known++
		d.ID = vs[0]
	}
	if vs := h[driver.HeaderTime]; len(vs) > 0 {
		known++
		d.Time = driver.ParseTime(vs[0])
	}
	if known == len(h) {
		return
	}
	if vs := h[driver.HeaderID]; len(vs) > 0 {
		d.ID = driver.Unescape(vs[0])
	}
	d.Copy = driver.Unescape(first(h, driver.HeaderCopy))
	d.Key = driver.Unescape(first(h, driver.HeaderKey))
	d.Headers = userHeaders(h)
}

// userHeaders rebuilds the user's list: from the envelope if there is a
// readable one, from the NATS headers otherwise. What marks a dead-lettered
// message comes last.
func userHeaders(h natsgo.Header) broker.Headers {
	var list broker.Headers
	fromEnvelope := false
	if vs := h[driver.HeaderEnvelope]; len(vs) > 0 {
		if hs, err := driver.DecodeHeaders(vs[0]); err == nil && len(hs) > 0 {
			list, fromEnvelope = hs, true
		}
	}
	if !fromEnvelope {
		list = nativeHeaders(h)
	}
	for _, name := range [...]string{driver.HeaderReason, driver.HeaderSource, driver.HeaderAttempts} {
		if vs := h[name]; len(vs) > 0 {
			list = append(list, broker.Header{Key: name, Value: driver.Unescape(vs[0])})
		}
	}
	return list
}

func nativeHeaders(h natsgo.Header) broker.Headers {
	n := 0
	names := make([]string, 0, len(h))
	for name, vs := range h {
		if strings.HasPrefix(name, natsPrefix) || driver.Ours(name) {
			continue
		}
		names = append(names, name)
		n += len(vs)
	}
	if n == 0 {
		return nil
	}
	slices.Sort(names)
	list := make(broker.Headers, 0, n)
	for _, name := range names {
		for _, v := range h[name] {
			list = append(list, broker.Header{Key: name, Value: v})
		}
	}
	return list
}

// ackInfo is what a delivery's reply subject says.
type ackInfo struct {
	delivered uint64 // how often the server has handed the message out, this time included
	stream    uint64 // sequence in the stream
	pending   uint64 // messages that wait behind this one for the consumer
}

const ackPrefix = "$JS.ACK."

// parseAckSubject reads
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>[.<random>]
func parseAckSubject(reply string) (a ackInfo, ok bool) {
	if !strings.HasPrefix(reply, ackPrefix) {
		return a, false
	}
	var tokens [12]string
	n, rest := 0, reply[len(ackPrefix):]
	for more := true; more; n++ {
		if n == len(tokens) {
			return a, false
		}
		tokens[n], rest, more = strings.Cut(rest, ".")
	}
	at := 2
	switch {
	case n >= 9:
		at = 4
	case n != 7:
		return a, false
	}
	var okD, okS, okP bool
	a.delivered, okD = decimal(tokens[at])
	a.stream, okS = decimal(tokens[at+1])
	a.pending, okP = decimal(tokens[at+4])
	return a, okD && okS && okP && a.delivered > 0
}

func decimal(s string) (n uint64, ok bool) {
	if s == "" || len(s) > 19 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(s[i]-'0')
	}
	return n, true
}
