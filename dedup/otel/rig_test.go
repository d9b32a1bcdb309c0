package otel_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/onceline/onceline/dedup/otel"
	"github.com/onceline/onceline/dedup/sqlite"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a Telemetry and what it exports.
type rig struct {
	*otel.Telemetry
	t      *testing.T
	reader *sdkmetric.ManualReader
	errs   []error // of stores
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, reader: sdkmetric.NewManualReader()}
	var err error
	r.Telemetry, err = otel.New(otel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))),
		otel.WithErrorHook(func(err error) { r.errs = append(r.errs, err) }))
	must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// series is one exported number: a counter's or gauge's value, or a histogram's count.
type series struct {
	name, unit, kind string
	labels           map[string]string
	value            float64
	sum              float64 // of a histogram
}

// collect returns all series that are exported now.
func (r *rig) collect() (all []series) {
	r.t.Helper()
	var data metricdata.ResourceMetrics
	must(r.t, r.reader.Collect(context.Background(), &data))
	for _, s := range data.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Description == "" {
				r.t.Errorf("%s has no description", m.Name)
			}
			all = append(all, seriesOf(m)...)
		}
	}
	return all
}

func seriesOf(m metricdata.Metrics) (all []series) {
	labels := func(kvs []attribute.KeyValue) map[string]string {
		ls := map[string]string{}
		for _, kv := range kvs {
			ls[string(kv.Key)] = kv.Value.String()
		}
		return ls
	}
	add := func(kind string, ls map[string]string, value, sum float64) {
		all = append(all, series{m.Name, m.Unit, kind, ls, value, sum})
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind := "updown"
		if d.IsMonotonic {
			kind = "counter"
		}
		for _, p := range d.DataPoints {
			add(kind, labels(p.Attributes.ToSlice()), float64(p.Value), 0)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			add("gauge", labels(p.Attributes.ToSlice()), p.Value, 0)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add("histogram", labels(p.Attributes.ToSlice()), float64(p.Count), p.Sum)
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			add("histogram", labels(p.Attributes.ToSlice()), float64(p.Count), float64(p.Sum))
		}
	}
	return all
}

// value is that of the one series of the name that has all of the labels, "key=value".
func (r *rig) value(name string, labels ...string) float64 {
	r.t.Helper()
	s := r.series(name, labels...)
	if s == nil {
		r.t.Errorf("no %s %v", name, labels)
		return -1
	}
	return s.value
}

func (r *rig) series(name string, labels ...string) *series {
	r.t.Helper()
	var found []series
	for _, s := range r.collect() {
		if s.name == name && !slices.ContainsFunc(labels, func(l string) bool {
			k, v, _ := strings.Cut(l, "=")
			return s.labels[k] != v
		}) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
		return &found[0]
	}
	r.t.Fatalf("%d series %s %v: %+v", len(found), name, labels, found)
	return nil
}

// want compares values, by name and labels with spaces between.
func (r *rig) want(values map[string]float64) {
	r.t.Helper()
	for what, want := range values {
		parts := strings.Fields(what)
		if got := r.value(parts[0], parts[1:]...); got != want {
			r.t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
}

// openStore returns a store with an effects table.
func openStore(t *testing.T, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, s.Transact(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("CREATE TABLE effect (key TEXT)")
		return err
	}))
	return s
}
