package otel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceline/onceline/broker"
)

// Handler instruments h, which handles messages of subscription: its context
// carries the span of its work, child of the span that sent the message, and the
// sender's baggage. A panic is recorded and goes on its way.
func (t *Telemetry) Handler(subscription string, h broker.Handler) broker.Handler {
	process := t.operation("process", semconv.MessagingOperationTypeProcess, semconv.MessagingDestinationName(subscription))
	return func(ctx context.Context, d *broker.Delivery) (err error) {
		start := time.Now()
		sender := t.sender(&d.Message)
		ctx = t.Extract(ctx, &d.Message)
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(start), trace.WithAttributes(process.list...),
			trace.WithAttributes(semconv.MessagingMessageID(d.ID), semconv.MessagingMessageBodySize(len(d.Body)))}
		if d.Attempt.Trust != broker.None {
			options = append(options, trace.WithAttributes(attribute.Int("onceline.attempt", d.Attempt.Number)))
		}
		if sender.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: sender}))
		}
		ctx, span := t.tracer.Start(ctx, process.name, options...)
		returned := false
		defer func() {
			failure := err
			if !returned {
				failure = errPanicked
			}
			process.took(ctx, t.process, start, failure)
			fail(span, failure)
			span.End()
		}()
		err = h(ctx, d)
		returned = true
		return err
	}
}

var errPanicked = errors.New("the handler panicked")
