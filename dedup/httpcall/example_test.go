package httpcall_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/httpcall"
	"github.com/onceline/onceline/dedup/sqlite"
)

// A shop takes orders that come with an Idempotency-Key, and pays a provider that
// knows keys for a day. A customer who sends his order twice pays once.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(context.Background(), filepath.Join(dir, "shop.db"), sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	payments := 0
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments++
		fmt.Fprintf(w, "payment %d", payments)
	}))
	defer provider.Close()

	calls, err := dedup.NewCalls(store, "psp", dedup.CallOptions{Idempotent: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &httpcall.Transport{Calls: calls, Base: base}}
	orders, err := dedup.NewCalls(store, "orders", dedup.CallOptions{Idempotent: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	receiver := &httpcall.Receiver{Calls: orders, Scope: func(r *http.Request) string { return r.Header.Get("X-Customer") }}
	shop := receiver.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := httpcall.WithID(r.Context(), httpcall.Key(r.Context()))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, strings.NewReader("amount=42"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // nothing stands: it may come again
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body)
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("bread"))
		r.Header.Set("Idempotency-Key", "8e03978e")
		r.Header.Set("X-Customer", "77")
		w := httptest.NewRecorder()
		shop.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get(httpcall.ReplayedHeader) == "true")
	}
	// Output:
	// 200 payment 1, replayed: false
	// 200 payment 1, replayed: true
}
