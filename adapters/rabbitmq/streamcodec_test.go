package rabbitmq

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestStreamMessageIsAMQP(t *testing.T) {
	t.Parallel()
	long := string(bytes.Repeat([]byte("x"), 300))
	for name, m := range map[string]broker.Message{
		"plain":         {ID: "order-1", Body: []byte("hello")},
		"all":           {ID: "order-1", Copy: "c", Key: "k", Body: []byte("hello"), Headers: broker.Headers{{Key: "a", Value: "1"}}},
		"long":          {ID: long, Key: long, Body: bytes.Repeat([]byte("b"), 5000), Headers: broker.Headers{{Key: long, Value: long}}},
		"not UTF-8":     {ID: "\xff", Copy: "\xfe", Key: "\xfd", Headers: broker.Headers{{Key: "\xff", Value: "\xff"}, {Key: "a", Value: "\x00"}}},
		"repeats":       {ID: "1", Headers: broker.Headers{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}, {Key: "b", Value: "3"}}},
		"hash-like":     {ID: "onceline-sha256-x"},
		"no ID":         {Body: []byte("foreign")},
		"empty body":    {ID: "1"},
		"many headers":  {ID: "1", Headers: slices.Repeat(broker.Headers{{Key: "a", Value: ""}}, 100)},
		"dead letter":   {ID: "1", Headers: broker.Headers{{Key: driver.HeaderReason, Value: "r"}, {Key: driver.HeaderAttempts, Value: "2"}}},
		"255 and a bit": {ID: long[:255], Body: bytes.Repeat([]byte("b"), 256)},
	} {
		t.Run(name, func(t *testing.T) {
			m.Time = time.UnixMilli(1_700_000_000_123)
			raw := putMessage(nil, &m)
			if room := messageRoom(&m); len(m.Headers) == 0 && len(raw) > room {
				t.Errorf("%d bytes, %d expected at most", len(raw), room)
			}
			var got broker.Message
			readMessage(&got, raw)
			if got.ID != m.ID || got.Copy != m.Copy || got.Key != m.Key || !bytes.Equal(got.Body, m.Body) ||
				!slices.Equal(got.Headers, m.Headers) || !got.Time.Equal(m.Time) {
				t.Errorf("wrote %+v\nread %+v", m, got)
			}
			var theirs amqp.Message
			if err := theirs.UnmarshalBinary(raw); err != nil {
				t.Fatalf("the vendor's client can't read it: %v", err)
			}
			if !bytes.Equal(theirs.GetData(), m.Body) {
				t.Errorf("the vendor's client reads %q", theirs.GetData())
			}
		})
	}
}

// What other producers write is delivered, whatever its types are.
func TestStreamForeignMessages(t *testing.T) {
	t.Parallel()
	read := func(m interface{ MarshalBinary() ([]byte, error) }) broker.Message {
		t.Helper()
		raw, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var got broker.Message
		readMessage(&got, raw)
		return got
	}
	m := amqp.NewMessage([]byte("body"))
	m.Properties = &amqp.MessageProperties{MessageID: uint64(17), Subject: "s"}
	m.ApplicationProperties = map[string]any{"n": int64(-3), "b": true, "f": 1.5, "t": time.UnixMilli(1000).UTC(), driver.HeaderKey: "k"}
	m.Annotations = amqp.Annotations{"x-a": "b"}
	got := read(m)
	slices.SortFunc(got.Headers, func(a, b broker.Header) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	if want := (broker.Headers{{Key: "b", Value: "true"}, {Key: "f", Value: "1.5"}, {Key: "n", Value: "-3"}, {Key: "t", Value: "1970-01-01T00:00:01Z"}}); !slices.Equal(got.Headers, want) {
		t.Errorf("headers %v", got.Headers)
	}
	if got.ID != "17" || got.Key != "k" || string(got.Body) != "body" {
		t.Errorf("%+v", got)
	}
	if got := read(&amqp.Message{Data: [][]byte{[]byte("a"), []byte("b"), []byte("c")}}); string(got.Body) != "abc" {
		t.Errorf("three data sections: %q", got.Body)
	}
	// The body before the properties, and a value in place of data.
	raw := []byte{0, 0x53, sectionValue, amqpStr8, 2, 'h', 'i', 0, 0x53, sectionProperties, amqpList8, 4, 1, amqpStr8, 1, 'i'}
	var odd broker.Message
	if readMessage(&odd, raw); odd.ID != "i" || string(odd.Body) != "hi" {
		t.Errorf("%+v", odd)
	}
	var garbled broker.Message
	if readMessage(&garbled, []byte("hello")); string(garbled.Body) != "hello" || garbled.ID != "" {
		t.Errorf("%+v", garbled)
	}
}

// FuzzStreamMessage: no bytes panic, and what is read and written again reads the
// same.
func FuzzStreamMessage(f *testing.F) {
	for _, m := range streamMessages(0, 2) {
		m.Key, m.Headers = "k", broker.Headers{{Key: "a", Value: "b"}}
		f.Add(putMessage(nil, &m))
	}
	f.Add([]byte{0, 0x53, 0x74, 0xd1, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0x53, 0x73, 0xc0, 2, 1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m, again broker.Message
		readMessage(&m, raw)
		if m.Time.IsZero() {
			m.Time = time.UnixMilli(1)
		}
		readMessage(&again, putMessage(nil, &m))
		if again.ID != m.ID && m.ID != "" || again.Copy != m.Copy || again.Key != m.Key || !bytes.Equal(again.Body, m.Body) {
			t.Errorf("read %+v\nthen %+v", m, again)
		}
	})
}

// FuzzStreamFrames: nothing that a broker sends may panic or allocate by what it
// claims.
func FuzzStreamFrames(f *testing.F) {
	chunk := func(records uint32, data []byte) []byte {
		b := append(put16([]byte{0, 0x50, 0}, 1), 0, 0, 0, 0)
		b = put32(b[:5], records)
		b = put64(put64(put64(b, 1), 1), 0)
		b = put32(put32(b, crc32.ChecksumIEEE(data)), uint32(len(data)))
		return append(put32(put32(b, 0), 0), data...)
	}
	f.Add(uint16(scDeliver), chunk(1, append(put32(nil, 2), "hi"...)))
	f.Add(uint16(scDeliver), chunk(1<<31, append(put32(nil, 2), "hi"...)))
	f.Add(uint16(scDeliver), chunk(2, append([]byte{0x90, 0, 2, 0, 0, 0, 9, 0, 0, 0, 3}, "abc"...)))
	for key := uint16(0); key < 32; key++ {
		f.Add(key, []byte{0, 0, 0, 1, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, key uint16, body []byte) {
		l := &streamLink{}
		r := &streamReceiver{updates: make(chan consumerUpdate, 16), wake: make(chan struct{}, 1), part: &streamPart{link: l}, perChunk: 1}
		_ = r.frame(l, key, bytes.Clone(body))
		p := &streamPublisher{stream: "s", change: make(chan struct{}, 1), gone: map[string]*orphan{}}
		p.sent = []sentMessage{{id: 1, key: "x"}, {id: 2, key: "y"}}
		_ = p.frame(l, key, body)
		_, _, _ = leader(streamCursor{b: body}, l)
	})
}

func TestStreamBadChunksAreNoDeliveries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data    []byte
		records int
	}{
		"ends early":          {[]byte{0, 0, 0, 9, 'a'}, 1},
		"too many records":    {[]byte{0, 0, 0, 1, 'a'}, 2},
		"a batch of none":     {[]byte{0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1},
		"a batch over 1 GiB":  {[]byte{0x90, 0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}, 1},
		"not gzip":            {[]byte{0x90, 0, 1, 0, 0, 0, 5, 0, 0, 0, 2, 'a', 'b'}, 1},
		"unknown compression": {[]byte{0xf0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 2, 'a', 'b'}, 1},
		"a batch in a batch":  {append([]byte{0x80, 0, 1, 0, 0, 0, 11, 0, 0, 0, 11}, 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), 1},
	} {
		r := &chunkReader{}
		err := r.read(c.data, c.records, false)
		if !errors.Is(err, errFrame) && !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%s: %d entries, %v", name, len(r.entries), err)
		}
	}
}

func TestStreamCodesHaveKinds(t *testing.T) {
	t.Parallel()
	for code, kind := range map[streamCode]error{
		codeNoStream: broker.ErrNotFound, codeAuthFailure: broker.ErrUnauthorized, codeAccessRefused: broker.ErrUnauthorized,
		codeUnavailable: broker.ErrUnavailable, codePrecondition: broker.ErrConflict, codeFrameTooLarge: broker.ErrTooLarge,
		codeVHost: broker.ErrNotFound, streamCode(999): broker.ErrRefused,
	} {
		if got := streamKind(fmt.Errorf("wrapped: %w", code), nil); got != kind {
			t.Errorf("%v: %v, want %v", code, got, kind)
		}
		if code.Error() == "" {
			t.Errorf("%d has no words", code)
		}
	}
}
