package amqp_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestValues: every type reads back as it was written.
func TestValues(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 300))
	for _, v := range []any{nil, true, false, uint8(200), int8(-3), uint16(65535), int16(-300), uint32(0), uint32(255), uint32(1 << 30), int32(-5),
		uint64(0), uint64(255), uint64(1 << 60), int64(-9), int64(math.MinInt64), float32(1.5), 2.25, amqp.Char('é'),
		time.UnixMilli(1700000000123).UTC(), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), amqp.UUID{1, 2, 3}, []byte{}, []byte("bin"), []byte(long),
		"", "text", long, amqp.Symbol("sym"), amqp.Symbol(long), amqp.List{}, amqp.List{"a", int32(1), nil, amqp.List{true}},
		amqp.Map{{Key: "k", Value: int64(1)}, {Key: amqp.Symbol("s"), Value: amqp.Map{}}, {Key: []byte("no key in Go"), Value: nil}},
		amqp.Described{Descriptor: uint64(0x24), Value: amqp.List{}}, amqp.Described{Descriptor: amqp.Symbol("d"), Value: "v"},
		amqp.Array{Code: 0x98, Items: []any{amqp.UUID{9}, amqp.UUID{8}}}, amqp.Array{Code: 0xb1, Items: []any{"a", "bc"}},
		amqp.Array{Code: 0x56, Items: []any{true, false}}, amqp.Array{Code: 0x81, Items: []any{}}, amqp.Decimal{Code: 0x94, Bits: make([]byte, 16)},
		amqp.Array{Code: 0xd0, Items: []any{amqp.List{int32(1)}, amqp.List{}}},
	} {
		b := amqp.AppendValue(nil, v)
		r := amqp.NewReader(append(b, 0xff))
		got, err := r.Value()
		if err != nil || !reflect.DeepEqual(got, v) || len(r.Rest()) != 1 {
			t.Errorf("%#v reads as %#v, %v, rest %d", v, got, err, len(r.Rest()))
		}
		r = amqp.NewReader(append(b, 0xff))
		if raw, err := r.Raw(); err != nil || !bytes.Equal(raw, b) {
			t.Errorf("%#v is checked as %x, %v", v, raw, err)
		}
	}
}

// TestHostile: what is malformed is refused by both readers, however it lies about
// sizes and depths.
func TestHostile(t *testing.T) {
	deep := bytes.Repeat([]byte{0xd0, 0, 0, 0xff, 0xff, 0, 0, 0, 1}, 40)
	described := bytes.Repeat([]byte{0}, 1000)
	for name, b := range map[string][]byte{
		"empty": {}, "short int": {0x70, 0, 0}, "short string": {0xa1, 5, 'a'}, "unknown": {0x4f}, "size over 2 GiB": {0xb0, 0xff, 0xff, 0xff, 0xff},
		"count over 2 GiB": {0xd0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}, "count over size": {0xc0, 2, 200, 0x40}, "odd map": {0xc1, 2, 1, 0x40},
		"bytes behind a list": {0xc0, 3, 1, 0x40, 0x40}, "list without count": {0xc0, 0}, "no UTF-8": {0xa1, 1, 0xff}, "boolean 2": {0x56, 2},
		"array of nothing, many": {0xf0, 0, 0, 0, 5, 0, 0xff, 0xff, 0xff, 0x40}, "array without constructor": {0xe0, 1, 1}, "array of described": {0xe0, 4, 1, 0, 0x44, 0x40},
		"deep": deep, "deep descriptors": described, "descriptor alone": {0, 0x53, 1},
	} {
		r := amqp.NewReader(b)
		if v, err := r.Value(); err == nil {
			t.Errorf("%s reads as %v", name, v)
		}
		r = amqp.NewReader(b)
		if v, err := r.Raw(); err == nil {
			t.Errorf("%s is checked as %x", name, v)
		} else if !errors.Is(err, amqp.ErrShort) && !errors.Is(err, amqp.ErrSyntax) && !errors.Is(err, amqp.ErrDepth) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMessage splits messages that a client wrote, and writes sections that it
// reads.
func TestMessage(t *testing.T) {
	s := func(x string) *string { return &x }
	in := &goamqp.Message{
		Header:      &goamqp.MessageHeader{Durable: true, Priority: 7, TTL: 90 * time.Second},
		Annotations: goamqp.Annotations{"x-opt-partition-key": "p"},
		Properties: &goamqp.MessageProperties{MessageID: "id", UserID: []byte("u"), To: s("to"), Subject: s("sub"), ReplyTo: s("re"), CorrelationID: "c",
			ContentType: s("ct"), GroupID: s("g"), ReplyToGroupID: s("rg")},
		ApplicationProperties: map[string]any{"k": int64(5)},
		Data:                  [][]byte{[]byte("one"), []byte("two")},
		Footer:                goamqp.Annotations{"f": "x"},
	}
	b, err := in.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m, err := amqp.ReadMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if h := m.Header; !h.Durable || h.Priority != 7 || !h.HasTTL || h.TTL != 90000 {
		t.Errorf("header %+v", h)
	}
	id, group, has, err := amqp.ReadIDs(m.Properties)
	if id != "id" || group != "g" || !has || err != nil {
		t.Errorf("IDs %q %q %v %v", id, group, has, err)
	}
	p, err := amqp.ReadProperties(m.Properties)
	if err != nil || *p.To != "to" || *p.Subject != "sub" || *p.ReplyTo != "re" || p.CorrelationID != "c" || *p.ContentType != "ct" || *p.ReplyToGroupID != "rg" || string(p.UserID) != "u" {
		t.Errorf("properties %+v, %v", p, err)
	}
	var data []string
	if err := m.Data(func(d []byte) error { data = append(data, string(d)); return nil }); err != nil || !reflect.DeepEqual(data, []string{"one", "two"}) {
		t.Errorf("data %q, %v", data, err)
	}

	out := amqp.AppendHeader(nil, amqp.Header{Priority: 4, HasTTL: true, TTL: 5, DeliveryCount: 3})
	w := amqp.BeginAnnotations(out)
	w.Symbol("x-opt-sequence-number")
	w.B = amqp.AppendLong(w.B, 42)
	out = amqp.AppendProperties(w.End(), p.Append(nil))
	out = amqp.AppendApplication(out, m.Application)
	out = append(out, m.Body...)
	var back goamqp.Message
	if err := back.UnmarshalBinary(out); err != nil {
		t.Fatal(err)
	}
	if back.Header.DeliveryCount != 3 || back.Annotations["x-opt-sequence-number"] != int64(42) || !reflect.DeepEqual(back.Properties, in.Properties) ||
		!reflect.DeepEqual(back.Data, in.Data) || !reflect.DeepEqual(back.ApplicationProperties, in.ApplicationProperties) || !reflect.DeepEqual(back.Footer, in.Footer) {
		t.Errorf("reads back as %+v", back)
	}
}

// TestFrames reads what was written, and refuses what is too large or too short.
func TestFrames(t *testing.T) {
	b := amqp.AppendProtocol(nil, amqp.ProtocolSASL)
	b, at := amqp.BeginFrame(b, amqp.FrameAMQP, 7)
	b = amqp.EndFrame(amqp.Transfer{Handle: 300, DeliveryID: 9, DeliveryTag: []byte("tag"), Format: amqp.FormatBatch, More: true}.Append(b), at)
	b = amqp.AppendHeartbeat(b)
	fr := amqp.NewFrameReader(bytes.NewReader(b), 512)
	if p, err := fr.Protocol(); p != amqp.ProtocolSASL || err != nil {
		t.Fatal(p, err)
	}
	f, err := fr.Next()
	if err != nil || f.Channel != 7 || f.Type != amqp.FrameAMQP {
		t.Fatalf("%+v, %v", f, err)
	}
	r := amqp.NewReader(f.Body)
	code, fields, err := r.Composite()
	if code != amqp.CodeTransfer || err != nil {
		t.Fatal(code, err)
	}
	tr, err := amqp.ReadTransfer(&fields)
	if err != nil || tr.Handle != 300 || tr.DeliveryID != 9 || string(tr.DeliveryTag) != "tag" || tr.Format != amqp.FormatBatch || tr.Settled || !tr.More {
		t.Errorf("%+v, %v", tr, err)
	}
	if f, err = fr.Next(); err != nil || len(f.Body) != 0 {
		t.Errorf("heartbeat %+v, %v", f, err)
	}
	for _, bad := range [][]byte{{0, 0, 0, 7, 2, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0}, {0, 0, 0, 8, 1, 0, 0, 0}, {0, 0, 0, 8, 3, 0, 0, 0}, {0, 0, 0, 8, 2, 9, 0, 0}, {0, 0, 2, 1, 2, 0, 0, 0}} {
		if _, err := amqp.NewFrameReader(bytes.NewReader(bad), 512).Next(); !errors.Is(err, amqp.ErrSyntax) {
			t.Errorf("frame %x: %v", bad, err)
		}
	}
}

func FuzzValue(f *testing.F) {
	f.Add(amqp.AppendValue(nil, amqp.List{"a", amqp.Map{{Key: "k", Value: amqp.Described{Descriptor: uint64(1), Value: []byte("x")}}}, []int64{1, 2}}))
	f.Add([]byte{0xe0, 4, 2, 0x56, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := amqp.NewReader(b)
		v, err := r.Value()
		c := amqp.NewReader(b)
		raw, cerr := c.Raw()
		if (err == nil) != (cerr == nil) {
			t.Fatalf("read: %v, checked: %v", err, cerr)
		}
		if err != nil {
			return
		}
		if len(raw) != len(b)-len(r.Rest()) {
			t.Fatalf("checked %d bytes, read %d", len(raw), len(b)-len(r.Rest()))
		}
		// What is written again reads as the same.
		again := amqp.AppendValue(nil, v)
		r = amqp.NewReader(again)
		w, err := r.Value()
		if err != nil || !bytes.Equal(amqp.AppendValue(nil, w), again) {
			t.Fatalf("%#v, written and read: %#v, %v", v, w, err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	m := goamqp.NewMessage([]byte("body"))
	m.Properties = &goamqp.MessageProperties{MessageID: "id"}
	m.Annotations = goamqp.Annotations{"a": 1}
	m.ApplicationProperties = map[string]any{"k": "v"}
	b, _ := m.MarshalBinary()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := amqp.ReadMessage(b)
		if err != nil {
			return
		}
		amqp.ReadIDs(m.Properties)
		if p, err := amqp.ReadProperties(m.Properties); err == nil {
			p.Append(nil)
		}
		m.Data(func([]byte) error { return nil })
		m.Value()
		for _, raw := range []amqp.Raw{m.Annotations, m.Application} {
			pairs, err := amqp.ReadPairs(raw)
			if err != nil {
				t.Fatalf("a section that was checked: %v", err)
			}
			for {
				if _, _, ok := pairs.Next(); !ok {
					break
				}
			}
			if pairs.Err() != nil {
				t.Fatalf("a section that was checked: %v", pairs.Err())
			}
		}
	})
}

func FuzzFrame(f *testing.F) {
	for _, p := range [][]byte{
		amqp.Open{Container: "c", MaxFrameSize: 512}.Append(nil), amqp.Begin{}.Append(nil), amqp.Flow{HasHandle: true}.Append(nil),
		amqp.Transfer{DeliveryTag: []byte("t")}.Append(nil), amqp.Disposition{State: amqp.Rejected(amqp.Error{Condition: "c"})}.Append(nil),
		amqp.Attach{Name: "n", NullTermini: true}.Append(nil), amqp.AppendClosing(nil, amqp.CodeDetach, 1, amqp.Error{Condition: "c"}),
	} {
		b, at := amqp.BeginFrame(nil, amqp.FrameAMQP, 1)
		f.Add(amqp.EndFrame(append(b, p...), at))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := amqp.NewFrameReader(bytes.NewReader(b), 4096)
		for {
			f, err := fr.Next()
			if err != nil {
				return
			}
			r := amqp.NewReader(f.Body)
			code, fields, err := r.Composite()
			if err != nil {
				continue
			}
			switch code {
			case amqp.CodeOpen:
				amqp.ReadOpen(&fields)
			case amqp.CodeBegin:
				amqp.ReadBegin(&fields)
			case amqp.CodeAttach:
				amqp.ReadAttach(&fields)
			case amqp.CodeFlow:
				amqp.ReadFlow(&fields)
			case amqp.CodeTransfer:
				amqp.ReadTransfer(&fields)
			case amqp.CodeDisposition:
				amqp.ReadDisposition(&fields)
			}
		}
	})
}
