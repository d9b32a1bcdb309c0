package sqs

import (
	"encoding/base64"
	"encoding/binary"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// headerBody says how a body travels that is not text of the service's charset:
// one of the two values below. Its name is in the reserved prefix, so no user
// header can have it.
const (
	headerBody = "onceline-body"
	bodyBase64 = "base64"
	bodyEmpty  = "empty" // the service refuses an empty body; what is there means nothing
)

const (
	maxAttributes = 10  // of a message
	maxAttrName   = 256 // bytes
	maxField      = 128 // bytes of a dedup or group ID (SQS-F-01)
)

// textType is the data type of all attributes that this adapter writes.
var textType = "String"

// entryIDs are the IDs of a batch's entries: their places.
var entryIDs = [batchSize]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

// entryPlace reads one.
func entryPlace(id *string, n int) (int, bool) {
	if id == nil || len(*id) != 1 {
		return 0, false
	}
	i := int((*id)[0]) - '0'
	return i, i >= 0 && i < n
}

// entry is one message in the service's form, with the room for its strings. It
// is used again: the SDK is done with it when a call returns.
type entry struct {
	out    types.SendMessageBatchRequestEntry
	attrs  map[string]types.MessageAttributeValue
	values [maxAttributes]string // what attrs points to
	used   int
	body   string
	dedup  string
	group  string
	size   int // bytes that count against the limits
}

// letter is what a dead letter's copy has beside its message.
type letter struct {
	dedup string // the dedup field, on a FIFO queue
	marks [3]string
}

// set makes e the form of m for a queue. scratch is a buffer to encode in; it is
// returned, perhaps grown.
func (e *entry) set(m *broker.Message, fifo bool, l *letter, scratch []byte) []byte {
	if e.attrs == nil {
		e.attrs = make(map[string]types.MessageAttributeValue, maxAttributes)
	} else {
		clear(e.attrs)
	}
	e.used, e.size = 0, 0
	e.out.MessageDeduplicationId, e.out.MessageGroupId, e.out.MessageAttributes = nil, nil, nil

	scratch = e.setBody(m.Body, scratch)
	e.size += len(e.body)
	e.out.MessageBody = &e.body

	// The ID travels as an attribute always: a redrive gives a message a new
	// dedup ID, and a standard queue has none (SQS-F-37).
	e.add(driver.HeaderID, driver.Escape(m.ID))
	e.add(driver.HeaderTime, driver.FormatTime(m.Time))
	if m.Copy != "" {
		e.add(driver.HeaderCopy, driver.Escape(m.Copy))
	}
	if fifo {
		e.setFIFO(m, l)
	} else if m.Key != "" {
		e.add(driver.HeaderKey, driver.Escape(m.Key))
	}
	if len(m.Headers) > 0 || l != nil {
		e.setHeaders(m.Headers, l)
	}
	e.out.MessageAttributes = e.attrs
	return scratch
}

// setFIFO sets the dedup and the group ID. A message without a key gets a group
// of its own, so that nothing waits for it, named like its dedup ID, so that it
// is compared with its own copies in every dedup scope.
func (e *entry) setFIFO(m *broker.Message, l *letter) {
	e.dedup, _ = driver.DedupID(m, maxField, fieldText)
	e.group = e.dedup
	if l != nil {
		e.dedup = l.dedup
	}
	if m.Key != "" {
		group, natural := driver.FieldKey(m.Key, maxField, fieldText)
		if !natural || group == m.ID || group == e.group { // one that would pass for no key
			e.add(driver.HeaderKey, driver.Escape(m.Key))
		}
		e.group = group
	}
	e.out.MessageDeduplicationId, e.out.MessageGroupId = &e.dedup, &e.group
	if m.ID == "" && l == nil {
		e.out.MessageDeduplicationId = nil // with the checks off: what the service says to it is wanted
	}
}

// keyless reports whether a group is that of a message of ours without a key.
func keyless(group, dedup, id string) bool {
	return group == dedup || group == id || strings.HasPrefix(group, hashedPrefix)
}

// hashedPrefix is what a hashed field begins with. A key that does so is hashed
// itself, and then it is in an attribute of its own.
const hashedPrefix = broker.ReservedPrefix + "sha256-"

func (e *entry) setBody(body, scratch []byte) []byte {
	switch {
	case len(body) == 0:
		e.body = bodyEmpty
		e.add(headerBody, bodyEmpty)
	case bodyText(body):
		e.body = string(body)
	default:
		scratch = base64.StdEncoding.AppendEncode(scratch[:0], body)
		e.body = string(scratch)
		e.add(headerBody, bodyBase64)
	}
	return scratch
}

// add adds an attribute. The service takes none without a value.
func (e *entry) add(name, value string) {
	if value == "" {
		return
	}
	e.values[e.used] = value
	e.attrs[name] = types.MessageAttributeValue{DataType: &textType, StringValue: &e.values[e.used]}
	e.used++
	e.size += len(name) + len(textType) + len(value)
}

// setHeaders adds the user's headers: as attributes of the same name where those
// can hold them and there is room, and all of them in the envelope where the
// list couldn't be rebuilt from the former.
func (e *entry) setHeaders(hs broker.Headers, l *letter) {
	free := maxAttributes - e.used // never less than the marks and the envelope need
	if l != nil {
		free -= len(markNames)
	}
	exact := len(hs) <= free && rebuildable(hs)
	if !exact {
		free--
	}
	for i := range hs {
		if free <= 0 {
			break
		}
		name, value := hs[i].Key, hs[i].Value
		if _, taken := e.attrs[name]; taken || !attrName(name) || !attrValue(value) || ours(name) {
			continue
		}
		e.add(name, value)
		free--
	}
	if !exact {
		e.add(driver.HeaderEnvelope, driver.EncodeHeaders(hs))
	}
	if l != nil {
		for i, name := range markNames {
			e.add(name, driver.Escape(l.marks[i]))
		}
	}
}

var markNames = [3]string{driver.HeaderReason, driver.HeaderSource, driver.HeaderAttempts}

// ours reports whether an attribute carries a field of ours or marks a dead
// letter.
func ours(name string) bool { return driver.Ours(name) || name == headerBody }

// rebuildable reports whether a receiver that sorts attributes by name gets the
// list as it was.
func rebuildable(hs broker.Headers) bool {
	for i := range hs {
		if i > 0 && hs[i].Key <= hs[i-1].Key {
			return false
		}
		if !attrName(hs[i].Key) || !attrValue(hs[i].Value) || ours(hs[i].Key) {
			return false
		}
	}
	return true
}

// attrName reports whether the service takes an attribute of that name: letters,
// digits, '_', '-' and single periods inside, not beginning with AWS. or Amazon.
func attrName(s string) bool {
	if s == "" || len(s) > maxAttrName || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return !hasPrefixFold(s, "aws.") && !hasPrefixFold(s, "amazon.")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func attrValue(s string) bool { return s != "" && charset(s) }

// fieldText reports whether a dedup or group ID can hold s: letters, digits and
// ASCII punctuation, no spaces (SQS-F-01).
func fieldText(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// charset reports whether the service takes s as text: valid UTF-8 of the
// characters that XML 1.0 admits.
func charset(s string) bool {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if !textByte[c] {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if !textRune(r, n) {
			return false
		}
		i += n
	}
	return true
}

// bodyText is charset for bytes.
func bodyText(b []byte) bool {
	const high, spaces = 0x8080808080808080, 0x2020202020202020
	for i := 0; i < len(b); {
		if i+8 <= len(b) {
			// Eight at once where each is ASCII and no control character, as most are.
			if x := binary.LittleEndian.Uint64(b[i:]); (x|(x-spaces))&high == 0 {
				i += 8
				continue
			}
		}
		if c := b[i]; c < utf8.RuneSelf {
			if !textByte[c] {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if !textRune(r, n) {
			return false
		}
		i += n
	}
	return true
}

var textByte = func() (t [utf8.RuneSelf]bool) {
	for c := range t {
		t[c] = c >= ' ' || c == '\t' || c == '\n' || c == '\r'
	}
	return t
}()

func textRune(r rune, size int) bool {
	return (r != utf8.RuneError || size == 3) && r != 0xFFFE && r != 0xFFFF
}

// fill makes d the message that m carries. Nothing in an attribute, garbled or
// hostile, keeps it from being delivered.
func fill(d *broker.Message, m *types.Message) {
	attrs := m.MessageAttributes
	stamp, mine := attribute(attrs, driver.HeaderTime)
	var dedup, group string
	if len(m.Attributes) > 1 { // besides its count of deliveries
		dedup = m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)]
		group = m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
	}
	known := 0
	if mine {
		known++
		d.Time = driver.ParseTime(stamp)
	}
	if id, ok := attribute(attrs, driver.HeaderID); ok {
		known++
		d.ID = driver.Unescape(id)
	} else if dedup != "" {
		d.ID = dedup
	} else if m.MessageId != nil {
		d.ID = *m.MessageId // of another producer: the service's own, the same on every delivery
	}
	if group != "" && dedup != "" && !(mine && keyless(group, dedup, d.ID)) {
		d.Key = group
	}
	if known == len(attrs) {
		d.Body = []byte(aws.ToString(m.Body))
		return
	}
	d.Body = readBody(m, attrs)
	if key, ok := attribute(attrs, driver.HeaderKey); ok {
		d.Key = driver.Unescape(key)
	}
	if c, ok := attribute(attrs, driver.HeaderCopy); ok {
		d.Copy = driver.Unescape(c)
	}
	d.Headers = userHeaders(attrs)
}

func attribute(attrs map[string]types.MessageAttributeValue, name string) (string, bool) {
	v, ok := attrs[name]
	if !ok {
		return "", false
	}
	return attributeText(&v), true
}

func attributeText(v *types.MessageAttributeValue) string {
	if v.StringValue != nil {
		return *v.StringValue
	}
	return string(v.BinaryValue)
}

// readBody undoes setBody. A body whose marker doesn't fit it is given as it is.
func readBody(m *types.Message, attrs map[string]types.MessageAttributeValue) []byte {
	text := aws.ToString(m.Body)
	switch how, _ := attribute(attrs, headerBody); how {
	case bodyEmpty:
		return []byte{}
	case bodyBase64:
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			return b
		}
	}
	return []byte(text)
}

// userHeaders rebuilds the user's list: from the envelope if there is a readable
// one, from the attributes otherwise. What marks a dead letter comes last.
func userHeaders(attrs map[string]types.MessageAttributeValue) broker.Headers {
	var list broker.Headers
	whole := false
	if env, ok := attribute(attrs, driver.HeaderEnvelope); ok {
		if hs, err := driver.DecodeHeaders(env); err == nil && len(hs) > 0 {
			list, whole = hs, true
		}
	}
	if !whole {
		for name, v := range attrs {
			if !ours(name) {
				list = append(list, broker.Header{Key: name, Value: attributeText(&v)})
			}
		}
		sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	}
	for _, name := range markNames {
		if v, ok := attribute(attrs, name); ok {
			list = append(list, broker.Header{Key: name, Value: driver.Unescape(v)})
		}
	}
	return list
}

// position is where the service keeps a message: the sequence number of a FIFO
// queue, of 20 digits and more than 64 bits hold (SQS-F-12), the message's own
// ID elsewhere.
func position(sequence string, messageID *string) broker.Position {
	if sequence == "" && messageID != nil {
		sequence = *messageID
	}
	return broker.Position{Token: sequence}
}

// ceilSeconds is d in whole seconds, never less.
func ceilSeconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second)
}
