package rabbitmq

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// maxField is the most that a short string of the protocol holds.
	maxField = 255
	// maxName is the longest header name that travels as a header of the broker.
	maxName = 128
	// frameRoom is what a frame must hold beside the user's headers: properties,
	// our own headers, and those that a dead letter gets on top.
	frameRoom = 8 << 10
	// maxUser is what Limits admits of the user's own headers: encoded in the
	// envelope a byte may take three, and our own fields need room beside.
	maxUser = 28 << 10
)

// headerAttempts counts the deliveries that a message had before it was copied
// to be delivered later. It never reaches the application.
const headerAttempts = broker.ReservedPrefix + "attempts"

// encoder makes messages of the protocol, one after the other, in one place: the
// SDK has written a message when its publish returns.
type encoder struct {
	table  amqp.Table
	room   int  // for the table, in bytes
	more   bool // the table holds more than the time
	timeMS int64
	time   any // its string, boxed once
}

// set makes p the protocol's form of m.
func (e *encoder) set(m *broker.Message, p *amqp.Publishing) error {
	if e.table == nil {
		e.table = make(amqp.Table, 8)
	}
	if e.more {
		clear(e.table)
		e.more, e.time = false, nil
	}
	field, natural := fieldOf(m)
	size := 0
	if ms := m.Time.UnixMilli(); e.time == nil || ms != e.timeMS {
		e.timeMS, e.time = ms, driver.FormatTime(m.Time)
		e.table[driver.HeaderTime] = e.time
	}
	if !natural {
		size += e.add(driver.HeaderID, m.ID)
	}
	if m.Copy != "" {
		size += e.add(driver.HeaderCopy, m.Copy)
	}
	if m.Key != "" {
		size += e.add(driver.HeaderKey, m.Key)
	}
	if len(m.Headers) > 0 {
		size += e.addUser(m.Headers)
	}
	if size > e.room {
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q: the headers take %d bytes encoded, over %d", m.ID, size, e.room)
	}
	*p = amqp.Publishing{Headers: e.table, MessageId: field, Timestamp: m.Time, DeliveryMode: amqp.Persistent, Body: m.Body}
	return nil
}

// fieldOf is the message-id of a message. The broker doesn't look at it; a short
// string holds it, and other clients expect text.
func fieldOf(m *broker.Message) (field string, natural bool) {
	if m.ID == "" && m.Copy == "" {
		return "", true // with validation off
	}
	return driver.DedupID(m, maxField, utf8.ValidString)
}

// add adds a header and returns about how many bytes it takes.
func (e *encoder) add(name, value string) int {
	e.more = true
	e.table[name] = value
	return len(name) + len(value) + 6
}

// addUser adds the user's headers: as headers of the broker where those can hold
// them, and all of them once more in the envelope where the list couldn't be
// rebuilt from the former: the table has no repeats and no order.
func (e *encoder) addUser(hs broker.Headers) (size int) {
	exact := true
	for i := range hs {
		name := hs[i].Key
		if !native(name) {
			exact = false
			continue
		}
		if i > 0 && name <= hs[i-1].Key {
			exact = false
			if _, again := e.table[name]; again {
				continue
			}
		}
		size += e.add(name, hs[i].Value)
	}
	if !exact {
		size += e.add(driver.HeaderEnvelope, driver.EncodeHeaders(hs))
	}
	return size
}

// native reports whether a user's header may travel under its own name. CC and
// BCC route copies to more queues, "x-" is the broker's own.
func native(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !hasPrefixFold(name, "x-") &&
		!hasPrefixFold(name, broker.ReservedPrefix) && name != "CC" && name != "BCC"
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// decode makes m the message that d carries. Nothing in a header, garbled or
// hostile, keeps it from being delivered.
func decode(m *broker.Message, d *amqp.Delivery) {
	m.ID, m.Body = d.MessageId, d.Body
	h := d.Headers
	known := 0
	if v, ok := h[driver.HeaderTime]; ok {
		known++
		m.Time = driver.ParseTime(text(v))
	} else if !d.Timestamp.IsZero() {
		m.Time = d.Timestamp
	}
	if _, ok := h[headerCount]; ok {
		known++
	}
	if known == len(h) {
		return
	}
	if v, ok := h[driver.HeaderID]; ok {
		m.ID = text(v)
	}
	if v, ok := h[driver.HeaderCopy]; ok {
		m.Copy = text(v)
	}
	if v, ok := h[driver.HeaderKey]; ok {
		m.Key = text(v)
	}
	m.Headers = userHeaders(h)
}

// userHeaders rebuilds the user's list: from the envelope if there is a readable
// one, from the table otherwise. What marks a dead letter comes last.
func userHeaders(h amqp.Table) broker.Headers {
	var list broker.Headers
	if v, ok := h[driver.HeaderEnvelope]; ok {
		if hs, err := driver.DecodeHeaders(text(v)); err == nil {
			list = hs
		}
	}
	if list == nil {
		for name, v := range h {
			if !hasPrefixFold(name, broker.ReservedPrefix) && !byBroker(name) {
				list = append(list, broker.Header{Key: name, Value: text(v)})
			}
		}
		slices.SortFunc(list, func(a, b broker.Header) int { return strings.Compare(a.Key, b.Key) })
	}
	return appendDeath(list, h)
}

// appendDeath adds the marks of a dead letter: this toolkit's own, or those of a
// queue that gave the message up by itself.
func appendDeath(list broker.Headers, h amqp.Table) broker.Headers {
	if v, ok := h[driver.HeaderReason]; ok {
		list = append(list, broker.Header{Key: driver.HeaderReason, Value: text(v)})
		for _, name := range [...]string{driver.HeaderSource, driver.HeaderAttempts} {
			if v, ok := h[name]; ok {
				list = append(list, broker.Header{Key: name, Value: text(v)})
			}
		}
		return list
	}
	deaths, _ := h["x-death"].([]any)
	if len(deaths) == 0 {
		return list
	}
	last, _ := deaths[0].(amqp.Table)
	queue := text(last["queue"])
	if last == nil || isRetryQueue(queue) {
		return list // it was only waiting
	}
	return append(list, broker.Header{Key: driver.HeaderReason, Value: text(last["reason"])},
		broker.Header{Key: driver.HeaderSource, Value: queue})
}

// byBroker reports whether the broker writes a header of that name by itself.
func byBroker(name string) bool {
	switch name {
	case headerCount, headerAcquired, "x-death", "x-delivered-count", "x-opt-delivery-time":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

const (
	headerCount    = "x-delivery-count" // quorum: returns before this delivery (RMQ-F-16)
	headerAcquired = "x-acquired-count" // quorum since 4.3: hand-overs before this one (RMQ-F-15)
)

// attemptOf is the number of this delivery. A classic queue only says that it
// isn't the first.
func attemptOf(d *amqp.Delivery) broker.Attempt {
	before := number(text(d.Headers[headerAttempts]))
	if n, ok := integer(d.Headers[headerAcquired]); ok {
		return broker.Attempt{Number: before + n + 1, Trust: broker.Exact}
	}
	n, counted := integer(d.Headers[headerCount])
	switch {
	case counted:
		return broker.Attempt{Number: before + n + 1, Trust: broker.Exact}
	case d.Redelivered:
		return broker.Attempt{Number: before + 2, Trust: broker.None}
	}
	return broker.Attempt{Number: before + 1, Trust: broker.None}
}

// copyOf makes p a copy of a delivery, without what the broker wrote into it.
func copyOf(d *amqp.Delivery, p *amqp.Publishing) {
	*p = amqp.Publishing{ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body, Headers: make(amqp.Table, len(d.Headers)+3)}
	for name, v := range d.Headers {
		if !byBroker(name) && name != "CC" && name != "BCC" {
			p.Headers[name] = v
		}
	}
}

func integer(v any) (int, bool) {
	switch n := v.(type) {
	case int64:
		return int(n), n >= 0
	case int32:
		return int(n), n >= 0
	case int16:
		return int(n), n >= 0
	case uint32:
		return int(n), true
	case uint16:
		return int(n), true
	case uint8:
		return int(n), true
	case int8:
		return int(n), n >= 0
	}
	return 0, false
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// text is a header's value as a string. Other clients write other types.
func text(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case nil:
		return ""
	case []byte:
		return string(x)
	case time.Time:
		return x.UTC().Format(time.RFC3339)
	}
	return fmt.Sprint(v)
}
