package servicebus

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// maxField is how long a message ID, session ID or partition key may be, in
	// characters (SB-F-01, SB-F-23).
	maxField = 128

	// maxHeaders is what all properties of a message may take (SB-F-11), less what
	// this toolkit's own can.
	maxHeaders = 64<<10 - 4*broker.MaxID - 4<<10

	// maxProperty is how long the name of a property may be.
	maxProperty = 128

	// The properties in which the service keeps why it dead-lettered a message.
	propertyReason      = "DeadLetterReason"
	propertyDescription = "DeadLetterErrorDescription"
)

// outgoing builds the SDK's messages, one after the other, in one place: the SDK
// encodes a message as it is added to a batch.
type outgoing struct {
	msg        azservicebus.AMQPAnnotatedMessage
	properties azservicebus.AMQPAnnotatedMessageProperties
	data       [1][]byte
	rest       map[string]any // the properties of all messages of a batch but the first
	timeMS     int64
	time       any // boxed, for all messages of a millisecond share it
}

// emptySession is the session of messages without a key on an entity that wants
// one: the empty string is a session like others.
var emptySession = ""

// set makes o.msg the Service Bus form of m. sessions says that a message without
// a key needs a session too. first says that it is the first of a batch, of which
// the SDK keeps what is pointed to for the batch's envelope.
func (o *outgoing) set(m *broker.Message, sessions, first bool) {
	p := o.rest
	switch {
	case first:
		p = make(map[string]any, 4)
	case p == nil:
		p = make(map[string]any, 8)
		o.rest = p
	case len(p) > 1:
		clear(p)
	}
	o.msg.ApplicationProperties = p
	o.data[0] = m.Body
	o.msg.Body.Data = o.data[:]
	o.msg.Properties = &o.properties
	field, natural := driver.DedupID(m, maxField, plain)
	o.properties.MessageID = field
	if ms := m.Time.UnixMilli(); ms != o.timeMS || o.time == nil {
		o.timeMS, o.time = ms, driver.FormatTime(m.Time)
	}
	p[driver.HeaderTime] = o.time
	if !natural {
		p[driver.HeaderID] = text(m.ID)
	}
	if m.Copy != "" {
		p[driver.HeaderCopy] = text(m.Copy)
	}
	o.properties.GroupID = nil
	switch {
	case m.Key != "":
		o.properties.GroupID = &m.Key
		if hashed, natural := driver.FieldKey(m.Key, maxField, plain); !natural {
			p[driver.HeaderKey] = text(m.Key)
			o.properties.GroupID = &hashed
		}
	case sessions:
		o.properties.GroupID = &emptySession
	}
	if len(m.Headers) > 0 {
		o.addUser(m.Headers)
	}
}

// addUser adds the user's headers as application properties where those can hold
// them, and all of them once more in the envelope where the list couldn't be
// rebuilt from the properties, which have no order and no repeats.
func (o *outgoing) addUser(hs broker.Headers) {
	p := o.msg.ApplicationProperties
	exact := true
	for i := range hs {
		name, value := hs[i].Key, hs[i].Value
		if !native(name) || !utf8.ValidString(value) {
			exact = false
			continue
		}
		if i > 0 && name <= hs[i-1].Key {
			exact = false
		}
		if _, again := p[name]; !again {
			p[name] = value
		}
	}
	if !exact {
		p[driver.HeaderEnvelope] = driver.EncodeHeaders(hs)
	}
}

// native reports whether a user's header may travel under its own name.
func native(name string) bool {
	return name != "" && len(name) <= maxProperty && utf8.ValidString(name) && !reserved(name)
}

// reserved reports whether the name means something to the service, the SDK
// (which panics over a DeadLetterReason that isn't a string) or this toolkit.
func reserved(name string) bool {
	return name == propertyReason || name == propertyDescription ||
		len(name) >= len(broker.ReservedPrefix) && strings.EqualFold(name[:len(broker.ReservedPrefix)], broker.ReservedPrefix)
}

// plain reports whether a field of the service holds s unchanged: any text
// without control characters that AMQP, and a portal that shows it, can carry.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != "" && utf8.ValidString(s) && s[0] != ' ' && s[len(s)-1] != ' '
}

// text makes any string one that AMQP can carry.
func text(s string) string { return driver.Escape(s) }

// fill makes d the message that m carries. Nothing in it, garbled or hostile,
// keeps it from being delivered.
func fill(d *broker.Message, m *azservicebus.ReceivedMessage) {
	d.Body = body(m)
	d.ID = m.MessageID
	if m.SessionID != nil {
		d.Key = *m.SessionID
	} else if m.PartitionKey != nil {
		d.Key = *m.PartitionKey
	}
	p := m.ApplicationProperties
	known := 0
	if s, ok := p[driver.HeaderTime].(string); ok {
		known++
		d.Time = driver.ParseTime(s)
	}
	if known < len(p) || m.DeadLetterSource != nil {
		fillRest(d, m, p)
	}
}

func fillRest(d *broker.Message, m *azservicebus.ReceivedMessage, p map[string]any) {
	if s, ok := p[driver.HeaderID].(string); ok {
		d.ID = driver.Unescape(s)
	}
	if s, ok := p[driver.HeaderCopy].(string); ok {
		d.Copy = driver.Unescape(s)
	}
	if s, ok := p[driver.HeaderKey].(string); ok {
		d.Key = driver.Unescape(s)
	}
	fromEnvelope := false
	if s, ok := p[driver.HeaderEnvelope].(string); ok {
		if hs, err := driver.DecodeHeaders(s); err == nil && len(hs) > 0 {
			d.Headers, fromEnvelope = hs, true
		}
	}
	if !fromEnvelope {
		for _, name := range slices.Sorted(maps.Keys(p)) {
			if !driver.Ours(name) && name != propertyReason && name != propertyDescription {
				d.Headers = append(d.Headers, broker.Header{Key: name, Value: value(p[name])})
			}
		}
	}
	fillDead(d, m, p)
}

// fillDead adds what marks a dead letter, whoever made it one: this toolkit's
// marks where they are, else what the service knows.
func fillDead(d *broker.Message, m *azservicebus.ReceivedMessage, p map[string]any) {
	mark := func(name, fallback string) {
		if s, ok := p[name].(string); ok {
			fallback = driver.Unescape(s)
		}
		if fallback != "" {
			d.Headers = append(d.Headers, broker.Header{Key: name, Value: fallback})
		}
	}
	reason, from := "", ""
	if m.DeadLetterReason != nil {
		reason = *m.DeadLetterReason
	}
	if m.DeadLetterSource != nil {
		from = *m.DeadLetterSource
	}
	mark(driver.HeaderReason, reason)
	mark(driver.HeaderSource, from)
	mark(driver.HeaderAttempts, "")
}

// body is the payload, also that of other clients, which may be in several data
// sections or a value.
func body(m *azservicebus.ReceivedMessage) []byte {
	if m.Body != nil || m.RawAMQPMessage == nil {
		return m.Body
	}
	raw := &m.RawAMQPMessage.Body
	switch v := raw.Value.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return slices.Concat(raw.Data...)
}

// value is the text of an application property that another client may have given
// any AMQP type.
func value(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case int32:
		return strconv.FormatInt(int64(v), 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case amqp.UUID:
		return v.String()
	case amqp.Symbol:
		return string(v)
	case [16]byte:
		return hex.EncodeToString(v[:])
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}
