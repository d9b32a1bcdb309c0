package httpcall_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/httpcall"
)

// provider is who is called; it notes the keys.
type provider struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	bodies []string
	answer func(w http.ResponseWriter)
}

func newProvider(t *testing.T) *provider {
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		p.keys, p.bodies = append(p.keys, r.Header.Get("Idempotency-Key")), append(p.bodies, string(body))
		answer := p.answer
		p.mu.Unlock()
		answer(w)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) says(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = func(w http.ResponseWriter) {
		w.Header().Set("X-Receipt", "7")
		w.Header().Set("Set-Cookie", "session=secret")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func (p *provider) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys)
}

type client struct {
	t *testing.T
	*http.Client
}

// newClient has a transport of its own, whose connections end with the test.
func newClient(t *testing.T, tr *httpcall.Transport) client {
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	if tr.Base == nil {
		tr.Base = base
	}
	return client{t, &http.Client{Transport: tr}}
}

// post returns status and body, and whether the answer is replayed.
func (c client) post(id, url, body string) (status int, text string, replayed bool, err error) {
	c.t.Helper()
	ctx := c.t.Context()
	if id != "" {
		ctx = httpcall.WithID(ctx, id)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || int64(len(b)) != resp.ContentLength {
		c.t.Errorf("%d bytes of %d, %v", len(b), resp.ContentLength, err)
	}
	replayed = resp.Header.Get(httpcall.ReplayedHeader) == "true"
	if resp.StatusCode < 300 && resp.Header.Get("X-Receipt") != "7" || replayed && resp.Header.Get("Set-Cookie") != "" || !replayed && resp.Header.Get("Set-Cookie") == "" {
		c.t.Errorf("header %v", resp.Header)
	}
	return resp.StatusCode, string(b), replayed, nil
}

func (c client) is(id, url, body string, status int, text string, replayed bool) {
	c.t.Helper()
	s, b, r, err := c.post(id, url, body)
	if err != nil || s != status || b != text || r != replayed {
		c.t.Errorf("%s: %d %q, replayed %v, %v; want %d %q, %v", id, s, b, r, err, status, text, replayed)
	}
}

func (c client) fails(id, url, body string, what error) {
	c.t.Helper()
	if status, text, _, err := c.post(id, url, body); !errors.Is(err, what) {
		c.t.Errorf("%s: %d %q, %v; want %v", id, status, text, err, what)
	}
}

// TestTransport: the answer is kept with what of its header is for everybody; another
// request under the ID is refused; the key is the same for each attempt.
func TestTransport(t *testing.T) {
	p := newProvider(t)
	c := newClient(t, &httpcall.Transport{Calls: newCalls(t, dedup.CallOptions{Idempotent: time.Hour})})
	p.says(201, "paid\x00\n42")
	c.is("a", p.URL, "amount=42", 201, "paid\x00\n42", false)
	p.says(500, "broken")
	c.is("a", p.URL, "amount=42", 201, "paid\x00\n42", true)
	c.fails("a", p.URL, "amount=43", dedup.ErrOtherRequest)
	c.fails("a", p.URL+"/other", "amount=42", dedup.ErrOtherRequest)
	c.fails("", p.URL, "amount=42", broker.ErrInvalid)
	if p.asked() != 1 {
		t.Errorf("asked %d times", p.asked())
	}
	// What leaves it open is asked again with the same key, what wasn't done too.
	for _, status := range []int{500, 503, 408, 429} {
		p.says(status, "later")
		c.is("b", p.URL, "", status, "later", false)
	}
	p.says(402, "declined")
	c.is("b", p.URL, "", 402, "declined", false)
	c.is("b", p.URL, "", 402, "declined", true)
	keys := map[string]int{}
	for _, k := range p.keys {
		keys[k]++
	}
	if len(keys) != 2 || keys[p.keys[0]] != 1 || keys[p.keys[1]] != 5 || len(p.keys[0]) != 32 {
		t.Errorf("keys %v", keys)
	}
	// What asks for nothing needs nothing.
	resp, err := c.Get(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || p.keys[len(p.keys)-1] != "" {
		t.Error(err, p.keys)
	}
}

// TestTransportUnknown: a provider that knows no keys gets none, and isn't asked again
// when nobody knows what it did.
func TestTransportUnknown(t *testing.T) {
	p := newProvider(t)
	calls := newCalls(t, dedup.CallOptions{})
	c := newClient(t, &httpcall.Transport{Calls: calls})
	p.says(502, "who knows")
	c.is("a", p.URL, "x", 502, "who knows", false)
	c.fails("a", p.URL, "x", dedup.ErrUnresolved)
	// The connection is cut before the answer.
	p.mu.Lock()
	p.answer = func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}
	p.mu.Unlock()
	c.fails("cut", p.URL, "x", dedup.ErrUnresolved)
	if p.asked() != 2 || p.keys[0] != "" || p.keys[1] != "" {
		t.Errorf("keys %q", p.keys)
	}
	list, err := calls.Open(t.Context(), dedup.Call{}, 0)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, call := range list {
		if err := calls.Resume(t.Context(), call, ""); err != nil {
			t.Error(err)
		}
	}
	p.says(200, "ok")
	c.is("a", p.URL, "x", 200, "ok", false)
	// One that was never sent may be sent later.
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + down.Addr().String()
	if err := down.Close(); err != nil {
		t.Fatal(err)
	}
	c.fails("down", url, "x", syscall.ECONNREFUSED)
	if call, err := calls.Find(t.Context(), "down"); err != nil || call.State != dedup.CallFree {
		t.Errorf("%+v, %v", call, err)
	}
}

// TestTransportBounds: bodies over the bound are refused, or not kept; a provider that
// doesn't answer costs no more than the bound.
func TestTransportBounds(t *testing.T) {
	p := newProvider(t)
	calls := newCalls(t, dedup.CallOptions{MaxResult: 2000, Bound: 300 * time.Millisecond})
	c := newClient(t, &httpcall.Transport{Calls: calls, MaxBody: 5000})
	p.says(200, strings.Repeat("x", 5001))
	c.fails("request", p.URL, strings.Repeat("y", 5001), broker.ErrTooLarge)
	c.fails("answer", p.URL, "", broker.ErrTooLarge)
	c.fails("answer", p.URL, "", broker.ErrTooLarge)
	middle := strings.Repeat("x", 2001)
	p.says(200, middle)
	c.is("kept", p.URL, "", 200, middle, false)
	c.fails("kept", p.URL, "", broker.ErrTooLarge)
	if p.asked() != 2 {
		t.Errorf("asked %d times", p.asked())
	}
	release := make(chan struct{})
	p.mu.Lock()
	p.answer = func(http.ResponseWriter) { <-release }
	p.mu.Unlock()
	c.fails("slow", p.URL, "", context.DeadlineExceeded)
	c.fails("slow", p.URL, "", dedup.ErrUnresolved)
	close(release)
}
