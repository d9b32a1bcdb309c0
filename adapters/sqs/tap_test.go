package sqs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// tap sits between client and service: it counts requests and lets a test
// strike them.
type tap struct {
	mu     sync.Mutex
	next   http.RoundTripper
	calls  map[string]int
	flight map[string]int
	hooks  map[string]hook
}

// hook answers a request. go on passes it to the service.
type hook func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error)

func newTap() *tap {
	return &tap{calls: map[string]int{}, flight: map[string]int{}, hooks: map[string]hook{}}
}

func (p *tap) option() Option {
	return WithTransport(func(next http.RoundTripper) http.RoundTripper { p.next = next; return p })
}

func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	p.mu.Lock()
	p.calls[op]++
	p.flight[op]++
	h := p.hooks[op]
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.flight[op]--
	}()
	if h != nil {
		return h(r, p.next.RoundTrip)
	}
	return p.next.RoundTrip(r)
}

// on sets what happens to an operation; nil is nothing.
func (p *tap) on(op string, h hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks[op] = h
}

func (p *tap) count(op string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[op]
}

func (p *tap) inFlight(op string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flight[op]
}

// loseResponse applies a request and loses its answer, n times.
func loseResponse(n int) hook {
	var done atomic.Int64
	return func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := goOn(r)
		if err != nil || done.Add(1) > int64(n) {
			return resp, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errors.New("connection reset by the test")
	}
}

// edit changes the answer to a request, a JSON object, n times.
func edit(n int, change func(map[string]any)) hook {
	var done atomic.Int64
	return func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := goOn(r)
		if err != nil || done.Add(1) > int64(n) {
			return resp, err
		}
		var m map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
			return nil, err
		}
		_ = resp.Body.Close()
		change(m)
		text, err := json.Marshal(m)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		resp.Header.Del("Content-Length")
		return resp, err
	}
}

// body reads a request as a JSON object and leaves it as it was.
func body(r *http.Request) map[string]any {
	text, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(text))
	var m map[string]any
	_ = json.Unmarshal(text, &m)
	return m
}

// answer is a response of the service's protocol.
func answer(r *http.Request, status int, v any, header ...string) *http.Response {
	text, _ := json.Marshal(v)
	h := http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: r}
}

// refuse answers with an error of the service, n times.
func refuse(n int, status int, code, message string) hook {
	var done atomic.Int64
	return func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if done.Add(1) > int64(n) {
			return goOn(r)
		}
		return answer(r, status, map[string]any{"__type": "com.amazonaws.sqs#" + code, "message": message}), nil
	}
}
