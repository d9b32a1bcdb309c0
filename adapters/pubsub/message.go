package pubsub

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// The service's limits on a message (PS-F-35, PS-F-20).
const (
	maxAttributes = 100
	maxName       = 256  // bytes of an attribute's name
	maxValue      = 1024 // bytes of an attribute's value
	maxKey        = 1024 // bytes of an ordering key

	// headerRoom is what the user's headers may have together, names and values:
	// in the worst encoding, every byte in three, it takes 36 attributes.
	headerRoom = 12 << 10
	// native is how many headers travel as attributes of their own at most; what
	// the envelope and our own fields may need is kept free.
	maxNative = 40

	maxReason = 340 // bytes of a dead letter's reason: escaped, it fits a value
)

// The attributes that the service puts on a message that it dead-letters
// (PS-F-37).
const (
	attrDeliveries = "CloudPubSubDeadLetterSourceDeliveryCount"
	attrSource     = "CloudPubSubDeadLetterSourceSubscription"
	attrProject    = "CloudPubSubDeadLetterSourceSubscriptionProject"
)

// outgoing is a message as it goes out. The bodies are the caller's: the client
// has encoded them when its call returns.
func outgoing(out *pb.PubsubMessage, m *broker.Message, when *stamp) error {
	out.Data = m.Body
	out.OrderingKey, _ = driver.FieldKey(m.Key, maxKey, utf8.ValidString)
	a := make(map[string]string, 2+len(m.Headers))
	out.Attributes = a
	put(a, driver.HeaderID, m.ID)
	a[driver.HeaderTime] = when.of(m)
	if m.Copy != "" {
		put(a, driver.HeaderCopy, m.Copy)
	}
	if out.OrderingKey != m.Key {
		put(a, driver.HeaderKey, m.Key)
	}
	if len(m.Headers) > 0 {
		putHeaders(a, m.Headers)
	}
	if len(a) > maxAttributes {
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q: the headers take %d attributes, over %d", m.ID, len(a), maxAttributes)
	}
	return nil
}

// stamp formats times; the messages of a call mostly have the same.
type stamp struct {
	ms   int64
	text string
}

func (s *stamp) of(m *broker.Message) string {
	if ms := m.Time.UnixMilli(); ms != s.ms || s.text == "" {
		s.ms, s.text = ms, driver.FormatTime(m.Time)
	}
	return s.text
}

// put writes one of our own fields. A value over the limit goes on in NAME-1,
// NAME-2 and so on.
func put(a map[string]string, name, value string) {
	if plain(value) {
		a[name] = value
		return
	}
	value = driver.Escape(value)
	for i, at := 0, name; ; i++ {
		if i > 0 {
			at = name + "-" + strconv.Itoa(i)
		}
		if len(value) <= maxValue {
			a[at] = value
			return
		}
		a[at], value = value[:maxValue], value[maxValue:]
	}
}

// plain reports whether a value travels unescaped: text of any language does.
func plain(value string) bool {
	return len(value) <= maxValue && strings.IndexByte(value, '%') < 0 && utf8.ValidString(value)
}

// get reads what put wrote.
func get(a map[string]string, name string) string {
	value, has := a[name]
	if !has {
		return ""
	}
	if len(value) == maxValue {
		for i := 1; i < maxAttributes; i++ {
			more, has := a[name+"-"+strconv.Itoa(i)]
			if !has {
				break
			}
			value += more
		}
	}
	return driver.Unescape(value)
}

// putHeaders writes the user's headers: as attributes of the same name where
// these can hold them, and all of them once more in the envelope where the list
// couldn't be rebuilt from the former.
func putHeaders(a map[string]string, hs broker.Headers) {
	exact, before := true, len(a)
	for i := range hs {
		name, value := hs[i].Key, hs[i].Value
		switch {
		case letterOf(name):
			put(a, name, value) // read back by its name, behind the others
		case !native(name) || !textual(value) || len(a)-before >= maxNative:
			exact = false
		default:
			if _, again := a[name]; again || i > 0 && name < hs[i-1].Key {
				exact = false // attributes have no order and no repeats; the receiver sorts
			}
			if _, again := a[name]; !again {
				a[name] = value
			}
		}
	}
	if exact {
		return
	}
	rest := driver.EncodeHeaders(hs)
	for i, at := 0, driver.HeaderEnvelope; ; i++ {
		if i > 0 {
			at = driver.HeaderEnvelope + "-" + strconv.Itoa(i)
		}
		if len(rest) <= maxValue {
			a[at] = rest
			return
		}
		a[at], rest = rest[:maxValue], rest[maxValue:]
	}
}

// envelope is the encoded header list, over all its attributes.
func envelope(a map[string]string) string {
	s, has := a[driver.HeaderEnvelope]
	for i := 1; has && i < maxAttributes; i++ {
		var more string
		if more, has = a[driver.HeaderEnvelope+"-"+strconv.Itoa(i)]; has {
			s += more
		}
	}
	return s
}

// letterOf reports whether a header marks a dead letter.
func letterOf(name string) bool {
	return name == driver.HeaderReason || name == driver.HeaderSource || name == driver.HeaderAttempts
}

// native reports whether a header may travel as an attribute of its own name:
// the service keeps those that begin with goog to itself.
func native(name string) bool {
	return len(name) <= maxName && utf8.ValidString(name) && !strings.HasPrefix(name, "goog") && !reserved(name)
}

func reserved(name string) bool {
	return len(name) >= len(broker.ReservedPrefix) && strings.EqualFold(name[:len(broker.ReservedPrefix)], broker.ReservedPrefix)
}

func textual(value string) bool { return len(value) <= maxValue && utf8.ValidString(value) }

// fill makes d the message that m carries. Nothing in an attribute, garbled or
// hostile, keeps it from being delivered.
func fill(d *broker.Delivery, m *pb.PubsubMessage) {
	d.Body = m.Data
	d.Key = m.OrderingKey
	d.Position.Token = m.MessageId
	a := m.Attributes
	known := 0
	id, has := a[driver.HeaderID]
	if has {
		known++
		d.ID = id
		if len(id) == maxValue || strings.IndexByte(id, '%') >= 0 {
			d.ID = get(a, driver.HeaderID)
		}
	}
	if d.ID == "" {
		d.ID = m.MessageId // another producer's; the service's ID is the same on each delivery (PS-F-01)
	}
	if ms, has := a[driver.HeaderTime]; has {
		known++
		d.Time = driver.ParseTime(ms)
	}
	if d.Time.IsZero() && m.PublishTime != nil {
		d.Time = m.PublishTime.AsTime()
	}
	if len(a) == known {
		return
	}
	d.Copy = get(a, driver.HeaderCopy)
	if _, has := a[driver.HeaderKey]; has {
		d.Key = get(a, driver.HeaderKey)
	}
	d.Headers = headers(a)
}

// headers rebuilds the user's list: from the envelope if there is a readable
// one, else from the attributes. What marks a dead letter comes last.
func headers(a map[string]string) broker.Headers {
	var list broker.Headers
	if s := envelope(a); s != "" {
		if hs, err := driver.DecodeHeaders(s); err == nil {
			list = slices.DeleteFunc(hs, func(h broker.Header) bool { return letterOf(h.Key) })
		}
	}
	if list == nil {
		names := make([]string, 0, len(a))
		for name := range a {
			if !reserved(name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		list = make(broker.Headers, len(names), len(names)+3)
		for i, name := range names {
			list[i] = broker.Header{Key: name, Value: a[name]}
		}
	}
	for _, name := range [...]string{driver.HeaderReason, driver.HeaderSource, driver.HeaderAttempts} {
		value := get(a, name)
		if value == "" {
			value = serviceMark(a, name)
		}
		if value != "" {
			list = append(list, broker.Header{Key: name, Value: value})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// serviceMark is what the service itself says of a message that it
// dead-lettered, under our own names.
func serviceMark(a map[string]string, name string) string {
	source, has := a[attrSource]
	switch {
	case !has:
		return ""
	case name == driver.HeaderSource:
		return "projects/" + a[attrProject] + "/subscriptions/" + source
	case name == driver.HeaderAttempts:
		return a[attrDeliveries]
	}
	return ""
}

// sizeOf is an upper bound of a message's bytes in a request.
func sizeOf(m *pb.PubsubMessage) int {
	n := len(m.Data) + len(m.OrderingKey) + 32
	for k, v := range m.Attributes {
		n += len(k) + len(v) + 12
	}
	return n
}
