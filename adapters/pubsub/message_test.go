package pubsub

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// there and back, held against the service's limits on the way.
func carry(t testing.TB, m broker.Message) (broker.Delivery, error) {
	t.Helper()
	var out pb.PubsubMessage
	if err := outgoing(&out, &m, new(stamp)); err != nil {
		return broker.Delivery{}, err
	}
	size := 0
	if len(out.Attributes) > maxAttributes || len(out.OrderingKey) > maxKey || !utf8.ValidString(out.OrderingKey) {
		t.Fatalf("%d attributes, key %q", len(out.Attributes), out.OrderingKey)
	}
	for k, v := range out.Attributes {
		size += len(k) + len(v)
		if k == "" || len(k) > maxName || strings.HasPrefix(k, "goog") || !utf8.ValidString(k) || len(v) > maxValue || !utf8.ValidString(v) {
			t.Fatalf("attribute %q: %q", k, v)
		}
	}
	if size > attributeRoom-12*maxAttributes-maxKey-64 {
		t.Fatalf("attributes of %d bytes", size)
	}
	var d broker.Delivery
	fill(&d, &out)
	return d, nil
}

func TestMessageForms(t *testing.T) {
	when := time.UnixMilli(1700000000123)
	long := strings.Repeat("x", 1024)
	binary := strings.Repeat("\xff%", 512)
	for name, m := range map[string]broker.Message{
		"plain":         {ID: "a", Body: []byte("b")},
		"language":      {ID: "заказ 17", Key: "Kunde №4", Copy: "копия"},
		"long":          {ID: long, Key: long, Copy: long},
		"binary":        {ID: binary, Key: binary, Copy: binary},
		"percent":       {ID: "100%25", Key: "%", Copy: "%41"},
		"looks hashed":  {ID: "onceline-sha256-1", Key: "onceline-sha256-1"},
		"sorted":        {ID: "a", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: ""}}},
		"unsorted":      {ID: "a", Headers: broker.Headers{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}}},
		"repeated":      {ID: "a", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}},
		"service's own": {ID: "a", Headers: broker.Headers{{Key: "googclient_x", Value: "1"}, {Key: "goog", Value: "2"}}},
		"binary header": {ID: "a", Headers: broker.Headers{{Key: "k\xff", Value: "\x00\xff"}, {Key: "k", Value: "v"}}},
		"long header":   {ID: "a", Headers: broker.Headers{{Key: strings.Repeat("k", 300), Value: long + "y"}}},
		"all the room":  {ID: "a", Headers: broker.Headers{{Key: "k", Value: strings.Repeat("\xff", headerRoom-1)}}},
		"letters":       {ID: "a", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: driver.HeaderReason, Value: "why %"}, {Key: driver.HeaderSource, Value: "s"}, {Key: driver.HeaderAttempts, Value: "3"}}},
	} {
		m.Time = when
		d, err := carry(t, m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d.Message.Time = d.Message.Time.Local()
		if !reflect.DeepEqual(d.Message, m) {
			t.Errorf("%s: came as %+v", name, d.Message)
		}
	}
	var many broker.Headers
	for i := range maxNative {
		many = append(many, broker.Header{Key: fmt.Sprintf("k%02d", i)})
	}
	for range headerRoom - 3*maxNative {
		many = append(many, broker.Header{Key: "\xff"})
	}
	if _, err := carry(t, broker.Message{ID: "a", Headers: many}); !errors.Is(err, broker.ErrTooLarge) {
		t.Errorf("headers that need too many attributes: %v", err)
	}
}

// Messages of other producers, and hostile ones.
func TestForeignMessages(t *testing.T) {
	var d broker.Delivery
	fill(&d, &pb.PubsubMessage{MessageId: "17", Data: []byte("x"), Attributes: map[string]string{"b": "2", "a": "1"}, OrderingKey: "k"})
	if d.ID != "17" || d.Key != "k" || !reflect.DeepEqual(d.Headers, broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}) {
		t.Errorf("%+v", d.Message)
	}
	d = broker.Delivery{}
	fill(&d, &pb.PubsubMessage{MessageId: "18", Attributes: map[string]string{driver.HeaderID: "%zz", driver.HeaderTime: "soon", driver.HeaderEnvelope: "&&"}})
	if d.ID != "%zz" || len(d.Headers) != 0 {
		t.Errorf("%+v", d.Message)
	}
	d = broker.Delivery{}
	fill(&d, &pb.PubsubMessage{MessageId: "19", Attributes: map[string]string{attrSource: "s", attrProject: "p", attrDeliveries: "7"}})
	if d.Headers.Get(driver.HeaderSource) != "projects/p/subscriptions/s" || d.Headers.Get(driver.HeaderAttempts) != "7" || d.Headers.Get(attrDeliveries) != "7" {
		t.Errorf("%+v", d.Message)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("id", "copy", "key", "name", "value")
	f.Add("\xff", "%", "onceline-sha256-", "goog", strings.Repeat("%", 2000))
	f.Fuzz(func(t *testing.T, id, again, key, name, value string) {
		if id == "" || name == "" || reserved(name) || len(id) > broker.MaxID || len(again) > broker.MaxID || len(key) > broker.MaxID || len(name)+len(value) > headerRoom/2 {
			return
		}
		m := broker.Message{ID: id, Copy: again, Key: key, Headers: broker.Headers{{Key: name, Value: value}, {Key: name, Value: "2"}}, Time: time.UnixMilli(1)}
		d, err := carry(t, m)
		if err != nil {
			t.Fatal(err)
		}
		if d.ID != id || d.Copy != again || d.Key != key || !reflect.DeepEqual(d.Headers, m.Headers) {
			t.Errorf("came as %+v", d.Message)
		}
	})
}

func FuzzForeign(f *testing.F) {
	f.Add(driver.HeaderEnvelope, "a=b&c", driver.HeaderID+"-1", "x", driver.HeaderReason, "%")
	f.Fuzz(func(t *testing.T, a, av, b, bv, c, cv string) {
		var d broker.Delivery
		fill(&d, &pb.PubsubMessage{MessageId: "1", Attributes: map[string]string{a: av, b: bv, c: cv}})
		if d.ID == "" {
			t.Error("no ID")
		}
	})
}
