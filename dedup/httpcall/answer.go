package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/onceline/onceline/broker"
)

// KeyHeader is the header field of idempotency keys, of the draft
// draft-ietf-httpapi-idempotency-key-header and of most providers.
const KeyHeader = "Idempotency-Key"

// Header fields of answers that were kept.
const (
	// ReplayedHeader is "true" on an answer that was given before.
	ReplayedHeader = "Idempotency-Replayed"
	// DroppedHeader is "true" on an answer whose body was too long to be kept.
	DroppedHeader = "Idempotency-Body-Dropped"
)

type contextKey int

const (
	idKey contextKey = iota
	sentKey
)

// WithID names what a [Transport]'s request is about, as dedup IDs do.
func WithID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, idKey, id)
}

// ID returns what WithID or a [Receiver] put into ctx, or "".
func ID(ctx context.Context) string {
	id, _ := ctx.Value(idKey).(string)
	return id
}

// Key returns, in a handler behind a [Receiver], the idempotency key for what it calls
// in turn: 32 characters, the same for each attempt of the request; else "".
func Key(ctx context.Context) string {
	key, _ := ctx.Value(sentKey).(string)
	return key
}

// answer is what is kept of a response: a line of JSON, and the body as it is.
type answer struct {
	Status  int         `json:"status"`
	Header  http.Header `json:"header,omitempty"`
	Dropped bool        `json:"dropped,omitempty"` // the body was too long
	body    []byte
}

// passing are the header fields of a response that are for one connection or one
// reader, and aren't kept.
var passing = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Date", "Set-Cookie", ReplayedHeader, DroppedHeader}

// encode makes at most limit bytes of a: without the body if it is too long, and
// without the header fields if those are.
func (a *answer) encode(limit int) []byte {
	shorter := *a
	shorter.Header = a.Header.Clone()
	for _, name := range passing {
		shorter.Header.Del(name)
	}
	for {
		head, err := json.Marshal(&shorter)
		if err != nil { // of no answer: there is nothing in it that can't be
			panic(err)
		}
		b := append(append(head, '\n'), shorter.body...)
		switch {
		case len(b) <= limit || shorter.Dropped && shorter.Header == nil:
			return b
		case !shorter.Dropped:
			shorter.Dropped, shorter.body = true, nil
		default:
			shorter.Header = nil
		}
	}
}

var errNotKept = broker.Errorf(broker.ErrTooLarge, nil, "dedup/httpcall: the answer was too long to be kept")

// decode is the reverse of encode.
func decode(b []byte) (*answer, error) {
	if len(b) == 0 {
		return nil, errNotKept
	}
	head, body, ok := bytes.Cut(b, []byte("\n"))
	a := &answer{body: body}
	err := json.Unmarshal(head, a)
	if err == nil && (!ok || a.Status < 100 || a.Status > 999) {
		err = errors.New("no answer")
	}
	if err != nil {
		return nil, fmt.Errorf("dedup/httpcall: what was kept is no answer: %w", err)
	}
	if a.Header == nil {
		a.Header = http.Header{}
	}
	return a, nil
}

// identity is what makes a request the same as another.
func identity(method, uri string, body []byte) []byte {
	return append(fmt.Appendf(nil, "%s %s\n", method, uri), body...)
}

// safe reports whether a method asks for nothing to be done.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// notLetIn reports whether a status says that a request wasn't so much as looked at: who
// sent it isn't let in, or not now. It isn't the answer to the request.
func notLetIn(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}
