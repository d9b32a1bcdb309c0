package httpcall_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/httpcall"
)

// TestTransportInProgress: a provider that says 409 while the attempt before, under the
// same key, is still at work hasn't answered: what it answers in the end is kept. This
// is what a Receiver says.
func TestTransportInProgress(t *testing.T) {
	paid, arrived, release := atomic.Int32{}, make(chan struct{}), make(chan struct{})
	receiver := &httpcall.Receiver{Calls: newCalls(t, dedup.CallOptions{Idempotent: time.Hour})}
	provider := httptest.NewServer(receiver.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		paid.Add(1)
		w.Header().Set("X-Receipt", "7")
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
		_, _ = io.WriteString(w, "paid")
	})))
	defer provider.Close()
	calls := newCalls(t, dedup.CallOptions{Idempotent: time.Hour})
	c := newClient(t, &httpcall.Transport{Calls: calls})
	// The first attempt is given up, and goes on at the provider's.
	ctx, cancel := context.WithCancel(httpcall.WithID(t.Context(), "order"))
	go func() { <-arrived; cancel() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, strings.NewReader("amount=42"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatal(resp, err)
	}
	again := func() (int, string) {
		req, err := http.NewRequestWithContext(httpcall.WithID(t.Context(), "order"), http.MethodPost, provider.URL, strings.NewReader("amount=42"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(b)
	}
	if status, body := again(); status != http.StatusConflict {
		t.Errorf("%d %s", status, body)
	}
	if call, err := calls.Find(t.Context(), "order"); err != nil || call.State != dedup.CallStarted {
		t.Errorf("%+v, %v", call, err)
	}
	close(release)
	status, body := again()
	for until := time.Now().Add(10 * time.Second); status == http.StatusConflict && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
		status, body = again()
	}
	if status != http.StatusOK || body != "paid" || paid.Load() != 1 {
		t.Errorf("%d %s, %d payments", status, body, paid.Load())
	}
	if call, err := calls.Find(t.Context(), "order"); err != nil || call.State != dedup.CallDone {
		t.Errorf("%+v, %v", call, err)
	}
}

// TestTransportLostThenDown: net/http sends a request with a key again when its
// connection ends without an answer. If it finds nobody then, its error is of the second
// attempt, and says nothing of the first, which may have been a payment.
func TestTransportLostThenDown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	paid := make(chan struct{})
	go func() {
		defer close(paid)
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		head := func() bool { // reads a request of an empty body
			b, seen := make([]byte, 1), ""
			for !strings.HasSuffix(seen, "\r\n\r\n") {
				if _, err := conn.Read(b); err != nil {
					t.Error(err)
					return false
				}
				seen += string(b)
			}
			return true
		}
		if !head() {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Receipt: 7\r\nSet-Cookie: a=b\r\n\r\n"); err != nil {
			t.Error(err)
		}
		head() // the payment, on the same connection
		_ = listener.Close()
	}()
	calls := newCalls(t, dedup.CallOptions{Idempotent: time.Hour})
	c := newClient(t, &httpcall.Transport{Calls: calls})
	url := "http://" + listener.Addr().String()
	c.is("first", url, "", 200, "", false)
	c.fails("payment", url, "", broker.ErrUnknownOutcome)
	<-paid
	if call, err := calls.Find(t.Context(), "payment"); err != nil || call.State != dedup.CallStarted {
		t.Errorf("%+v, %v", call, err)
	}
}

// TestTransportNotLetIn: an answer that says that the provider didn't let the caller in
// isn't that of the request: it is sent again when the credentials are mended.
func TestTransportNotLetIn(t *testing.T) {
	p := newProvider(t)
	calls := newCalls(t, dedup.CallOptions{})
	c := newClient(t, &httpcall.Transport{Calls: calls})
	for _, status := range []int{401, 403, 407, 425, 429} {
		p.says(status, "no")
		c.is("a", p.URL, "x", status, "no", false)
		if call, err := calls.Find(t.Context(), "a"); err != nil || call.State != dedup.CallFree {
			t.Errorf("%d: %+v, %v", status, call, err)
		}
	}
	p.says(409, "there is such an order")
	c.is("b", p.URL, "x", 409, "there is such an order", false)
	c.is("b", p.URL, "x", 409, "there is such an order", true) // it knows no keys, and means the order
	p.says(201, "paid")
	c.is("a", p.URL, "x", 201, "paid", false)
	c.is("a", p.URL, "x", 201, "paid", true)
}

// TestTransportKeep: who knows the provider better says which answers are its last word.
func TestTransportKeep(t *testing.T) {
	p := newProvider(t)
	calls := newCalls(t, dedup.CallOptions{Idempotent: time.Hour})
	c := newClient(t, &httpcall.Transport{Calls: calls, Keep: func(status int, header http.Header) bool {
		return status == 409 && header.Get("X-Receipt") == "7"
	}})
	p.says(409, "there is such an order")
	c.is("a", p.URL, "x", 409, "there is such an order", false)
	c.is("a", p.URL, "x", 409, "there is such an order", true)
	p.says(404, "not yet")
	c.is("b", p.URL, "x", 404, "not yet", false)
	p.says(500, "broken") // asked only of what could be an answer
	c.is("b", p.URL, "x", 500, "broken", false)
	if call, err := calls.Find(t.Context(), "b"); err != nil || call.State != dedup.CallStarted {
		t.Errorf("%+v, %v", call, err)
	}
}

// TestTransportNoOtherKey: to a provider that knows no keys none is sent, under no name
// by which net/http would take a request for one that it may send twice.
func TestTransportNoOtherKey(t *testing.T) {
	var sent atomic.Int32
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent.Add(1) == 1 {
			w.Header().Set("X-Receipt", "7")
			return
		}
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s: %s", name, r.Header.Get(name))
			}
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	defer provider.Close()
	c := newClient(t, &httpcall.Transport{Calls: newCalls(t, dedup.CallOptions{}), Header: "X-Payment-Key"})
	for _, id := range []string{"a", "b"} {
		req, err := http.NewRequestWithContext(httpcall.WithID(t.Context(), id), http.MethodPost, provider.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Idempotency-Key", "mine")
		req.Header.Set("Idempotency-Key", "mine")
		resp, err := c.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		if id == "a" && err != nil || id == "b" && !errors.Is(err, dedup.ErrUnresolved) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if sent.Load() != 2 {
		t.Errorf("sent %d times", sent.Load())
	}
}

// TestReceiverForged: who isn't let in by the handler, and has guessed an ID, doesn't
// take it from the one it is of: neither with another body nor with the same.
func TestReceiverForged(t *testing.T) {
	runs := 0
	h := (&httpcall.Receiver{Calls: newCalls(t, dedup.CallOptions{})}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ := r.BasicAuth(); user != "sender" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		runs++
		_, _ = io.WriteString(w, "done")
	}))
	send := func(user, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/hook", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "1")
		r.SetBasicAuth(user, "")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	answers(t, send("thief", "forged"), 401, "who are you?\n", false)
	answers(t, send("thief", "event"), 401, "who are you?\n", false)
	answers(t, send("sender", "event"), 200, "done", false)
	answers(t, send("sender", "event"), 200, "done", true)
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}
