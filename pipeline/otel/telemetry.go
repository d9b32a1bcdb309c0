package otel

import (
	"context"
	"errors"
	"sync"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceline/onceline/pipeline"
)

const scope = "github.com/onceline/onceline/pipeline/otel"

// Option changes what [New] makes.
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
}

// WithTracerProvider says where spans go. The default is the global provider at the time
// of New.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider says where metrics go. The default is the global provider at the time
// of New.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// Stated is what [Telemetry.Watch] reads: every [pipeline.Pipeline] is one.
type Stated interface{ Stats() pipeline.Stats }

// Telemetry exports the counts of pipelines. It is safe for concurrent use.
type Telemetry struct {
	tracer       trace.Tracer
	registration metric.Registration

	mu    sync.Mutex
	names map[string]*watched
	next  int

	input, output, checkpoints, dropped, recovered, aborted metric.Int64ObservableCounter
	losses, lostMessages, restarts                          metric.Int64ObservableCounter
	rate, age                                               metric.Float64ObservableGauge
	duration, held                                          metric.Float64Histogram
	bytes                                                   metric.Int64Histogram
}

// watched are the pipelines of one name, one after another.
type watched struct {
	past pipeline.Stats // of those that are watched no more
	live map[int]Stated
	last time.Time // a checkpoint was complete, or the first Watch
}

// New makes a Telemetry. The error is one of a meter that can't make an instrument.
func New(opts ...Option) (*Telemetry, error) {
	o := options{tracers: otelapi.GetTracerProvider(), meters: otelapi.GetMeterProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	t := &Telemetry{names: map[string]*watched{}, tracer: o.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
	m := o.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	observed, err := t.make(m)
	if err != nil {
		return nil, err
	}
	t.registration, err = m.RegisterCallback(t.observe, observed...)
	return t, err
}

// Close ends the export. What was returned by the methods of t may still be called.
func (t *Telemetry) Close() error { return t.registration.Unregister() }

func (t *Telemetry) make(m metric.Meter) (observed []metric.Observable, err error) {
	var errs []error
	for _, c := range []struct {
		to               *metric.Int64ObservableCounter
		name, unit, what string
	}{
		{&t.losses, "pipeline.data_loss", "{loss}", "Outputs that a broker dropped after their checkpoint was recorded."},
		{&t.lostMessages, "pipeline.data_loss_messages", "{message}", "Messages of output that were lost."},
		{&t.restarts, "pipeline.restarts", "{restart}", "Begins of a pipeline after an error."},
		{&t.checkpoints, "pipeline.checkpoints", "{checkpoint}", "Checkpoints that are complete."},
		{&t.recovered, "pipeline.recovered", "{checkpoint}", "Prepared checkpoints of an earlier process, or an earlier begin, that were committed."},
		{&t.aborted, "pipeline.aborted", "{transaction}", "Outputs that were taken back, for a failure or by the broker."},
		{&t.input, "pipeline.input", "{message}", "Messages of input in complete checkpoints."},
		{&t.output, "pipeline.output", "{message}", "Messages of output that complete checkpoints made visible."},
		{&t.dropped, "pipeline.dropped", "{message}", "Messages that came again and were processed already."},
	} {
		*c.to, err = m.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.what))
		observed, errs = append(observed, *c.to), append(errs, err)
	}
	// Without a unit: an exporter would make a ratio of the name.
	t.rate, err = m.Float64ObservableGauge(pipeline.MetricAbortRate, metric.WithDescription("Share of the sink's transactions that were aborted, from 0 to 1."))
	errs = append(errs, err)
	t.age, err = m.Float64ObservableGauge("pipeline.checkpoint.age", metric.WithUnit("s"), metric.WithDescription("Time since the last checkpoint was complete."))
	errs = append(errs, err)
	short := metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900)
	t.duration, err = m.Float64Histogram("pipeline.checkpoint.duration", metric.WithUnit("s"), metric.WithDescription("Duration of a checkpoint's steps."), short)
	errs = append(errs, err)
	t.held, err = m.Float64Histogram("pipeline.output.held", metric.WithUnit("s"), metric.WithDescription("How long the oldest output of a checkpoint had waited when it became visible."), short)
	errs = append(errs, err)
	t.bytes, err = m.Int64Histogram("pipeline.checkpoint.bytes", metric.WithUnit("By"), metric.WithDescription("Size of a checkpoint's record."),
		metric.WithExplicitBucketBoundaries(1<<10, 1<<13, 1<<16, 1<<18, 1<<20, 1<<22, 1<<24, 1<<26))
	return append(observed, t.rate, t.age), errors.Join(append(errs, err)...)
}

// of returns what is watched under a name; mu is held.
func (t *Telemetry) of(name string) *watched {
	w := t.names[name]
	if w == nil {
		w = &watched{live: map[int]Stated{}}
		t.names[name] = w
	}
	return w
}

// nameOf is the attribute that all has.
func nameOf(name string) attribute.KeyValue { return attribute.String("onceline.pipeline", name) }

// Watch exports the counts of a pipeline; stop ends that, and what was counted stays: a
// process that makes another pipeline of the name counts on.
func (t *Telemetry) Watch(name string, p Stated) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, id := t.of(name), t.next
	t.next++
	w.live[id] = p
	if w.last.IsZero() {
		w.last = time.Now()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if w.live[id] != nil {
			delete(w.live, id)
			w.past = w.past.Add(p.Stats())
		}
	}
}

// Checkpointed makes what Options.Checkpointed of a pipeline of the name is to be.
func (t *Telemetry) Checkpointed(name string) func(pipeline.Info) {
	attr := nameOf(name)
	point := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attr))}
	return func(i pipeline.Info) {
		now := time.Now()
		t.mu.Lock()
		t.of(name).last = now
		t.mu.Unlock()
		ctx, span := t.tracer.Start(context.Background(), "checkpoint "+name, trace.WithTimestamp(now.Add(-i.Took)), trace.WithNewRoot(), trace.WithAttributes(attr,
			attribute.Int64("onceline.checkpoint.number", i.Number), attribute.Int64("onceline.checkpoint.input", int64(i.Input)),
			attribute.Int64("onceline.checkpoint.output", int64(i.Output)), attribute.Int("onceline.checkpoint.bytes", i.Bytes),
			attribute.Float64("onceline.checkpoint.held", i.Held.Seconds())))
		t.duration.Record(ctx, i.Took.Seconds(), point...)
		t.bytes.Record(ctx, int64(i.Bytes), point...)
		if i.Output > 0 {
			t.held.Record(ctx, i.Held.Seconds(), point...)
		}
		span.End(trace.WithTimestamp(now))
	}
}

// observe tells a reader the counts.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, w := range t.names {
		s := w.past
		for _, p := range w.live {
			s = s.Add(p.Stats())
		}
		attr := metric.WithAttributeSet(attribute.NewSet(nameOf(name)))
		for _, c := range []struct {
			to metric.Int64ObservableCounter
			n  uint64
		}{{t.losses, s.Losses}, {t.lostMessages, s.LostMessages}, {t.restarts, s.Restarts}, {t.checkpoints, s.Checkpoints}, {t.recovered, s.Recovered},
			{t.aborted, s.Aborted}, {t.input, s.Input}, {t.output, s.Output}, {t.dropped, s.Dropped}} {
			o.ObserveInt64(c.to, int64(c.n), attr)
		}
		o.ObserveFloat64(t.rate, s.AbortRate(), attr)
		if len(w.live) > 0 { // nobody waits for the next one of a pipeline that has ended
			o.ObserveFloat64(t.age, time.Since(w.last).Seconds(), attr)
		}
	}
	return nil
}
