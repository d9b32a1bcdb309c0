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

// Receiver instruments r, which receives from subscription. Deliveries of the
// result are settled through it, or by their own methods; r itself refuses them.
func (t *Telemetry) Receiver(r broker.Receiver, subscription string) broker.Receiver {
	name := semconv.MessagingDestinationName(subscription)
	return &receiver{r,
		t.operation("receive", semconv.MessagingOperationTypeReceive, name),
		t.operation("settle", semconv.MessagingOperationTypeSettle, name)}
}

type receiver struct {
	broker.Receiver
	receive, settle operation
}

// handle is a delivery's handle by which its own methods reach the receiver that
// is instrumented.
type handle struct {
	receiver *receiver
	inner    broker.Handle
}

// Settle is part of broker.Handle.
func (h *handle) Settle(ctx context.Context, s []broker.Settlement) error {
	return h.receiver.Settle(ctx, s)
}

// As is part of broker.Handle.
func (h *handle) As(target any) bool { return h.inner != nil && h.inner.As(target) }

func (r *receiver) Receive(ctx context.Context, max int) ([]broker.Delivery, error) {
	t, start := r.receive.t, time.Now()
	ds, err := r.Receiver.Receive(ctx, max)
	if len(ds) == 0 && (err == nil || ctx.Err() != nil) {
		return ds, err // nothing came while the caller cared: no news
	}
	_, span := t.tracer.Start(ctx, r.receive.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start),
		trace.WithAttributes(r.receive.list...), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(ds))))
	defer span.End()
	r.receive.took(ctx, t.duration, start, err)
	fail(span, err)
	if len(ds) == 0 {
		return ds, err
	}
	t.consumed.Add(ctx, int64(len(ds)), metric.WithAttributeSet(r.receive.attrs))
	handles := make([]handle, len(ds))
	recording := span.IsRecording()
	for i := range ds {
		if sender := t.sender(&ds[i].Message); recording && sender.IsValid() {
			span.AddLink(trace.Link{SpanContext: sender})
		}
		handles[i] = handle{r, ds[i].Handle}
		ds[i].Handle = &handles[i]
	}
	return ds, err
}

func (r *receiver) Settle(ctx context.Context, s []broker.Settlement) error {
	if len(s) == 0 {
		return nil
	}
	t, start := r.settle.t, time.Now()
	ctx, span := t.tracer.Start(ctx, r.settle.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start),
		trace.WithAttributes(r.settle.list...), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(s))))
	defer span.End()
	err := r.settleInner(ctx, s)
	r.settle.took(ctx, t.duration, start, err)
	r.count(ctx, span, s)
	fail(span, err)
	return err
}

// settleInner hands the settlements on with the deliveries that the wrapped
// receiver knows. The callers' deliveries stay as they are: others may be settling
// copies of them.
func (r *receiver) settleInner(ctx context.Context, s []broker.Settlement) error {
	inner := make([]broker.Settlement, len(s))
	deliveries := make([]broker.Delivery, len(s))
	for i := range s {
		inner[i] = s[i]
		if s[i].Delivery == nil {
			continue
		}
		deliveries[i] = *s[i].Delivery
		if h, ours := deliveries[i].Handle.(*handle); ours && h.receiver == r {
			deliveries[i].Handle = h.inner
		}
		inner[i].Delivery = &deliveries[i]
	}
	err := r.Receiver.Settle(ctx, inner)
	for i := range s {
		s[i].Outcome = inner[i].Outcome
	}
	return err
}

const (
	actionKey = attribute.Key("onceline.action")
	stateKey  = attribute.Key("onceline.state")
)

// actions and states are the names in attributes, by their values.
var (
	actions = [...]string{"ack", "nack", "extend", "dead_letter"}
	states  = [...]string{"unknown", "confirmed", "sent", "pending", "lease_lost"}
)

func (r *receiver) count(ctx context.Context, span trace.Span, s []broker.Settlement) {
	var n [len(actions)][len(states)]int
	for i := range s {
		if a, st := int(s[i].Action), int(s[i].Outcome.State); a < len(actions) && st < len(states) {
			n[a][st]++
		}
	}
	var sums [len(states)]int
	for a := range n {
		for st, count := range n[a] {
			if count > 0 {
				sums[st] += count
				r.settle.t.settled.Add(ctx, int64(count), metric.WithAttributeSet(r.settle.attrs),
					metric.WithAttributes(actionKey.String(actions[a]), stateKey.String(states[st])))
			}
		}
	}
	for st, sum := range sums {
		if sum > 0 {
			span.SetAttributes(attribute.Int("onceline.outcomes."+states[st], sum))
		}
	}
}
