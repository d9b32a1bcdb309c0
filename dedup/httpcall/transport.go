package httpcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Transport is an [http.RoundTripper] that makes each request once, by the ID of its
// context ([WithID]), and keeps the answer. Requests of safe methods pass as they are;
// others need an ID, else the error is [broker.ErrInvalid].
//
// An answer of 5xx or 408 leaves open whether the provider did something, and so does
// an error after the connection was made, and 409 of a provider that knows keys, which
// says it while an attempt before is at work: the answer or the error goes to the
// caller, and what becomes of the next request is up to [dedup.CallOptions].Idempotent.
// After 401, 403, 407, 425 and 429, and if no connection could be made, nothing was
// done. Any other answer is kept and replayed to who sends the same again, with
// [ReplayedHeader]; [Transport].Keep can say otherwise.
//
// The error is, or wraps, [dedup.ErrInFlight] while another sends the request,
// [dedup.ErrOtherRequest] if the ID had another method, URL or body,
// [dedup.ErrUnresolved], [broker.ErrUnknownOutcome], [broker.ErrTooLarge] for bodies
// over the bound, or the store's.
//
// It is safe for concurrent use. RoundTrip blocks for the request and the store.
type Transport struct {
	// Calls holds the records. Its Bound is that of a request with its answer. Only
	// if it says that the provider is Idempotent is a key sent, for net/http takes
	// one as leave to send a request again.
	Calls *dedup.Calls
	// Base sends the requests. Nil takes http.DefaultTransport.
	Base http.RoundTripper
	// Header is the field of the key. Empty means [KeyHeader]. What a request has in it,
	// in Idempotency-Key or X-Idempotency-Key is taken out.
	Header string
	// Keep, where not nil, says of an answer below 500 whether it is kept. One that
	// isn't leaves open what was done, but for those after which nothing was.
	Keep func(status int, header http.Header) bool
	// MaxBody bounds the bodies of requests and answers, in bytes. Zero means 1 MiB.
	// What of an answer is more than [dedup.CallOptions].MaxResult isn't kept.
	MaxBody int64
}

func bound(n int64) int64 {
	if n <= 0 {
		return 1 << 20
	}
	return n
}

// readAll reads no more than limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = broker.Errorf(broker.ErrTooLarge, nil, "dedup/httpcall: a body of more than %d bytes", limit)
	}
	return b, err
}

// errOpen is the error of a call whose answer leaves open what was done.
var errOpen = errors.New("dedup/httpcall: the provider's answer leaves open what was done")

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if safe(req.Method) {
		return base.RoundTrip(req)
	}
	var body []byte
	if req.Body != nil {
		var err error
		body, err = readAll(req.Body, bound(t.MaxBody))
		if err = errors.Join(err, req.Body.Close()); err != nil {
			return nil, err
		}
	}
	id := ID(req.Context())
	if id == "" {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup/httpcall: %s %s without an ID: put one into its context by WithID", req.Method, req.URL.Redacted())
	}
	o := t.Calls.Options()
	var got *answer // of this attempt
	outcome, kept, err := t.Calls.Once(req.Context(), id, identity(req.Method, req.URL.String(), body), func(ctx context.Context, key string) ([]byte, error) {
		// The base may send a request several times, and tell of the last alone.
		var sent atomic.Int32
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }})
		var err error
		got, err = send(base, t.copy(req.WithContext(ctx), body, key, o.Idempotent > 0), bound(t.MaxBody))
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial" && sent.Load() == 0:
			return nil, dedup.NotDone(err)
		case err != nil:
			return nil, err
		case t.keeps(got, o.Idempotent > 0):
			return got.encode(o.MaxResult), nil
		case notLetIn(got.Status) && sent.Load() <= 1:
			return nil, dedup.NotDone(errOpen)
		}
		return nil, errOpen
	})
	if outcome == dedup.Duplicate {
		if got, err = decode(kept); err != nil {
			return nil, err
		}
		got.Header.Set(ReplayedHeader, "true")
	}
	switch {
	case got == nil:
		return nil, err
	case got.Dropped:
		return nil, errors.Join(errNotKept, err)
	}
	// It is the provider's answer, whatever became of its record.
	return got.response(req), nil
}

// keeps reports whether an answer is the provider's last word of the request.
func (t *Transport) keeps(a *answer, keyed bool) bool {
	switch {
	case a.Status >= 500:
		return false
	case t.Keep != nil:
		return t.Keep(a.Status, a.Header)
	}
	return !notLetIn(a.Status) && a.Status != http.StatusRequestTimeout && (a.Status != http.StatusConflict || !keyed)
}

// copy makes the request that is sent.
func (t *Transport) copy(req *http.Request, body []byte, key string, send bool) *http.Request {
	out := req.Clone(req.Context())
	out.Body, out.GetBody, out.ContentLength = http.NoBody, nil, 0
	if len(body) > 0 {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	header := t.Header
	if header == "" {
		header = KeyHeader
	}
	if out.Header == nil {
		out.Header = http.Header{}
	}
	// net/http sends a request again that has a field of one of the two names.
	for _, name := range []string{header, "Idempotency-Key", "X-Idempotency-Key"} {
		out.Header.Del(name)
	}
	if send {
		out.Header.Set(header, key)
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return out
}

// send sends a request and reads the whole answer, of which it returns no longer body
// than the limit.
func send(base http.RoundTripper, req *http.Request, limit int64) (*answer, error) {
	resp, err := base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := readAll(resp.Body, limit)
	if err = errors.Join(err, resp.Body.Close()); errors.Is(err, broker.ErrTooLarge) {
		// It took place, and who asks gets no more of it than an error.
		return &answer{Status: resp.StatusCode, Header: resp.Header, Dropped: true}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dedup/httpcall: answer: %w", err)
	}
	return &answer{Status: resp.StatusCode, Header: resp.Header, body: body}, nil
}

// response is what the caller gets.
func (a *answer) response(req *http.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header, Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: req,
	}
}
