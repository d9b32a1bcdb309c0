package otel_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	_ "github.com/onceline/onceline/adapters/kafka"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/pipeline"
	"github.com/onceline/onceline/pipeline/otel"
)

// rig is a Telemetry and what it exports.
type rig struct {
	*otel.Telemetry
	t      *testing.T
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	var err error
	r.Telemetry, err = otel.New(otel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))),
		otel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))))
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// values are the exported numbers, by "name pipeline": of a histogram its sum, and by
// "name# pipeline" how many points.
func (r *rig) values() map[string]float64 {
	r.t.Helper()
	var data metricdata.ResourceMetrics
	must(r.t, r.reader.Collect(context.Background(), &data))
	all := map[string]float64{}
	add := func(name string, set attribute.Set, n float64) {
		p, _ := set.Value("onceline.pipeline")
		all[name+" "+p.AsString()] = n
	}
	for _, s := range data.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Description == "" {
				r.t.Errorf("%s has no description", m.Name)
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				if !d.IsMonotonic {
					r.t.Errorf("%s is no counter", m.Name)
				}
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, p.Sum)
					add(m.Name+"#", p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, float64(p.Sum))
					add(m.Name+"#", p.Attributes, float64(p.Count))
				}
			default:
				r.t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return all
}

func (r *rig) want(want map[string]float64) {
	r.t.Helper()
	got := r.values()
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			r.t.Errorf("%s is %v (%v), want %v", name, v, ok, n)
		}
	}
}

type stated pipeline.Stats

func (s *stated) Stats() pipeline.Stats { return pipeline.Stats(*s) }

// TestWatch: each count has its name, what one pipeline counted stays when the next one of
// its name begins, and the age grows until a checkpoint is complete.
func TestWatch(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		first := &stated{Input: 100, Output: 50, Checkpoints: 6, Dropped: 7, Recovered: 2, Aborted: 2, Losses: 1, LostMessages: 9, Restarts: 4}
		stop := r.Watch("billing", first)
		defer r.Watch("other", &stated{})()
		r.want(map[string]float64{"pipeline.input billing": 100, "pipeline.output billing": 50, "pipeline.checkpoints billing": 6, "pipeline.dropped billing": 7, "pipeline.recovered billing": 2,
			"pipeline.aborted billing": 2, "pipeline.data_loss billing": 1, "pipeline.data_loss_messages billing": 9, "pipeline.restarts billing": 4, "kafka_transaction_abort_rate billing": 0.2,
			"pipeline.checkpoint.age billing": 0, "pipeline.data_loss other": 0, "kafka_transaction_abort_rate other": 0})
		time.Sleep(time.Minute) // of the bubble
		done := r.Checkpointed("billing")
		r.want(map[string]float64{"pipeline.checkpoint.age billing": 60})
		began := time.Now().Add(-2 * time.Second)
		done(pipeline.Info{Number: 7, Input: 10, Output: 5, Bytes: 4000, Took: 2 * time.Second, Held: 12 * time.Second})
		done(pipeline.Info{Number: 8, Bytes: 1000, Took: time.Second, Held: time.Hour}) // nothing was held
		r.want(map[string]float64{"pipeline.checkpoint.age billing": 0, "pipeline.checkpoint.age other": 60,
			"pipeline.checkpoint.duration billing": 3, "pipeline.checkpoint.duration# billing": 2, "pipeline.checkpoint.bytes billing": 5000, "pipeline.checkpoint.bytes# billing": 2,
			"pipeline.output.held billing": 12, "pipeline.output.held# billing": 1})
		spans := r.spans.Ended()
		if len(spans) != 2 || spans[0].Name() != "checkpoint billing" || !spans[0].StartTime().Equal(began) || spans[0].EndTime().Sub(began) != 2*time.Second || spans[0].Parent().IsValid() {
			t.Fatalf("%+v", spans)
		}
		has := attribute.NewSet(spans[0].Attributes()...)
		for key, want := range map[attribute.Key]any{"onceline.pipeline": "billing", "onceline.checkpoint.number": int64(7), "onceline.checkpoint.input": int64(10), "onceline.checkpoint.output": int64(5),
			"onceline.checkpoint.bytes": int64(4000), "onceline.checkpoint.held": 12.0} {
			if v, _ := has.Value(key); v.AsInterface() != want {
				t.Errorf("%s is %v, want %v", key, v.AsInterface(), want)
			}
		}
		stop()
		stop()
		if _, ok := r.values()["pipeline.checkpoint.age billing"]; ok {
			t.Error("the age of a pipeline that nobody watches")
		}
		first.Input = 1000 // it isn't asked any more
		defer r.Watch("billing", &stated{Input: 1, Aborted: 10})()
		r.want(map[string]float64{"pipeline.input billing": 101, "pipeline.aborted billing": 12, "kafka_transaction_abort_rate billing": 0.6})
	})
}

// TestPipeline: a pipeline that fails once, takes back what it had written, and goes on.
func TestPipeline(t *testing.T) {
	r := newRig(t)
	k, err := localstack.StartKafka(t.Context())
	must(t, err)
	defer func() { must(t, k.Close(context.Background())) }()
	conn, err := broker.Open(t.Context(), k.URL())
	must(t, err)
	defer func() { must(t, conn.Close(context.Background())) }()
	for _, topic := range []string{"in", "out"} {
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: topic, Partitions: 1}))
	}
	pub, err := conn.OpenPublisher(t.Context(), "in")
	must(t, err)
	defer func() { must(t, pub.Close(context.Background())) }()
	_, err = pub.Publish(t.Context(), broker.Message{ID: "1"})
	must(t, err)
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
	must(t, err)
	defer store.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	all, more, failed := 0, false, false
	checkpointed := r.Checkpointed("billing")
	p, err := pipeline.New(pipeline.Config[*sql.Tx]{Name: "billing", Store: store, Sources: []pipeline.Source{pipeline.From(conn, "in/billing")},
		Operator: pipeline.Operator{Process: func(_ context.Context, in *pipeline.Input, out *pipeline.Out) error {
			out.Emit("out", in.Message)
			if !more { // they come behind what is written for this one
				more = true
				_, err := pub.Publish(t.Context(), broker.Message{ID: "2"}, broker.Message{ID: "3"})
				return err
			}
			if in.ID == "2" && !failed {
				failed = true
				return errors.New("broken")
			}
			return nil
		}},
		Sink: pipeline.Transactional[*sql.Tx](conn, "billing", pipeline.TransactionalOptions{}),
		Options: pipeline.Options{Interval: 5 * time.Minute, MaxInput: 3, ErrorHook: func(error) {}, Backoff: broker.Backoff{Min: time.Millisecond, Max: time.Millisecond},
			Checkpointed: func(i pipeline.Info) {
				checkpointed(i)
				if all += int(i.Input); all == 3 {
					stop()
				}
			}}})
	must(t, err)
	defer r.Watch("billing", p)()
	must(t, p.Run(ctx))
	r.want(map[string]float64{"pipeline.input billing": 3, "pipeline.output billing": 3, "pipeline.checkpoints billing": 1, "pipeline.aborted billing": 1, "pipeline.restarts billing": 1,
		"pipeline.data_loss billing": 0, "kafka_transaction_abort_rate billing": 0.5, "pipeline.checkpoint.duration# billing": 1, "pipeline.output.held# billing": 1})
	if spans := r.spans.Ended(); len(spans) != 1 || spans[0].EndTime().Before(spans[0].StartTime()) {
		t.Errorf("%d spans", len(spans))
	}
}

// TestNames: the package's comment lists all that is exported, and the names are those of
// Options.Metric as an exporter for Prometheus writes them.
func TestNames(t *testing.T) {
	r := newRig(t)
	defer r.Watch("a", &stated{})()
	r.Checkpointed("a")(pipeline.Info{Output: 1})
	comment, err := os.ReadFile("doc.go")
	must(t, err)
	exported := map[string]bool{}
	var data metricdata.ResourceMetrics
	must(t, r.reader.Collect(t.Context(), &data))
	for _, m := range data.ScopeMetrics[0].Metrics {
		if !strings.Contains(string(comment), "//	"+m.Name+" ") {
			t.Errorf("the package's comment doesn't list %s", m.Name)
		}
		name := strings.ReplaceAll(m.Name, ".", "_")
		if _, counter := m.Data.(metricdata.Sum[int64]); counter {
			name += "_total"
		}
		if m.Unit == "s" {
			name += "_seconds"
		}
		exported[name] = true
	}
	for _, name := range []string{pipeline.MetricAbortRate, pipeline.MetricLosses, pipeline.MetricLostMessages, pipeline.MetricRestarts, pipeline.MetricCheckpointSeconds, pipeline.MetricCheckpointBytes, pipeline.MetricHeldSeconds} {
		if !exported[name] {
			t.Errorf("%s isn't exported", name)
		}
	}
}
