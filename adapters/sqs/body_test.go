package sqs

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onceline/onceline/broker"
)

// An answer that comes while the SDK and net/http disagree about who is done
// with the request's body is not lost, and with it the messages: without
// bodies one in some dozens of these is.
func TestAnswersSurvive(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, false)
	big := message("x")
	big.Body = []byte(strings.Repeat("x", 1<<20-4096))
	for range 12 {
		publish(t, p, big)
		d := receiveOne(t, r)
		if d.Attempt != (broker.Attempt{Number: 1, Trust: broker.Approximate}) {
			t.Fatalf("attempt %d", d.Attempt.Number)
		}
		ack(t, *d)
	}
	if n := w.count("SendMessageBatch"); n != 12 {
		t.Errorf("%d requests", n)
	}
}

// What net/http gets to send can only be read, and says that it is at its end
// once it was closed.
func TestBodyIsOnlyRead(t *testing.T) {
	t.Parallel()
	_, w, _, p, _ := tappedEnds(t, true)
	w.on("SendMessageBatch", func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if _, writes := r.Body.(io.WriterTo); writes {
			t.Error("the body writes itself")
		}
		if r.ContentLength <= 0 {
			t.Errorf("content length %d", r.ContentLength)
		}
		resp, err := goOn(r)
		_ = r.Body.Close()
		if n, err := io.Copy(io.Discard, r.Body); n != 0 || err != nil {
			t.Errorf("after its end: %d bytes, %v", n, err)
		}
		return resp, err
	})
	publish(t, p, message("x"))
}

// A request whose call has returned without it isn't sent any more, however late the
// transport comes to it.
func TestBodyStays(t *testing.T) {
	t.Parallel()
	_, w, _, p, _ := tappedEnds(t, false)
	held := make(chan *http.Request, 1)
	w.on("SendMessageBatch", func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		held <- r
		return nil, errors.New("no way there")
	})
	rs, err := p.Publish(t.Context(), message("x"))
	wantErr(t, err, broker.ErrUnavailable)
	if rs[0].Verdict != broker.Refused {
		t.Errorf("%v", rs[0])
	}
	if text, err := io.ReadAll((<-held).Body); len(text) > 0 || !errors.Is(err, errSealed) {
		t.Errorf("%d bytes left, %v", len(text), err)
	}
}

// TestBodyTextByEights: the quick look at eight bytes says what a look at each
// says, wherever the odd one stands.
func TestBodyTextByEights(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				b := bytes.Repeat([]byte("a"), length)
				b[at] = byte(c)
				want := c < utf8.RuneSelf && textByte[c]
				if got := bodyText(b); got != want {
					t.Fatalf("%q: %v, want %v", b, got, want)
				}
			}
		}
	}
}
