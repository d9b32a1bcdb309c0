package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// TestRelayMetrics: what a relay does and what waits is there for Prometheus while it
// runs, by the names that docs/operations has alerts for, and each publish is told.
func TestRelayMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	url := startNATS(t)
	if _, stderr, code := onceline(t.Context(), "sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure", "--wait", "50ms"); code != 0 {
		t.Fatal(stderr)
	}
	out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{Others: true})
	defer out.Close(context.Background())
	if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
		return out.AddTx(t.Context(), tx, broker.Message{ID: "a", Key: "k"}, broker.Message{ID: "b"},
			broker.Message{ID: "large", Key: "k", Body: make([]byte, 2<<20)}, broker.Message{ID: "behind it", Key: "k"})
	}); err != nil {
		t.Fatal(err)
	}
	args := []string{"relay", "--from", path, "--topic", "orders", "--to", url, "--poll", "20ms", "--every", "0s"}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	numbers, errs := newWatched(), newWatched()
	ended := make(chan int)
	go func() { ended <- run(ctx, append(args, "--metrics", "127.0.0.1:0", "-v"), numbers, errs) }()
	errs.waitFor(t, metricsPath+"\n")
	at := regexp.MustCompile(`http://\S+`).FindString(errs.String())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(url string) (string, int) {
		t.Helper()
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body), resp.StatusCode
	}
	numbers.waitFor(t, "published 2 in ")
	want := []string{
		"\nonceline_relay_messages_total{messaging_destination_name=\"orders\",onceline_verdict=\"stored\"} 2\n",
		"\nonceline_outbox_messages{messaging_destination_name=\"orders\",onceline_state=\"parked\"} 1\n",
		"\nonceline_outbox_messages{messaging_destination_name=\"orders\",onceline_state=\"waiting\"} 1\n",
		"\nonceline_relay_stopped_total{messaging_destination_name=\"orders\",onceline_state=\"parked\"} 1\n",
		"\n# TYPE onceline_relay_messages_total counter\n", "\n# TYPE onceline_outbox_lag_seconds gauge\n", "\n# TYPE onceline_relay_publish_duration_seconds histogram\n",
		"\nonceline_relay_window_seconds{messaging_destination_name=\"orders\"} 120\n",
	}
	var page string
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		page, _ = get(at)
		missing := ""
		for _, w := range want {
			if !strings.Contains(page, w) {
				missing = w
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q isn't in\n%s", missing, page)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? [-+0-9.eInf]+)$`)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(page) {
		l = strings.TrimSuffix(l, "\n")
		if !line.MatchString(l) {
			t.Errorf("%q is no line of the format", l)
		}
		if name, ok := strings.CutPrefix(l, "# TYPE "); ok {
			if name, _, _ = strings.Cut(name, " "); !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("docs/operations doesn't tell of %s", name)
			}
		}
	}
	if _, status := get(strings.TrimSuffix(at, metricsPath) + "/other"); status != http.StatusNotFound {
		t.Errorf("another path: %d", status)
	}

	// A port that is taken, and what isn't one.
	taken := strings.TrimSuffix(strings.TrimPrefix(at, "http://"), metricsPath)
	if _, stderr, code := onceline(t.Context(), append(args, "--metrics", taken)...); code != report.ExitUnknown || !strings.Contains(stderr, "--metrics: listen") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := onceline(t.Context(), append(args, "--metrics", "9464")...); code != report.ExitUsage || !strings.Contains(stderr, "HOST:PORT") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("exit %d: %s%s", code, numbers, errs)
	}
	if conn, err := net.DialTimeout("tcp", taken, time.Second); err == nil {
		t.Error("the server outlives the relay", conn.Close())
	}
}

// TestWriteMetrics: text that would break a line is escaped, and buckets add up.
func TestWriteMetrics(t *testing.T) {
	with := attribute.NewSet(attribute.String("messaging.destination.name", "a\"b\\c\nd\xff"))
	var b strings.Builder
	err := writeMetrics(&b, &metricdata.ResourceMetrics{ScopeMetrics: []metricdata.ScopeMetrics{{Metrics: []metricdata.Metrics{
		{Name: "x.took", Unit: "s", Description: "How\nlong.", Data: metricdata.Histogram[float64]{DataPoints: []metricdata.HistogramDataPoint[float64]{
			{Attributes: with, Bounds: []float64{0.5, 1}, BucketCounts: []uint64{3, 0, 2}, Count: 5, Sum: 7.25}}}},
		{Name: "x.n", Unit: "{message}", Description: "Messages.", Data: metricdata.Sum[int64]{IsMonotonic: true, DataPoints: []metricdata.DataPoint[int64]{{Value: 12345678901}}}},
	}}}})
	label := `messaging_destination_name="a\"b\\c\nd` + "\ufffd" + `"`
	want := fmt.Sprintf(`# HELP x_n_total Messages.
# TYPE x_n_total counter
x_n_total 1.2345678901e+10
# HELP x_took_seconds How\nlong.
# TYPE x_took_seconds histogram
x_took_seconds_bucket{%[1]s,le="0.5"} 3
x_took_seconds_bucket{%[1]s,le="1"} 3
x_took_seconds_bucket{%[1]s,le="+Inf"} 5
x_took_seconds_sum{%[1]s} 7.25
x_took_seconds_count{%[1]s} 5
`, label)
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
}
