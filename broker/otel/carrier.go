package otel

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceline/onceline/broker"
)

// carrier lets a propagator read and write headers. Names are compared in any
// case, as those of HTTP are, where the fields come from.
type carrier struct{ headers *broker.Headers }

var _ propagation.TextMapCarrier = carrier{}

// Get returns the first value of a field.
func (c carrier) Get(key string) string {
	for _, h := range *c.headers {
		if strings.EqualFold(h.Key, key) {
			return h.Value
		}
	}
	return ""
}

// Set replaces all values of a field by one.
func (c carrier) Set(key, value string) {
	*c.headers = slices.DeleteFunc(*c.headers, func(h broker.Header) bool { return strings.EqualFold(h.Key, key) })
	*c.headers = append(*c.headers, broker.Header{Key: key, Value: value})
}

// Keys lists the names.
func (c carrier) Keys() []string {
	names := make([]string, len(*c.headers))
	for i, h := range *c.headers {
		names[i] = h.Key
	}
	return names
}

// Extract returns ctx with the trace context and the baggage that m carries. It is
// for those who handle messages without [Telemetry.Handler].
func (t *Telemetry) Extract(ctx context.Context, m *broker.Message) context.Context {
	return t.propagator.Extract(ctx, carrier{&m.Headers})
}

// sender returns the span context that m carries; it isn't valid where m carries
// none.
func (t *Telemetry) sender(m *broker.Message) trace.SpanContext {
	if len(m.Headers) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.Extract(context.Background(), m))
}

// inject returns copies of msgs that carry ctx, or msgs where there is nothing to
// carry. The callers' messages and headers stay as they are: a message that is
// published again carries the context of that call.
func (t *Telemetry) inject(ctx context.Context, msgs []broker.Message) []broker.Message {
	var fields broker.Headers
	t.propagator.Inject(ctx, carrier{&fields})
	if len(fields) == 0 {
		return msgs
	}
	total := 0
	for i := range msgs {
		total += len(msgs[i].Headers) + len(fields)
	}
	slab := make(broker.Headers, 0, total)
	out := slices.Clone(msgs)
	for i := range out {
		begin := len(slab)
		for _, h := range msgs[i].Headers {
			if !names(fields, h.Key) {
				slab = append(slab, h)
			}
		}
		slab = append(slab, fields...)
		out[i].Headers = slab[begin:len(slab):len(slab)]
	}
	return out
}

func names(fields broker.Headers, key string) bool {
	for i := range fields {
		if strings.EqualFold(fields[i].Key, key) {
			return true
		}
	}
	return false
}
