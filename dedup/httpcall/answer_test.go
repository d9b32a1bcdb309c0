package httpcall

import (
	"bytes"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// FuzzDecode: what was kept is read as it was written, and what isn't an answer is an
// error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("{\"status\":200}\nbody\n"))
	f.Add([]byte("{\"status\":99}\n"))
	f.Add([]byte("{\"status\":200,\"header\":{\"A\":[\"b\"]}}"))
	f.Add((&answer{Status: 404, Header: http.Header{"A": {"b", "c"}}, Dropped: true}).encode(1000))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(b)
		if err != nil {
			return
		}
		for _, name := range passing {
			a.Header.Del(name)
		}
		again, err := decode(a.encode(len(b) + 1<<20))
		if err != nil || again.Status != a.Status || again.Dropped != a.Dropped || !bytes.Equal(again.body, a.body) || len(again.Header) != len(a.Header) {
			t.Errorf("%+v, %v; want %+v", again, err, a)
		}
	})
}

// TestEncode: what is too long goes, the body first; status and size always stay.
func TestEncode(t *testing.T) {
	a := &answer{Status: 201, Header: http.Header{"A": {strings.Repeat("h", 100)}, "Set-Cookie": {"secret"}}, body: bytes.Repeat([]byte("b"), 100)}
	for limit, want := range map[int]*answer{
		1000: {Status: 201, Header: http.Header{"A": a.Header["A"]}, body: a.body},
		200:  {Status: 201, Header: http.Header{"A": a.Header["A"]}, Dropped: true, body: []byte{}},
		100:  {Status: 201, Header: http.Header{}, Dropped: true, body: []byte{}},
	} {
		b := a.encode(limit)
		got, err := decode(b)
		if err != nil || len(b) > limit || !reflect.DeepEqual(got, want) {
			t.Errorf("in %d bytes of %d %+v, %v; want %+v", len(b), limit, got, err, want)
		}
	}
	if len(a.body) != 100 || len(a.Header) != 2 {
		t.Error("the answer itself was changed")
	}
}
