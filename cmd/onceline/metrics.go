package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// metricsPath is where metrics are.
const metricsPath = "/metrics"

// metricsServer serves what a meter provider has, in the text format of Prometheus and by
// the names that its exporter of OpenTelemetry's gives them.
type metricsServer struct {
	*sdk.MeterProvider
	url    string
	server *http.Server
	ended  chan error
}

// serveMetrics listens on an address, HOST:PORT, and answers until close.
func serveMetrics(addr string, failed func(error)) (*metricsServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	reader := sdk.NewManualReader()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, r *http.Request) {
		var got metricdata.ResourceMetrics
		if err := reader.Collect(r.Context(), &got); err != nil { // what there is comes all the same
			failed(fmt.Errorf("metrics: %w", err))
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = writeMetrics(w, &got) // who asked is gone
	})
	m := &metricsServer{
		MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader)),
		url:           "http://" + l.Addr().String() + metricsPath,
		server:        &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute},
		ended:         make(chan error, 1),
	}
	go func() { m.ended <- m.server.Serve(l) }()
	return m, nil
}

// close ends the server, and waits for who is being answered until ctx ends.
func (m *metricsServer) close(ctx context.Context) error {
	err := m.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, m.server.Close())
	}
	if ended := <-m.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, m.MeterProvider.Shutdown(ctx))
}

// writeMetrics writes metrics in the order of their names.
func writeMetrics(to io.Writer, all *metricdata.ResourceMetrics) error {
	var ms []metricdata.Metrics
	for _, scope := range all.ScopeMetrics {
		ms = append(ms, scope.Metrics...)
	}
	slices.SortFunc(ms, func(a, b metricdata.Metrics) int { return strings.Compare(a.Name, b.Name) })
	w := bufio.NewWriter(to)
	for i := range ms {
		writeMetric(w, &ms[i])
	}
	return w.Flush()
}

func writeMetric(w *bufio.Writer, m *metricdata.Metrics) {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	head := func(kind string) {
		help := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(m.Description)
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind)
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind := "gauge"
		if data.IsMonotonic {
			name, kind = name+"_total", "counter"
		}
		head(kind)
		for _, p := range data.DataPoints {
			writeSample(w, name, p.Attributes, "", float64(p.Value))
		}
	case metricdata.Gauge[float64]:
		head("gauge")
		for _, p := range data.DataPoints {
			writeSample(w, name, p.Attributes, "", p.Value)
		}
	case metricdata.Histogram[float64]:
		head("histogram")
		for _, p := range data.DataPoints {
			writeHistogram(w, name, p.Attributes, p.Bounds, p.BucketCounts, p.Count, p.Sum)
		}
	case metricdata.Histogram[int64]:
		head("histogram")
		for _, p := range data.DataPoints {
			writeHistogram(w, name, p.Attributes, p.Bounds, p.BucketCounts, p.Count, float64(p.Sum))
		}
	}
}

func writeHistogram(w *bufio.Writer, name string, with attribute.Set, bounds []float64, counts []uint64, count uint64, sum float64) {
	n := uint64(0)
	for i, bound := range bounds {
		n += counts[i]
		writeSample(w, name+"_bucket", with, number(bound), float64(n))
	}
	writeSample(w, name+"_bucket", with, "+Inf", float64(count))
	writeSample(w, name+"_sum", with, "", sum)
	writeSample(w, name+"_count", with, "", float64(count))
}

// writeSample writes one line; le is the bucket's bound, "" for none.
func writeSample(w *bufio.Writer, name string, with attribute.Set, le string, value float64) {
	var labels []string
	for _, kv := range with.ToSlice() {
		labels = append(labels, strings.ReplaceAll(string(kv.Key), ".", "_")+"="+quoteLabel(kv.Value.String()))
	}
	if le != "" {
		labels = append(labels, "le="+quoteLabel(le))
	}
	w.WriteString(name)
	if len(labels) > 0 {
		w.WriteString("{" + strings.Join(labels, ",") + "}")
	}
	w.WriteString(" " + number(value) + "\n")
}

func quoteLabel(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd")) + `"`
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
