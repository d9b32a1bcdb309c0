package otel_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/otel"
	"github.com/onceline/onceline/dedup/sqlite"
)

// prometheusNames are what the exporter for Prometheus makes of a series' name.
func prometheusNames(s series) []string {
	name := strings.ReplaceAll(s.name, ".", "_")
	if s.unit == "s" {
		name += "_seconds"
	}
	switch s.kind {
	case "counter":
		return []string{name + "_total"}
	case "histogram":
		return []string{name, name + "_bucket", name + "_sum", name + "_count"}
	}
	return []string{name}
}

var written = regexp.MustCompile(`\b(?:onceline_(?:dedup|calls|partitions|relay|outbox|publish)_[a-z_]+|duplicates?_[a-z_]+_total|stuck_[a-z_]+_total|consumer_group_[a-z_]+_total)\b`)

// TestWrittenNames: the rules, the dashboard and the page about them name what is
// exported, and the package's comment all of it. The module examples/metrics reads the
// queries as PromQL and uses the exporter itself.
func TestWrittenNames(t *testing.T) {
	r := newRig(t)
	store := openStore(t, sqlite.Options{})
	c, err := dedup.NewCalls(store, "c", dedup.CallOptions{})
	must(t, err)
	r.Inbox(dedup.New(store, "c", dedup.Options{}))
	r.Position(dedup.NewPosition(store, "c", dedup.Options{}))
	r.Lease(dedup.NewLease(leases{time.Minute}, "c", dedup.LeaseOptions{}))
	r.Calls(c)
	r.Relay(dedup.NewRelay(store, "t", picky{}, dedup.RelayOptions{}))
	r.Outbox("t", store)
	r.DuplicatesApplied("c", func(context.Context) (int64, error) { return 0, nil })
	r.Rebalances("s")(&broker.ReceiverOptions{})
	r.Took(otel.Inbox, "c")(1, time.Second)
	r.Published("t")(dedup.RelayPublish{Messages: 1, Retried: 1})
	_, _ = r.Publisher(picky{}, "t").Publish(t.Context(), broker.Message{ID: "stored"})

	comment, err := os.ReadFile("doc.go")
	must(t, err)
	exported := map[string]bool{}
	for _, s := range r.collect() {
		for _, name := range prometheusNames(s) {
			exported[name] = true
		}
		if !strings.Contains(string(comment), "//	"+s.name+" ") {
			t.Errorf("the package's comment doesn't list %s", s.name)
		}
	}
	for _, file := range []string{"alerts.yml", "alerts.test.yml", "dashboard.json", "README.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", file))
		must(t, err)
		names := written.FindAllString(string(text), -1)
		for _, name := range names {
			if !exported[name] {
				t.Errorf("%s names %s, which isn't exported", file, name)
			}
		}
		if len(names) < 25 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
	}
}
