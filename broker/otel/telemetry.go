package otel

import (
	"context"
	"errors"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceline/onceline/broker"
)

const scope = "github.com/onceline/onceline/broker/otel"

// systems are the conventions' names for the brokers that have one.
var systems = map[string]string{
	"sqs":        semconv.MessagingSystemAWSSQS.Value.AsString(),
	"pubsub":     semconv.MessagingSystemGCPPubSub.Value.AsString(),
	"servicebus": semconv.MessagingSystemServiceBus.Value.AsString(),
	"rabbitmq":   semconv.MessagingSystemRabbitMQ.Value.AsString(),
	"kafka":      semconv.MessagingSystemKafka.Value.AsString(),
}

// Option changes what [New] makes.
type Option func(*options)

type options struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider says where spans go. The default is the global provider at
// the time of New.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider says where metrics go. The default is the global provider at
// the time of New.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithPropagator says how a context is written into headers. The default is the
// global propagator at the time of New, or W3C trace context and baggage where the
// program has set none.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(o *options) { o.propagator = p }
}

// Telemetry instruments connections of one broker. It is safe for concurrent use.
type Telemetry struct {
	system     attribute.KeyValue
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator

	duration metric.Float64Histogram
	process  metric.Float64Histogram
	sent     metric.Int64Counter
	consumed metric.Int64Counter
	settled  metric.Int64Counter
}

// New makes a Telemetry for the broker of that name, as in a URL's scheme:
// "kafka", "sqs". It becomes messaging.system, by the conventions' name where they
// have one (aws_sqs, gcp_pubsub). The error is one of a meter that can't make an
// instrument.
func New(system string, opts ...Option) (*Telemetry, error) {
	o := options{tracers: otelapi.GetTracerProvider(), meters: otelapi.GetMeterProvider(), propagator: otelapi.GetTextMapPropagator()}
	if len(o.propagator.Fields()) == 0 {
		o.propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	for _, opt := range opts {
		opt(&o)
	}
	if name, known := systems[system]; known {
		system = name
	}
	t := &Telemetry{system: semconv.MessagingSystemKey.String(system), propagator: o.propagator,
		tracer: o.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
	m := o.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	duration, err1 := messagingconv.NewClientOperationDuration(m)
	process, err2 := messagingconv.NewProcessDuration(m)
	sent, err3 := messagingconv.NewClientSentMessages(m)
	consumed, err4 := messagingconv.NewClientConsumedMessages(m)
	settled, err5 := m.Int64Counter("onceline.settled.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Number of settlements, by action and by what the broker said of them."))
	t.duration, t.process, t.sent, t.consumed, t.settled = duration.Inst(), process.Inst(), sent.Inst(), consumed.Inst(), settled
	return t, errors.Join(err1, err2, err3, err4, err5)
}

// operation is what spans and points of one kind of call on one entity share.
type operation struct {
	t     *Telemetry
	name  string // of the span
	attrs attribute.Set
	list  []attribute.KeyValue // the same, as spans take it
}

func (t *Telemetry) operation(name string, kind attribute.KeyValue, entity ...attribute.KeyValue) operation {
	list := append([]attribute.KeyValue{t.system, semconv.MessagingOperationName(name), kind}, entity...)
	return operation{t, name + " " + entity[0].Value.AsString(), attribute.NewSet(list...), list}
}

// took records how long a call took.
func (o *operation) took(ctx context.Context, h metric.Float64Histogram, start time.Time, err error) {
	with := metric.WithAttributeSet(o.attrs)
	if err != nil {
		h.Record(ctx, time.Since(start).Seconds(), with, metric.WithAttributes(semconv.ErrorTypeKey.String(errorType(err))))
		return
	}
	h.Record(ctx, time.Since(start).Seconds(), with)
}

// fail marks a span as failed. Messages of errors may hold what users wrote, so
// the status carries the kind alone, and the error its text.
func fail(s trace.Span, err error) {
	if err == nil {
		return
	}
	kind := errorType(err)
	s.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.SetStatus(codes.Error, kind)
	s.RecordError(err)
}

// kinds are the errors of package broker, by names of low cardinality.
var kinds = []struct {
	err  error
	name string
}{
	{broker.ErrUnknownOutcome, "unknown_outcome"}, {broker.ErrLeaseLost, "lease_lost"}, {broker.ErrWindowExceeded, "window_exceeded"},
	{broker.ErrTooLarge, "too_large"}, {broker.ErrUnroutable, "unroutable"}, {broker.ErrNotFound, "not_found"},
	{broker.ErrUnauthorized, "unauthorized"}, {broker.ErrBusy, "busy"}, {broker.ErrConflict, "conflict"},
	{broker.ErrUnsupported, "unsupported"}, {broker.ErrClosed, "closed"}, {broker.ErrUnavailable, "unavailable"},
	{broker.ErrRefused, "refused"}, {broker.ErrInvalid, "invalid"},
	{context.Canceled, "cancelled"}, {context.DeadlineExceeded, "timeout"},
}

// errorType is the value of error.type.
func errorType(err error) string {
	for i := range kinds {
		if errors.Is(err, kinds[i].err) {
			return kinds[i].name
		}
	}
	return "_OTHER"
}
