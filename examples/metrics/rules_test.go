package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	exporting "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/otel"
)

const operations = "../../docs/operations"

// exported are the names, as Prometheus sees them, of all that dedup/otel exports, each
// with the values that its labels had.
type exported map[string]map[string][]string

// add takes a series in.
func (e exported) add(name string, ls []*dto.LabelPair, more ...string) {
	if e[name] == nil {
		e[name] = map[string][]string{}
	}
	for _, l := range ls {
		e[name][l.GetName()] = append(e[name][l.GetName()], l.GetValue())
	}
	for _, l := range more {
		e[name][l] = nil // any
	}
}

// everything exports something of each kind, by the exporter that users have.
func everything(t *testing.T) exported {
	t.Helper()
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	exporter, err := exporting.New(exporting.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	x, err := otel.New(otel.WithMeterProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	x.Inbox(s.inbox)
	x.Position(dedup.NewPosition(s.store, "billing", dedup.Options{}))
	x.Lease(dedup.NewLease(noLeases{}, "billing", dedup.LeaseOptions{}))
	x.Calls(s.calls)
	x.Relay(s.relay)
	x.Outbox(topic, s.store)
	x.DuplicatesApplied("billing", s.bookedTwice)
	var o broker.ReceiverOptions
	x.Rebalances(subscription)(&o)
	x.Took(otel.Inbox, "billing")(1, time.Second)
	x.Published(topic)(dedup.RelayPublish{Messages: 1, Took: time.Second, Retried: 1, RetryAge: time.Minute})
	p := x.Publisher(s.prices, "prices")
	if _, err := p.Publish(t.Context(), broker.Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := exported{}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetType() == dto.MetricType_HISTOGRAM {
				all.add(f.GetName()+"_bucket", m.Label, "le")
				all.add(f.GetName()+"_sum", m.Label)
				all.add(f.GetName()+"_count", m.Label)
				continue
			}
			all.add(f.GetName(), m.Label)
		}
	}
	for _, labels := range all {
		labels["job"], labels["instance"] = nil, nil // by Prometheus
	}
	if err := provider.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if len(all) < 40 {
		t.Fatalf("exported: %v", slices.Sorted(maps.Keys(all)))
	}
	return all
}

// noLeases is a store that nobody asks.
type noLeases struct{ dedup.LeaseDriver }

// query checks that an expression can be evaluated, and that what it reads is exported,
// with the labels by which it is picked, joined and summed.
func (e exported) query(text string) error {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return err
	}
	var bad []string
	inside := func(node parser.Node) map[string][]string { // the labels of all that is read below
		have := map[string][]string{}
		parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				maps.Copy(have, e[s.Name])
			}
			return nil
		})
		return have
	}
	known := func(node parser.Node, names []string) {
		for _, name := range names {
			if _, ok := inside(node)[name]; !ok {
				bad = append(bad, fmt.Sprintf("nothing in %s has the label %s", node, name))
			}
		}
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if e[n.Name] == nil {
				bad = append(bad, fmt.Sprintf("%s isn't exported", n.Name))
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name == model.MetricNameLabel || strings.Contains(m.Value, "$") {
					continue
				}
				values, ok := e[n.Name][m.Name]
				if !ok || values != nil && !slices.ContainsFunc(values, m.Matches) {
					bad = append(bad, fmt.Sprintf("no %s has %s", n.Name, m))
				}
				for _, one := range strings.Split(m.Value, "|") {
					if m.Type == labels.MatchRegexp && regexp.QuoteMeta(one) == one && values != nil && !slices.Contains(values, one) {
						bad = append(bad, fmt.Sprintf("no %s has %s=%q", n.Name, m.Name, one))
					}
				}
			}
		case *parser.AggregateExpr:
			known(n.Expr, n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				known(n.LHS, n.VectorMatching.MatchingLabels)
				known(n.RHS, n.VectorMatching.MatchingLabels)
			}
		}
		return nil
	})
	if len(bad) > 0 {
		return fmt.Errorf("%s: %s", text, strings.Join(bad, "; "))
	}
	return nil
}

// tells reports whether the result of an expression has a label.
func (e exported) tells(t *testing.T, text, label string) bool {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	summed, read := false, false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			summed = true
			read = read || slices.Contains(n.Grouping, label)
		case *parser.VectorSelector:
			_, has := e[n.Name][label]
			read = read || !summed && has
		}
		return nil
	})
	return read
}

// rules adds what the rules record to what is exported, and returns the alerts.
func (e exported) rules(t *testing.T) (alerts []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(operations, "alerts.yml"), false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if err := e.query(r.Expr); err != nil {
				t.Errorf("%s%s: %v", r.Record, r.Alert, err)
			}
			if r.Record == "" {
				alerts = append(alerts, r)
				continue
			}
			of := map[string][]string{}
			for _, name := range []string{"job", "onceline_consumer", "onceline_guard", "messaging_destination_name"} {
				if strings.Contains(r.Expr, name) {
					of[name] = nil
				}
			}
			e[r.Record] = of
		}
	}
	return alerts
}

var label = regexp.MustCompile(`\$labels\.(\w+)`)

// TestAlerts: each rule reads what is exported, tells of labels that are there, and has
// its section in the page.
func TestAlerts(t *testing.T) {
	all := everything(t)
	page, err := os.ReadFile(filepath.Join(operations, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := all.rules(t)
	if len(alerts) < 20 {
		t.Errorf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(string(page), "\n### "+a.Alert+"\n") {
			t.Errorf("the page says nothing of %s", a.Alert)
		}
		if want := "docs/operations/README.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s has the runbook %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		for _, l := range label.FindAllStringSubmatch(a.Annotations["summary"], -1) {
			if !all.tells(t, a.Expr, l[1]) {
				t.Errorf("%s tells of %s, which it sums over", a.Alert, l[1])
			}
		}
		if s := a.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s is a %q", a.Alert, s)
		}
	}
}

// TestDashboard: each panel reads what is exported or recorded, and each metric is in a
// panel, an alert or a recording.
func TestDashboard(t *testing.T) {
	all := everything(t)
	all.rules(t)
	text, err := os.ReadFile(filepath.Join(operations, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range board.Panels {
		if p.Type != "row" && p.Description == "" {
			t.Errorf("%q has no description", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(target.Expr)
			if err := all.query(expr); err != nil {
				t.Errorf("%q: %v", p.Title, err)
			}
		}
	}
	if queries < 20 {
		t.Errorf("%d queries", queries)
	}
	for _, v := range board.Templating.List {
		if inner, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			metric, name, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			if _, ok := all[metric][name]; !ok {
				t.Errorf("variable %s: no %s has %s", v.Name, metric, name)
			}
		}
	}
	rules, err := os.ReadFile(filepath.Join(operations, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(operations, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if name == "target_info" || strings.Contains(name, ":") {
			continue
		}
		if !strings.Contains(string(text)+string(rules), base) {
			t.Errorf("%s is in no panel and no rule", name)
		}
		if !strings.Contains(string(page), "`"+base+"`") {
			t.Errorf("the page doesn't explain %s", base)
		}
	}
}

var pageMetric = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|")

// TestPage: the table of the page has no metric that isn't exported.
func TestPage(t *testing.T) {
	all := everything(t)
	all.rules(t)
	page, err := os.ReadFile(filepath.Join(operations, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := pageMetric.FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		if all[row[1]] == nil && all[row[1]+"_count"] == nil {
			t.Errorf("%s isn't exported", row[1])
		}
	}
	if len(rows) < 30 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestQuerySees: the check of queries finds what is wrong in them.
func TestQuerySees(t *testing.T) {
	all := everything(t)
	for _, bad := range []string{
		"sum by (job) (rate(duplicates_caught[5m]))",
		`onceline_dedup_messages_total{onceline_outcome="lost"}`,
		`onceline_dedup_messages_total{onceline_outcome=~"unknown|outside"}`,
		`onceline_dedup_messages_total{outcome="unknown"}`,
		"sum by (topic) (onceline_outbox_messages)",
		"onceline_outbox_lag_seconds > on (onceline_consumer) onceline_relay_window_seconds",
		"rate(duplicates_caught_total)",
	} {
		if err := all.query(bad); err == nil {
			t.Errorf("%s passes", bad)
		}
	}
	if err := all.query("histogram_quantile(0.9, sum by (le, job) (rate(onceline_relay_retry_age_seconds_bucket[5m])))"); err != nil {
		t.Error(err)
	}
}
