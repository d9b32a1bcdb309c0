package sqs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// carried is what a receiver gets of an encoded entry.
func carried(e *entry) *types.Message {
	m := &types.Message{Body: e.out.MessageBody, MessageAttributes: e.out.MessageAttributes, MessageId: ptr("service"), Attributes: map[string]string{}}
	if e.out.MessageDeduplicationId != nil {
		m.Attributes["MessageDeduplicationId"] = *e.out.MessageDeduplicationId
		m.Attributes["MessageGroupId"] = *e.out.MessageGroupId
	}
	return m
}

// takes reports why the service would refuse an entry, "" if it takes it.
func takes(e *entry) string {
	switch {
	case e.body == "" || !charset(e.body):
		return "body"
	case len(e.attrs) > maxAttributes:
		return "attributes"
	}
	size := len(e.body)
	for name, v := range e.attrs {
		if !attrName(name) || v.StringValue == nil || !attrValue(*v.StringValue) {
			return "attribute " + name
		}
		size += len(name) + len(*v.DataType) + len(*v.StringValue)
	}
	if size != e.size {
		return fmt.Sprintf("size %d, counted %d", size, e.size)
	}
	for _, f := range []*string{e.out.MessageDeduplicationId, e.out.MessageGroupId} {
		if f != nil && (len(*f) > maxField || !fieldText(*f)) {
			return "field " + *f
		}
	}
	return ""
}

func FuzzMessage(f *testing.F) {
	f.Add("id", "copy", "key", []byte("body"), "name", "value", uint8(3), true)
	f.Add("id", "", "id", []byte{0}, "AWS.x", "", uint8(12), false)
	f.Add(strings.Repeat("x", 300), "", "", []byte(nil), "a", "\xff", uint8(1), true)
	f.Add("a b%", "\xfe", "\xff\ufffe", []byte("\ufffe"), driver.HeaderReason, "why", uint8(2), true)
	f.Add(hashedPrefix, "", hashedPrefix, []byte(" "), "A", " ", uint8(9), true)
	var used entry // as in a pool
	f.Fuzz(func(t *testing.T, id, copied, key string, body []byte, name, value string, n uint8, fifo bool) {
		if id == "" || len(id) > broker.MaxID || len(key) > broker.MaxID || len(copied) > broker.MaxID || name == "" {
			t.Skip()
		}
		m := broker.Message{ID: id, Copy: copied, Key: key, Body: body, Time: time.UnixMilli(1700000000123)}
		for i := range int(n % 16) {
			m.Headers = append(m.Headers, broker.Header{Key: name + fmt.Sprint(i%11), Value: value + strings.Repeat("v", i)})
		}
		used.set(&m, fifo, nil, nil)
		if why := takes(&used); why != "" {
			t.Fatal(why)
		}
		var d broker.Message
		fill(&d, carried(&used))
		if d.ID != m.ID || d.Copy != m.Copy || d.Key != m.Key || !bytes.Equal(d.Body, m.Body) || !d.Time.Equal(m.Time) || fmt.Sprintf("%q", d.Headers) != fmt.Sprintf("%q", m.Headers) {
			t.Fatalf("%+v\ncame as %+v", m, d)
		}
		// A dead letter of it fits too, and carries as much.
		l := letter{dedup: "onceline-dead-letter-x", marks: [3]string{value, "queue", "3"}}
		used.set(&m, fifo, &l, nil)
		if why := takes(&used); why != "" {
			t.Fatal("letter: ", why)
		}
		d = broker.Message{}
		fill(&d, carried(&used))
		if d.ID != m.ID || d.Copy != m.Copy || d.Key != m.Key || !bytes.Equal(d.Body, m.Body) || d.Headers.Get(driver.HeaderSource) == "" ||
			fmt.Sprintf("%q", d.Headers[:len(m.Headers)]) != fmt.Sprintf("%q", m.Headers) {
			t.Fatalf("letter of %+v\ncame as %+v", m, d)
		}
	})
}

// Messages of other producers, garbled and hostile ones among them, are
// delivered as far as they can be read.
func TestForeignMessages(t *testing.T) {
	text := func(s string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: ptr("String"), StringValue: &s}
	}
	fifo := map[string]string{"MessageDeduplicationId": "d", "MessageGroupId": "g"}
	for name, c := range map[string]struct {
		m    types.Message
		want broker.Message
	}{
		"nothing": {types.Message{}, broker.Message{}},
		"standard": {types.Message{Body: ptr("b"), MessageId: ptr("i"), MessageAttributes: map[string]types.MessageAttributeValue{
			"z": text("1"), "a": {DataType: ptr("Binary.png"), BinaryValue: []byte{0, 1}}, "n": {DataType: ptr("Number"), StringValue: ptr("7")}}},
			broker.Message{ID: "i", Body: []byte("b"), Headers: broker.Headers{{Key: "a", Value: "\x00\x01"}, {Key: "n", Value: "7"}, {Key: "z", Value: "1"}}}},
		"fifo":           {types.Message{Body: ptr("b"), MessageId: ptr("i"), Attributes: fifo}, broker.Message{ID: "d", Key: "g", Body: []byte("b")}},
		"group is dedup": {types.Message{Attributes: map[string]string{"MessageDeduplicationId": "d", "MessageGroupId": "d"}}, broker.Message{ID: "d", Key: "d"}},
		"tenant of a standard queue": {types.Message{MessageId: ptr("i"), Attributes: map[string]string{"MessageGroupId": "g"}},
			broker.Message{ID: "i"}},
		"bad base64": {types.Message{Body: ptr("%%%"), MessageId: ptr("i"), MessageAttributes: map[string]types.MessageAttributeValue{headerBody: text(bodyBase64)}},
			broker.Message{ID: "i", Body: []byte("%%%")}},
		"bad time and escapes": {types.Message{MessageAttributes: map[string]types.MessageAttributeValue{driver.HeaderTime: text("soon"), driver.HeaderID: text("%zz")}},
			broker.Message{ID: "%zz"}},
		"bad envelope": {types.Message{MessageId: ptr("i"), MessageAttributes: map[string]types.MessageAttributeValue{driver.HeaderEnvelope: text("%"), "a": text("1")}},
			broker.Message{ID: "i", Headers: broker.Headers{{Key: "a", Value: "1"}}}},
	} {
		var d broker.Message
		fill(&d, &c.m)
		if fmt.Sprintf("%+v", d) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", name, d, c.want)
		}
		if n := attemptOf(&c.m); n != 1 {
			t.Errorf("%s: attempt %d", name, n)
		}
	}
	if d := ceilSeconds(1); d != 1 {
		t.Errorf("a nanosecond is %d s", d)
	}
}
