package servicebus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Whatever a message holds arrives as it was sent.
func TestAnyMessage(t *testing.T) {
	t.Parallel() // it waits, as a rule
	for _, kind := range []string{"queue", "sessions"} {
		_, _, _, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
		long := strings.Repeat("x", broker.MaxID)
		ms := []broker.Message{
			{ID: "plain"},
			{ID: "umlaut äöü 漢字", Key: "schlüssel"},
			{ID: long, Key: long},
			{ID: long[:broker.MaxID-1] + "y", Key: long[1:] + "y"},
			{ID: "bytes \x01\xff%41", Key: "key \x01\xfe%"},
			{ID: " spaced ", Key: " k "},
			{ID: "onceline-sha256-looks-like-one"},
			{ID: "copy", Copy: "c \xff 1"},
			{ID: "sorted", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}},
			{ID: "order", Headers: broker.Headers{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}}},
			{ID: "repeats", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}},
			{ID: "binary", Headers: broker.Headers{{Key: "a\xff", Value: "\x00\xfe&=%"}, {Key: "n", Value: ""}}},
			{ID: "meaning", Headers: broker.Headers{{Key: "DeadLetterReason", Value: "no"}, {Key: "Onceline", Value: "ok"}}},
			{ID: "empty header", Headers: broker.Headers{{Key: "a", Value: ""}}},
			{ID: "body", Body: []byte{0, 1, 2, 255}, Time: time.UnixMilli(1234567890123)},
			{ID: "big", Body: []byte(strings.Repeat("z", 100<<10))},
		}
		for i := range ms {
			publish(t, p, ms[i])
			d := receiveOne(t, r)
			if d.ID != ms[i].ID || d.Key != ms[i].Key || d.Copy != ms[i].Copy || string(d.Body) != string(ms[i].Body) ||
				!slices.Equal(d.Headers, ms[i].Headers) || (!ms[i].Time.IsZero() && !d.Time.Equal(ms[i].Time)) || d.Time.IsZero() {
				t.Errorf("%s: %q came as %+v", kind, ms[i].ID, d.Message)
			}
			ack(t, *d)
		}
	}
}

// Messages of other producers come whole, whatever types they use.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	var sender *azservicebus.Sender
	if !p.As(&sender) {
		t.Fatal("no sender")
	}
	id, when, key := "foreign", time.UnixMilli(1700000000000), "k"
	err := sender.SendMessage(t.Context(), &azservicebus.Message{MessageID: &id, PartitionKey: &key, Body: []byte("b"), ApplicationProperties: map[string]any{
		"int": int64(-7), "small": int32(7), "float": 1.5, "bool": true, "time": when, "text": "t", "nil": nil, "uuid": amqp.UUID{1},
		driver.HeaderEnvelope: "%zz", driver.HeaderTime: int64(5), driver.HeaderID: 17,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := receiveOne(t, r)
	want := broker.Headers{{Key: "bool", Value: "true"}, {Key: "float", Value: "1.5"}, {Key: "int", Value: "-7"}, {Key: "nil", Value: ""},
		{Key: "small", Value: "7"}, {Key: "text", Value: "t"}, {Key: "time", Value: "2023-11-14T22:13:20Z"}, {Key: "uuid", Value: amqp.UUID{1}.String()}}
	if d.ID != id || d.Key != key || string(d.Body) != "b" || !slices.Equal(d.Headers, want) || !d.Time.IsZero() {
		t.Errorf("%+v", d.Message)
	}
	ack(t, *d)
	for _, body := range []azservicebus.AMQPAnnotatedMessageBody{{Value: "text"}, {Value: []byte("text")}, {Data: [][]byte{[]byte("te"), []byte("xt")}}} {
		if err := sender.SendAMQPAnnotatedMessage(t.Context(), &azservicebus.AMQPAnnotatedMessage{Body: body}, nil); err != nil {
			t.Fatal(err)
		}
		if d = receiveOne(t, r); string(d.Body) != "text" {
			t.Errorf("%+v", d.Message)
		}
		ack(t, *d)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]source{
		"q":                                  {queue: "q"},
		"a/b":                                {topic: "a", subscription: "b"},
		"a/b/Subscriptions/c":                {topic: "a/b", subscription: "c"},
		"a/b/c":                              {queue: "a/b/c"},
		"q/$DeadLetterQueue":                 {queue: "q", dead: true},
		"t/s/$deadletterqueue":               {topic: "t", subscription: "s", dead: true},
		"t/subscriptions/s/$deadletterqueue": {topic: "t", subscription: "s", dead: true},
	} {
		if got, err := parseSource(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// FuzzFill: nothing that a message may hold keeps it from being delivered.
func FuzzFill(f *testing.F) {
	f.Add("id", "a=1&b=2", "reason", "k")
	f.Add("", "%zz", "%", "\xff")
	f.Fuzz(func(t *testing.T, id, envelope, reason, key string) {
		m := &azservicebus.ReceivedMessage{MessageID: id, SessionID: &key, DeadLetterReason: &reason, ApplicationProperties: map[string]any{
			driver.HeaderEnvelope: envelope, driver.HeaderReason: reason, driver.HeaderKey: key, key: envelope, driver.HeaderTime: id}}
		var d broker.Message
		fill(&d, m)
		if _, own := m.ApplicationProperties[driver.HeaderID]; !own && d.ID != id {
			t.Errorf("%q", d.ID)
		}
	})
}
