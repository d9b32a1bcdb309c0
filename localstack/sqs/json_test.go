package sqs

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The scanner takes what encoding/json takes, but for what it refuses on purpose.
func TestScanner(t *testing.T) {
	for _, c := range []struct {
		src string
		ok  bool
	}{
		{`{}`, true}, {` { "QueueUrl" : "x" , "Other" : [1, -2.5e+3, true, false, null, {"a":[]}] } `, true},
		{`{"QueueUrl":null,"Entries":null,"MessageAttributes":null,"WaitTimeSeconds":null}`, true},
		{`{"MessageBody":"\"\\\/\b\f\n\r\t\u00e9\ud834\udd1e"}`, true},
		{``, false}, {`[]`, false}, {`{`, false}, {`{}}`, false}, {`{} x`, false}, {`{,}`, false}, {`{"a":1,}`, false}, {`{"a" 1}`, false}, {`{a:1}`, false},
		{`{"a":01}`, false}, {`{"a":1.}`, false}, {`{"a":-}`, false}, {`{"a":nul}`, false}, {`{"a":[1 2]}`, false}, {`{"a":[1,]}`, false},
		{`{"MessageBody":"\x"}`, false}, {`{"MessageBody":"\ud834"}`, false}, {`{"MessageBody":"\u12"}`, false}, {"{\"MessageBody\":\"\x01\"}", false},
		{"{\"MessageBody\":\"\xff\"}", false}, {"{\"MessageBody\":\"\\n\xff\"}", false}, {`{"MessageBody":"`, false}, {`{"MessageBody":"\`, false},
		{`{"Entries":{}}`, false}, {`{"Entries":[[]]}`, false}, {`{"WaitTimeSeconds":1.5}`, false}, {`{"WaitTimeSeconds":99999999999}`, false},
		{`{"MessageAttributes":{"a":{"BinaryValue":"!"}}}`, false}, {`{"AttributeNames":[1]}`, false}, {`{"Attributes":{"a":1}}`, false},
		{`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, false},
	} {
		var r request
		if err := r.decode(c.src); (err == nil) != c.ok {
			t.Errorf("%.80s: %v", c.src, err)
		}
	}
}

func TestRequestFields(t *testing.T) {
	var r request
	err := r.decode(`{"QueueUrl":"u","MaxNumberOfMessages":3,"ReceiveRequestAttemptId":"a","AttributeNames":["x","y"],"Attributes":{"k":"v","k":"w"},"tags":{"t":"1"},
		"Entries":[{"Id":"1","MessageBody":"b\n","DelaySeconds":0,"MessageAttributes":{"z":{"DataType":"String","StringValue":"s"},"a":{"DataType":"Binary","BinaryValue":"AAE="}}},{"Id":"2"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	e := r.entries[0]
	for what, ok := range map[string]bool{
		"url": r.queueURL == "u", "max": r.max == integer{3, true}, "attempt": r.attempt.s == "a", "names": slices.Equal(r.names, []string{"x", "y"}),
		"attributes": slices.Equal(r.attributes, []pair{{"k", "w"}}), "tags": slices.Equal(r.tags, []pair{{"t", "1"}}), "entries": r.nentries == 2,
		"body": e.body.s == "b\n" && e.body.escaped, "delay": e.delay == integer{0, true}, "no group": !e.group.set,
		"attrs": len(e.attrs) == 2 && e.attrs[0].name == "a" && e.attrs[0].value == "\x00\x01" && e.attrs[1].value == "s",
	} {
		if !ok {
			t.Errorf("%s: %+v", what, r)
		}
	}
	r.reset()
	if err := r.decode(`{"Entries":[{"Id":"3"},{}],"Entries":[{}]}`); err != nil || len(r.entries) != 1 || r.entries[0].body.set || r.entries[0].id.set || len(r.entries[0].attrs) != 0 {
		t.Errorf("a request used again: %v %+v", err, r.entries)
	}
}

func TestQuoted(t *testing.T) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x1f\x7f", "é𝄞\u2028", strings.Repeat("a", 100) + "\""} {
		var back string
		if err := json.Unmarshal(appendQuoted(nil, s), &back); err != nil || back != s {
			t.Errorf("%q: %q %v", s, back, err)
		}
	}
}

// FuzzDecode: no input makes the decoder panic, and what it takes encoding/json
// takes too and reads alike.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"QueueUrl":"http://x/0/q","MessageBody":"b\u0041","DelaySeconds":1,"MessageAttributes":{"a":{"DataType":"String","StringValue":"v"}}}`,
		`{"Entries":[{"Id":"1","MessageBody":"é"},{"Id":"2","ReceiptHandle":"x","VisibilityTimeout":-0}]}`,
		`{"Attributes":{"FifoQueue":"true"},"tags":{},"AttributeNames":["All"],"x":[{"y":[1e5]}]}`,
		`{"MessageBody":"\ud834\udd1e\"","a":"` + "\x7f" + `"}`, `{"a":[[[[`, "{\"a\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var r request
		if r.decode(string(src)) != nil {
			return
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(src, &fields); err != nil {
			t.Fatalf("taken: %q: %v", src, err)
		}
		if !utf8.Valid(src) {
			t.Fatalf("taken: %q", src)
		}
		if body, ok := fields["MessageBody"]; ok && json.Valid(body) {
			var s *string
			if err := json.Unmarshal(body, &s); err != nil || (s == nil) == r.body.set || s != nil && *s != r.body.s {
				t.Fatalf("%q: %q, want %v %v", src, r.body.s, s, err)
			}
		}
		if len(r.entries) > maxBatch || len(r.attrs) > maxAttrs {
			t.Fatalf("too many: %d, %d", len(r.entries), len(r.attrs))
		}
	})
}

// FuzzRequest: no request makes the server panic or answer something else than
// JSON, and its books stay right.
func FuzzRequest(f *testing.F) {
	ops := slices.Sorted(maps.Keys(operations))
	for i := range ops {
		f.Add(uint8(i), []byte(`{"QueueUrl":"http://x/0/q.fifo","QueueName":"q2","MessageBody":"b","MessageGroupId":"g","SourceArn":"arn:aws:sqs:us-east-1:000000000000:q.fifo","Attributes":{"FifoQueue":"true"},"Entries":[{"Id":"1","MessageBody":"b","MessageGroupId":"g","MessageDeduplicationId":"1"}]}`))
	}
	f.Fuzz(func(t *testing.T, op uint8, body []byte) {
		s := New()
		do := func(op, body string) []byte {
			w := &recorder{header: map[string][]string{}}
			s.ServeHTTP(w, newRequest(t, op, body))
			if w.status == 0 || !json.Valid([]byte(w.body.String())) {
				t.Fatalf("%s %q: %d %q", op, body, w.status, w.body.String())
			}
			return []byte(w.body.String())
		}
		if bytes.Contains(body, []byte("WaitTimeSeconds")) || bytes.Contains(body, []byte(`\u`)) {
			return // it would wait
		}
		do("CreateQueue", `{"QueueName":"q.fifo","Attributes":{"FifoQueue":"true","ContentBasedDeduplication":"true"}}`)
		do("SendMessage", `{"QueueUrl":"q.fifo","MessageBody":"1","MessageGroupId":"g"}`)
		do(ops[int(op)%len(ops)], string(body))
		for _, q := range s.queues {
			n := 0
			for m := q.first; m != nil; m = m.next {
				n++
			}
			if n != q.total || q.nInFlight < 0 || q.nDelayed < 0 || q.visible() < 0 {
				t.Fatalf("%s: %d messages, counted %d, %d in flight, %d delayed", q.name, n, q.total, q.nInFlight, q.nDelayed)
			}
		}
	})
}
