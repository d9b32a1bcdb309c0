package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceline/onceline/broker"
)

// Publisher instruments p, which publishes to topic. The result behaves like p,
// and what wraps p in turn ([broker.Retry], [broker.NewBatcher]) may wrap the
// result: then each attempt has a span, and each batch one.
func (t *Telemetry) Publisher(p broker.Publisher, topic string) broker.Publisher {
	return &publisher{p, t.operation("send", semconv.MessagingOperationTypeSend, semconv.MessagingDestinationName(topic))}
}

type publisher struct {
	broker.Publisher
	send operation
}

// Now is the clock of what is wrapped, which other wrappers ask for.
func (p *publisher) Now() time.Time {
	if c, ok := p.Publisher.(interface{ Now() time.Time }); ok {
		return c.Now()
	}
	return time.Now()
}

func (p *publisher) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	return p.publish(ctx, p.Publisher.Publish, msgs)
}

// PublishGiven is that of broker.GivenPublisher.
func (p *publisher) PublishGiven(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	if g, ok := p.Publisher.(broker.GivenPublisher); ok {
		return p.publish(ctx, g.PublishGiven, msgs)
	}
	return p.Publish(ctx, msgs...)
}

func (p *publisher) publish(ctx context.Context, send func(context.Context, ...broker.Message) ([]broker.Receipt, error), msgs []broker.Message) ([]broker.Receipt, error) {
	if len(msgs) == 0 {
		return send(ctx)
	}
	t, start := p.send.t, time.Now()
	ctx, span := t.tracer.Start(ctx, p.send.name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(start),
		trace.WithAttributes(p.send.list...), trace.WithAttributes(about(msgs)...))
	defer span.End()
	carrying := t.inject(ctx, msgs)
	receipts, err := send(ctx, carrying...)
	for i := range msgs {
		msgs[i].Time = carrying[i].Time // set by the first attempt, for the caller's retry
	}
	p.send.took(ctx, t.duration, start, err)
	p.count(ctx, span, receipts)
	fail(span, err)
	return receipts, err
}

// about is what the conventions say of the messages of a call.
func about(msgs []broker.Message) []attribute.KeyValue {
	if len(msgs) > 1 {
		return []attribute.KeyValue{semconv.MessagingBatchMessageCount(len(msgs))}
	}
	return []attribute.KeyValue{semconv.MessagingMessageID(msgs[0].ID), semconv.MessagingMessageBodySize(len(msgs[0].Body))}
}

const verdictKey = attribute.Key("onceline.verdict")

// verdicts are the names of the verdicts in attributes, by their values.
var verdicts = [...]string{"unknown", "stored", "duplicate", "accepted", "refused"}

func (p *publisher) count(ctx context.Context, span trace.Span, receipts []broker.Receipt) {
	var n [len(verdicts)]int
	for i := range receipts {
		if v := int(receipts[i].Verdict); v < len(n) {
			n[v]++
		}
	}
	for v, count := range n {
		if count > 0 {
			p.send.t.sent.Add(ctx, int64(count), metric.WithAttributeSet(p.send.attrs), metric.WithAttributes(verdictKey.String(verdicts[v])))
			span.SetAttributes(attribute.Int("onceline.receipts."+verdicts[v], count))
		}
	}
}
