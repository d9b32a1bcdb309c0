package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape reads a page of metrics: what the series with that beginning add up to.
func scrape(t *testing.T, client *http.Client, url string, beginnings ...string) map[string]float64 {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sums := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		for _, b := range beginnings {
			if strings.HasPrefix(line, b) {
				n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				sums[b] += n
			}
		}
	}
	return sums
}

// TestServe: the service as it is scraped. Copies are caught, and none is booked twice.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, filepath.Join(t.TempDir(), "shop.db"), 5*time.Millisecond) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	caught, applied, twice, sent := "duplicates_caught_total", `onceline_dedup_messages_total{onceline_consumer="billing",onceline_guard="inbox",onceline_outcome="applied"`, "duplicate_processing_total", "onceline_relay_messages_total"
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := scrape(t, client, "http://"+l.Addr().String()+"/metrics", caught, applied, twice, sent)
		if _, there := got[twice]; !there || got[twice] != 0 {
			t.Fatalf("%v", got)
		}
		if got[caught] >= 3 && got[applied] >= 9 && got[sent] >= got[applied] {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after 30 s %v", got)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
