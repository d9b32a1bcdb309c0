package amqp

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A table that can be read is written as it was read: once written, reading and
// writing change nothing.
func FuzzTable(f *testing.F) {
	f.Add(Table{{"a", "x"}, {"b", int32(1)}, {"c", []any{true, nil, 1.5, float32(2)}}, {"d", Table{{"e", []byte{1}}}},
		{"f", Timestamp(7)}, {"g", Decimal{2, 314}}, {"h", int8(-1)}, {"i", uint8(1)}, {"j", int16(-2)}, {"k", uint16(2)},
		{"l", uint32(3)}, {"m", int64(-4)}}.Append(nil)[4:])
	f.Add([]byte{1, 'a', 'L', 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{1, 'a', '?'})
	f.Add([]byte{1, 'a', 'F', 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{1, 'a', 'A', 0, 0, 0, 200}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := ParseTable(b)
		if err != nil {
			return
		}
		once := table.Append(nil)
		again, err := ParseTable(once[4:])
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if twice := again.Append(nil); !bytes.Equal(once, twice) {
			t.Fatalf("written again: %x, was %x", twice, once)
		}
	})
}

// Properties that can be read are written byte for byte as they were read.
func FuzzProperties(f *testing.F) {
	all := Properties{
		Flags: 0xfffc, ContentType: []byte("t"), ContentEncoding: []byte("e"), Headers: []byte{1, 'a', 'V'}, DeliveryMode: 2, Priority: 9,
		CorrelationID: []byte("c"), ReplyTo: []byte("r"), Expiration: []byte("1"), MessageID: []byte("m"), Timestamp: 7,
		Type: []byte("y"), UserID: []byte("u"), AppID: []byte("a"), ClusterID: []byte("l"),
	}
	f.Add(all.Append(nil))
	f.Add([]byte{0, 0})
	f.Add([]byte{0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProperties(b)
		if err != nil {
			return
		}
		if got := p.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x was written as %x", b, got)
		}
	})
}

// A frame takes no more than there is, and none that is over the limit.
func FuzzFrame(f *testing.F) {
	f.Add(EndFrame(append(BeginFrame(nil, FrameBody, 1), "x"...), 0), 100)
	f.Add([]byte{1, 0, 0, 0xff, 0xff, 0xff, 0xff}, 4096)
	f.Fuzz(func(t *testing.T, b []byte, max int) {
		frame, n, err := ParseFrame(b, max)
		if n > len(b) || err == nil && len(frame.Payload) > max && n > 0 {
			t.Fatalf("%d of %d bytes, payload %d of at most %d", n, len(b), len(frame.Payload), max)
		}
		if n > 0 {
			again := EndFrame(append(BeginFrame(nil, frame.Type, frame.Channel), frame.Payload...), 0)
			if !bytes.Equal(again, b[:n]) {
				t.Fatalf("%x was written as %x", b[:n], again)
			}
		}
	})
}

func TestTableNesting(t *testing.T) {
	nest := func(n int) []byte {
		v := any(Table{})
		for i := range n {
			if i%2 == 0 {
				v = []any{v}
			} else {
				v = Table{{"a", v}}
			}
		}
		return Table{{"a", v}}.Append(nil)[4:]
	}
	if _, err := ParseTable(nest(maxDepth / 2)); err != nil {
		t.Errorf("half of the depth: %v", err)
	}
	if _, err := ParseTable(nest(maxDepth + 1)); !errors.Is(err, errDepth) {
		t.Errorf("over the depth: %v", err)
	}
}

func TestTableAccess(t *testing.T) {
	table := Table{{"a", "1"}, {"b", int32(2)}}
	same := table.With("a", "x")
	if v, _ := same.Get("a"); v != "x" || len(same) != 2 {
		t.Errorf("With replaced nothing: %v", same)
	}
	more := table.With("c", true)
	if !reflect.DeepEqual(table, Table{{"a", "1"}, {"b", int32(2)}}) || len(more) != 3 {
		t.Errorf("With changed its receiver: %v, %v", table, more)
	}
	if less := table.Without("a"); len(less) != 1 || len(table) != 2 {
		t.Errorf("Without: %v of %v", less, table)
	}
	for _, v := range []any{int8(5), uint8(5), int16(5), uint16(5), int32(5), uint32(5), int64(5)} {
		if n, ok := Int(v); n != 5 || !ok {
			t.Errorf("Int(%T) = %d, %v", v, n, ok)
		}
	}
	if _, ok := Int("5"); ok {
		t.Error("a string is an integer")
	}
}

// Bits share an octet, and what follows them starts a new one.
func TestDecoderBits(t *testing.T) {
	d := NewDecoder([]byte{0b101, 7, 0b1, 0xff, 0b1})
	if !d.Bit() || d.Bit() || !d.Bit() || d.Uint8() != 7 {
		t.Error("three bits and an octet")
	}
	if !d.Bit() {
		t.Error("bits after an octet")
	}
	for range 7 {
		d.Bit()
	}
	if !d.Bit() || d.Err() != nil {
		t.Error("a ninth bit is in the next octet")
	}
	d = NewDecoder([]byte{5, 'a'})
	if d.Short() != nil || d.Err() == nil || d.Uint64() != 0 {
		t.Error("a short string that ends early")
	}
}

func TestAppendShortTruncates(t *testing.T) {
	b := AppendShort(nil, strings.Repeat("x", 300))
	if len(b) != 256 || b[0] != 255 {
		t.Errorf("%d bytes, length %d", len(b), b[0])
	}
}

// A body is cut into frames of the limit.
func TestAppendContent(t *testing.T) {
	props := (&Properties{}).Append(nil)
	b := AppendContent(nil, 1, props, bytes.Repeat([]byte("x"), 3*(4096-FrameOverhead)+1), 4096)
	var sizes []int
	for len(b) > 0 {
		f, n, err := ParseFrame(b, 4096-FrameOverhead)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		b = b[n:]
		sizes = append(sizes, len(f.Payload))
	}
	if want := []int{14, 4088, 4088, 4088, 1}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("payloads of %v bytes, want %v", sizes, want)
	}
}
