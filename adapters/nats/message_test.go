package nats

import (
	"encoding/json"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// every holds all bytes.
var every = func() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}()

// hostile are lists of headers that a carrier of text could break.
var hostile = map[string]broker.Headers{
	"none":            nil,
	"plain":           {{Key: "a", Value: "1"}, {Key: "b", Value: "2"}},
	"empty value":     {{Key: "a", Value: ""}},
	"unsorted":        {{Key: "b", Value: "2"}, {Key: "a", Value: "1"}},
	"repeats":         {{Key: "a", Value: "1"}, {Key: "a", Value: "1"}, {Key: "a", Value: "0"}},
	"split repeats":   {{Key: "a", Value: "1"}, {Key: "b", Value: "x"}, {Key: "a", Value: "2"}},
	"case":            {{Key: "A", Value: "1"}, {Key: "a", Value: "2"}},
	"NUL":             {{Key: "a", Value: "x\x00y"}},
	"all bytes":       {{Key: "a", Value: every}},
	"all bytes, name": {{Key: every, Value: "v"}},
	"CRLF":            {{Key: "a", Value: "1\r\nNats-Msg-Id: forged\r\n\r\nbody"}},
	"CRLF, name":      {{Key: "a: 1\r\nNats-Msg-Id", Value: "forged"}},
	"spaces":          {{Key: "a", Value: " x "}, {Key: "b", Value: " "}, {Key: "c d", Value: "e"}},
	"tab":             {{Key: "a", Value: "\tx"}},
	"unicode":         {{Key: "größe", Value: "日本語"}, {Key: "a", Value: "ü"}},
	"colon":           {{Key: "a:b", Value: "c:d"}},
	"percent":         {{Key: "%41", Value: "100%25+1"}},
	"look-alikes": {{Key: "Orig-Nats-Msg-Id", Value: "1"}, {Key: "X-Nats-Msg-Id", Value: "1"}, {Key: "nats-msg-id", Value: "1"},
		{Key: "NATS-MSG-ID", Value: "1"}, {Key: "Nats-Msg-Id", Value: "1"}, {Key: "Nats-Msg-Id-2", Value: "1"}},
	"server's":  {{Key: "Nats-TTL", Value: "1s"}, {Key: "Nats-Rollup", Value: "all"}, {Key: "Nats-Expected-Last-Sequence", Value: "99"}, {Key: "Nats-Schedule", Value: "@at 2000-01-01T00:00:00Z"}},
	"status":    {{Key: "Description", Value: "No Responders"}, {Key: "Status", Value: "503"}},
	"long name": {{Key: strings.Repeat("n", 2000), Value: strings.Repeat("v", 2000)}},
	"many": func() (hs broker.Headers) {
		for i := range 300 {
			hs = append(hs, broker.Header{Key: fmt.Sprintf("h%03d", 299-i), Value: fmt.Sprint(i)})
		}
		return hs
	}(),
}

// All of it through the real server, as one batch, each with an empty body too.
func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	_, _, p, r := ends(t)
	var ms []broker.Message
	for name, hs := range hostile {
		ms = append(ms, broker.Message{ID: name, Headers: hs, Body: []byte("body")}, broker.Message{ID: name + ", no body", Headers: hs})
	}
	for i, id := range []string{" ", "a b", "ü", "a\r\nNats-TTL: 1s", "100%", "%41", strings.Repeat("x", broker.MaxID), "\xff\xfe", every[1:],
		"onceline-sha256-" + strings.Repeat("0", 64)} {
		ms = append(ms, broker.Message{ID: id + "@" + fmt.Sprint(i), Key: id, Copy: id, Body: []byte("body")},
			broker.Message{ID: id, Body: []byte("body")})
	}
	ms = slices.DeleteFunc(ms, func(m broker.Message) bool { return len(m.ID) > broker.MaxID })
	for i, rc := range publish(t, p, ms...) {
		if rc.Verdict != broker.Stored {
			t.Errorf("%q: %v", ms[i].ID, rc.Verdict)
		}
	}
	for i, d := range receiveAll(t, r, len(ms)) {
		m := ms[i]
		if d.ID != m.ID || d.Key != m.Key || d.Copy != m.Copy || string(d.Body) != string(m.Body) {
			t.Errorf("%q came as %q, key %q, copy %q, body %q", m.ID, d.ID, d.Key, d.Copy, d.Body)
		}
		if !slices.Equal(d.Headers, m.Headers) {
			t.Errorf("%q: headers\n%q, want\n%q", m.ID, d.Headers, m.Headers)
		}
	}
}

// Messages of producers that know nothing of this toolkit, and of those that
// garble its headers, come with what is readable.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	c, e, _, r := ends(t)
	nc := client(t, c)
	for _, h := range []natsgo.Header{
		nil,
		{"Nats-Msg-Id": {"foreign"}, "z": {"2", "1"}, "A": {"0"}, "nats-lower": {"kept"}},
		{driver.HeaderEnvelope: {"%zz"}, "a": {"1"}, driver.HeaderTime: {"yesterday"}, driver.HeaderID: {"%"}, driver.HeaderKey: {"%4"}},
		{driver.HeaderEnvelope: {""}, "a": {"1"}},
		{driver.HeaderEnvelope: {"a=1&b"}, "a": {"1"}},
	} {
		if err := nc.PublishMsg(&natsgo.Msg{Subject: e.Topic, Header: h, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	ds := receiveAll(t, r, 5)
	one := broker.Headers{{Key: "a", Value: "1"}}
	for i, want := range []broker.Message{
		{},
		{ID: "foreign", Headers: broker.Headers{{Key: "A", Value: "0"}, {Key: "nats-lower", Value: "kept"}, {Key: "z", Value: "2"}, {Key: "z", Value: "1"}}},
		{ID: "%", Key: "%4", Headers: one},
		{Headers: one},
		{Headers: one},
	} {
		d := ds[i]
		if d.ID != want.ID || d.Key != want.Key || !slices.Equal(d.Headers, want.Headers) || string(d.Body) != "x" || !d.Time.IsZero() {
			t.Errorf("message %d came as %+v, want %+v", i, d.Message, want)
		}
	}
	ack(t, ds...)
}

// wire is what becomes of a header map between two clients.
func wire(t *testing.T, h natsgo.Header) natsgo.Header {
	t.Helper()
	got := natsgo.Header{}
	for name, vs := range h {
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' }) {
			t.Fatalf("header name %q", name)
		}
		for _, v := range vs {
			if strings.ContainsAny(v, "\r\n") || textproto.TrimString(v) != v {
				t.Fatalf("header %q has value %q", name, v)
			}
			got[name] = append(got[name], v)
		}
	}
	return got
}

func FuzzMessage(f *testing.F) {
	f.Add("id", "", "key", "name", "value", "name", "other", int64(1700000000000))
	f.Add("a\x00", "c%", " k ", "Nats-X", "\r\n", "Status", "503", int64(-1))
	f.Add("onceline-sha256-", "\xff", "%41", "b", "", "a", " ", int64(0))
	f.Fuzz(func(t *testing.T, id, cp, key, n1, v1, n2, v2 string, ms int64) {
		m := broker.Message{ID: id, Copy: cp, Key: key, Time: time.UnixMilli(ms)}
		for _, h := range []broker.Header{{Key: n1, Value: v1}, {Key: n2, Value: v2}, {Key: n1, Value: v2}} {
			if h.Key != "" && !hasPrefixFold(h.Key, broker.ReservedPrefix) {
				m.Headers = append(m.Headers, h)
			}
		}
		var o outgoing
		o.set(&broker.Message{ID: "before", Key: "b", Copy: "c", Headers: broker.Headers{{Key: "x", Value: "y"}}}) // the same place, used before
		block := o.set(&m)
		h := wire(t, o.msg.Header)
		size := blockEnds
		for name, vs := range h {
			for _, v := range vs {
				size += len(name) + len(v) + lineEnds
			}
		}
		if block != size {
			t.Errorf("the block has %d bytes, counted %d", size, block)
		}
		var got broker.Message
		fill(&got, &natsgo.Msg{Header: h})
		if got.ID != m.ID || got.Copy != m.Copy || got.Key != m.Key || !slices.Equal(got.Headers, m.Headers) || got.Time.UnixMilli() != ms {
			t.Errorf("%+v came as %+v", m, got)
		}
	})
}

func FuzzPubAck(f *testing.F) {
	for _, s := range []string{`{"stream":"S","seq":1}`, `{"stream":"S", "domain":"hub","seq":17,"duplicate": true}`, `{"seq":18446744073709551615}`,
		`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}`, `{"stream":"\"seq\":1","seq":2}`,
		`{"stream":"S","seq":01}`, `{}`, `{"seq":1`, `{"seq":1,}`, `{"seq":1}{}`, `{"seq":1,"duplicate":false}`, `{"stream":"a\"error\"","seq":3}`,
		`{"seq":1,"seq":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := parsePlainAck(data)
		if !ok {
			_, _ = parsePubAck(data)
			return
		}
		var want pubAck
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q is no JSON: %v, and was read as %+v", data, err, got)
		}
		if want.Seq != got.Seq || want.Duplicate != got.Duplicate || want.Error != nil {
			t.Errorf("%q read as %+v, is %+v", data, got, want)
		}
	})
}

func TestParsePubAck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want pubAck
		bad  bool
	}{
		{in: `{"stream":"S","seq":7}`, want: pubAck{Seq: 7}},
		{in: `{"stream":"S", "seq":7,"duplicate": true}`, want: pubAck{Seq: 7, Duplicate: true}},
		{in: `{"type":"x","stream":"Ü","seq":7}`, want: pubAck{Seq: 7}},
		{in: `{"error":{"code":400,"err_code":10054,"description":"d"},"stream":"S","seq":0}`, want: pubAck{Error: &jetstream.APIError{ErrorCode: 10054}}},
		{in: ``, bad: true}, {in: `hello`, bad: true}, {in: `{}`, bad: true}, {in: `{"stream":"S","seq":0}`, bad: true},
	} {
		a, err := parsePubAck([]byte(c.in))
		if (err != nil) != c.bad || a.Seq != c.want.Seq || a.Duplicate != c.want.Duplicate || (a.Error != nil) != (c.want.Error != nil) {
			t.Errorf("%s: %+v, %v", c.in, a, err)
		}
		if a.Error != nil && a.Error.ErrorCode != c.want.Error.ErrorCode {
			t.Errorf("%s: code %d", c.in, a.Error.ErrorCode)
		}
	}
}

func TestParseAckSubject(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]ackInfo{
		"$JS.ACK.S.c.3.17.20.1700000000000000000.4":              {delivered: 3, stream: 17, pending: 4},
		"$JS.ACK.hub.ABC123.S.c.3.17.20.1700000000000000000.4":   {delivered: 3, stream: 17, pending: 4},
		"$JS.ACK._.ABC123.S.c.3.17.20.1700000000000000000.4.xyz": {delivered: 3, stream: 17, pending: 4},
		"$JS.ACK.S.c.3.17.20.1":                                  {}, "$JS.ACK.S.c.x.17.20.1.4": {}, "$JS.ACK.S.c.0.17.20.1.4": {},
		"": {}, "_INBOX.x": {}, "$JS.ACK.": {}, "$JS.ACK.S.c.3.17.20.1.4.5": {}, "$JS.ACK.a.b.c.d.e.f.g.h.i.j.k.l.m": {},
		"$JS.ACK.S.c.99999999999999999999.17.20.1.4": {},
	} {
		got, ok := parseAckSubject(in)
		if ok != (want.delivered > 0) || (ok && got != want) {
			t.Errorf("%q: %+v %v", in, got, ok)
		}
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	var r replies
	const prefix = "_INBOX.abc."
	for _, id := range []uint64{1, 35, 36, 1 << 40} {
		for _, from := range []int{0, 64, 1 << 20} {
			for k, s := range r.of(prefix, &exchange{id: id}, from, chunk) {
				if gotID, i, ok := parseReply(s, len(prefix)); !ok || gotID != id || i != from+k {
					t.Fatalf("%q read as %d, %d, %v; want %d, %d", s, gotID, i, ok, id, from+k)
				}
			}
		}
	}
	for _, s := range []string{"", prefix, prefix + "-", prefix + "1-", prefix + "-1", prefix + "A-1", prefix + "1-zzzzzzzzzzzzz", prefix + "1_1"} {
		if id, i, ok := parseReply(s, len(prefix)); ok {
			t.Errorf("%q read as %d, %d", s, id, i)
		}
	}
}

// The portable part of a message costs next to nothing.
func TestAllocations(t *testing.T) {
	var o outgoing
	m := broker.Message{ID: "message-1", Body: []byte("x"), Time: time.UnixMilli(1700000000000)}
	o.set(&m)
	if n := testing.AllocsPerRun(100, func() { o.set(&m) }); n > 0 {
		t.Errorf("set makes %v allocations", n)
	}
	msg := &natsgo.Msg{Header: natsgo.Header{headerMsgID: {"message-1"}, driver.HeaderTime: {"1700000000000"}}}
	var got broker.Message
	if n := testing.AllocsPerRun(100, func() { fill(&got, msg) }); n > 0 {
		t.Errorf("fill makes %v allocations", n)
	}
	ack := []byte(`{"stream":"S","seq":7,"duplicate": true}`)
	if n := testing.AllocsPerRun(100, func() { _, _ = parsePubAck(ack) }); n > 0 {
		t.Errorf("parsePubAck makes %v allocations", n)
	}
}
