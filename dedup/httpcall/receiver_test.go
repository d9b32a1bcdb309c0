package httpcall_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/httpcall"
	"github.com/onceline/onceline/dedup/sqlite"
)

// ask sends a request to h, with the ID if it isn't empty.
func ask(h http.Handler, method, target, id, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if id != "" {
		r.Header.Set("Idempotency-Key", id)
	}
	h.ServeHTTP(w, r)
	return w
}

func answers(t *testing.T, w *httptest.ResponseRecorder, status int, body string, replayed bool) {
	t.Helper()
	if w.Code != status || body != "*" && w.Body.String() != body || (w.Header().Get(httpcall.ReplayedHeader) == "true") != replayed {
		t.Errorf("%d %q, %v; want %d %q, replayed %v", w.Code, w.Body.String(), w.Header(), status, body, replayed)
	}
	if w.Code >= 400 && body == "*" && w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d as %q", w.Code, w.Header().Get("Content-Type"))
	}
}

// TestReceiver: the handler runs once for an ID, and its answer is replayed.
func TestReceiver(t *testing.T) {
	var runs atomic.Int64
	status := 201
	h := (&httpcall.Receiver{Calls: newCalls(t, dedup.CallOptions{}), MaxBody: 100}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) || r.Method != http.MethodGet && len(httpcall.Key(r.Context())) != 32 {
			t.Errorf("%q of %d, %v", body, r.ContentLength, err)
		}
		w.Header().Set("Location", "/orders/7")
		w.Header().Add("Set-Cookie", "session=secret")
		w.WriteHeader(status)
		w.WriteHeader(500) // as net/http, the first counts
		_, _ = io.WriteString(w, "made of ")
		_, _ = w.Write(body)
		w.Header().Set("Location", "too late")
	}))
	w := ask(h, "POST", "/orders?x=1", "a", "bread")
	answers(t, w, 201, "made of bread", false)
	if w.Header().Get("Location") != "/orders/7" || w.Header().Get("Set-Cookie") == "" {
		t.Error(w.Header())
	}
	status = 503
	w = ask(h, "POST", "/orders?x=1", "a", "bread")
	answers(t, w, 201, "made of bread", true)
	if w.Header().Get("Location") != "/orders/7" || w.Header().Get("Set-Cookie") != "" {
		t.Error(w.Header())
	}
	answers(t, ask(h, "POST", "/orders?x=1", "a", "wine"), 422, "*", false)
	answers(t, ask(h, "POST", "/orders?x=2", "a", "bread"), 422, "*", false)
	answers(t, ask(h, "PUT", "/orders?x=1", "a", "bread"), 422, "*", false)
	answers(t, ask(h, "POST", "/orders", "", "bread"), 400, "*", false)
	answers(t, ask(h, "POST", "/orders", strings.Repeat("k", 256), "bread"), 400, "*", false)
	answers(t, ask(h, "POST", "/orders", "long", strings.Repeat("x", 101)), 413, "*", false)
	if runs.Load() != 1 {
		t.Errorf("ran %d times", runs.Load())
	}
	// What failed runs again, what asks for nothing always.
	answers(t, ask(h, "POST", "/orders", "b", "bread"), 503, "made of bread", false)
	status = 409 // the handler's own
	answers(t, ask(h, "POST", "/orders", "b", "bread"), 409, "made of bread", false)
	answers(t, ask(h, "POST", "/orders", "b", "bread"), 409, "made of bread", true)
	answers(t, ask(h, "GET", "/orders", "b", ""), 409, "made of ", false)
	answers(t, ask(h, "GET", "/orders", "b", ""), 409, "made of ", false)
	if runs.Load() != 5 {
		t.Errorf("ran %d times", runs.Load())
	}
}

// TestReceiverInFlight: a copy that comes while the first is handled isn't.
func TestReceiverInFlight(t *testing.T) {
	running, finish := make(chan struct{}), make(chan struct{})
	h := (&httpcall.Receiver{Calls: newCalls(t, dedup.CallOptions{})}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(running)
		<-finish
	}))
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- ask(h, "POST", "/", "a", "") }()
	<-running
	w := ask(h, "POST", "/", "a", "")
	answers(t, w, 409, "*", false)
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(finish)
	answers(t, <-first, 200, "", false)
	answers(t, ask(h, "POST", "/", "a", ""), 200, "", true)
}

// TestReceiverPanics: what a handler did that panics is open: it runs again if it may.
func TestReceiverPanics(t *testing.T) {
	for _, idempotent := range []time.Duration{0, time.Hour} {
		broken := errors.New("broken")
		calls := newCalls(t, dedup.CallOptions{Idempotent: idempotent})
		var keys []string
		h := (&httpcall.Receiver{Calls: calls}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, httpcall.Key(r.Context()))
			_, _ = io.WriteString(w, "half")
			if len(keys) == 1 {
				panic(broken)
			}
		}))
		func() {
			defer func() {
				if v := recover(); v != any(broken) {
					t.Errorf("panics with %v", v)
				}
			}()
			ask(h, "POST", "/", "a", "")
		}()
		w := ask(h, "POST", "/", "a", "")
		if idempotent == 0 {
			answers(t, w, 503, "*", false)
			list, err := calls.Open(t.Context(), dedup.Call{}, 0)
			if err != nil || len(list) != 1 || len(keys) != 1 {
				t.Errorf("%+v, %v", list, err)
			}
			continue
		}
		answers(t, w, 200, "half", false)
		if len(keys) != 2 || keys[0] != keys[1] {
			t.Errorf("keys %q", keys)
		}
	}
}

// TestReceiverLong: an answer that is too long to be kept gets to the first who asks,
// and its status to the others.
func TestReceiverLong(t *testing.T) {
	long := strings.Repeat("x", 1000)
	runs := 0
	first := httptest.NewRecorder()
	h := (&httpcall.Receiver{Calls: newCalls(t, dedup.CallOptions{MaxResult: 1500})}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.Header().Set("X-Receipt", "7")
		w.WriteHeader(202)
		for _, sent := range []int{0, 2000, 3000} { // it isn't held in memory
			if _, err := io.WriteString(w, long); err != nil || first.Body.Len() != sent {
				t.Errorf("%d bytes are sent, want %d: %v", first.Body.Len(), sent, err)
			}
		}
	}))
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Idempotency-Key", "a")
	h.ServeHTTP(first, r)
	answers(t, first, 202, long+long+long, false)
	w := ask(h, "POST", "/", "a", "")
	answers(t, w, 202, "", true)
	if w.Header().Get(httpcall.DroppedHeader) != "true" || w.Header().Get("X-Receipt") != "7" || runs != 1 {
		t.Error(w.Header(), runs)
	}
}

// TestReceiverWebhook: the ID is that of the sender's delivery, for each sender its
// own.
func TestReceiverWebhook(t *testing.T) {
	runs := 0
	rc := &httpcall.Receiver{
		Calls: newCalls(t, dedup.CallOptions{}), ID: httpcall.FromHeader("X-GitHub-Delivery"), Optional: true,
		Scope: func(r *http.Request) string { return r.Header.Get("X-Sender") },
	}
	h := rc.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
	deliver := func(sender string, ids ...string) int {
		r := httptest.NewRequest("POST", "/hook", strings.NewReader("{}"))
		r.Header["X-Github-Delivery"] = ids
		r.Header.Set("X-Sender", sender)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		sender string
		ids    []string
		status int
		runs   int
	}{
		{"a", []string{"1"}, 200, 1}, {"a", []string{"1"}, 200, 1}, {"b", []string{"1"}, 200, 2}, {`a" 1`, []string{"1"}, 200, 3},
		{"a", nil, 200, 4}, {"a", nil, 200, 5}, {"a", []string{"1", "2"}, 400, 5},
	} {
		if status := deliver(c.sender, c.ids...); status != c.status || runs != c.runs {
			t.Errorf("%s %v: %d after %d runs; want %d after %d", c.sender, c.ids, status, runs, c.status, c.runs)
		}
	}
}

// TestReceiverStoreLost: without its store a request isn't handled; if the store goes
// while one is, the handler's answer gets out all the same.
func TestReceiverStoreLost(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	calls, err := dedup.NewCalls(s, "c", dedup.CallOptions{Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	h := (&httpcall.Receiver{Calls: calls}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "done")
	}))
	answers(t, ask(h, "POST", "/", "a", ""), 200, "done", false)
	answers(t, ask(h, "POST", "/", "b", ""), 503, "*", false)
}
