package otel_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/otel"
	"github.com/onceline/onceline/internal/bubbletest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

const (
	topic        = "orders"
	subscription = "orders/billing"
)

// rig is an instrumented memory broker and what was recorded of it.
type rig struct {
	t         *testing.T
	broker    *memory.Broker
	telemetry *otel.Telemetry
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
	metrics   *sdkmetric.ManualReader
	conn      broker.Conn
	pub       broker.Publisher
	rcv       broker.Receiver
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, broker: memory.New(), spans: tracetest.NewSpanRecorder(), metrics: sdkmetric.NewManualReader()}
	r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	var err error
	r.telemetry, err = otel.New("sqs", otel.WithTracerProvider(r.tracers),
		otel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.metrics))))
	must(t, err)
	r.conn = r.telemetry.Conn(r.broker.Conn())
	must(t, r.conn.Ensure(t.Context(), broker.Entity{Topic: topic, Subscription: subscription, Lease: time.Minute}))
	r.pub, err = r.conn.OpenPublisher(t.Context(), topic)
	must(t, err)
	r.rcv, err = r.conn.OpenReceiver(t.Context(), subscription)
	must(t, err)
	t.Cleanup(func() {
		if err := r.conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
		r.broker.Close()
	})
	return r
}

// span returns the only span of that name.
func (r *rig) span(name string) sdktrace.ReadOnlySpan {
	r.t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%d spans named %q", len(found), name)
	}
	return found[0]
}

func has(t *testing.T, s sdktrace.ReadOnlySpan, want ...attribute.KeyValue) {
	t.Helper()
	for _, kv := range want {
		if !slices.Contains(s.Attributes(), kv) {
			t.Errorf("%s lacks %s=%s: %v", s.Name(), kv.Key, kv.Value.String(), s.Attributes())
		}
	}
}

// sum is the sum of a counter's points that have all of the attributes.
func (r *rig) sum(name string, with ...attribute.KeyValue) (n int64) {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	must(r.t, r.metrics.Collect(r.t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if all := p.Attributes.ToSlice(); contains(all, with) {
						n += p.Value
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if all := p.Attributes.ToSlice(); contains(all, with) {
						n += int64(p.Count)
					}
				}
			}
		}
	}
	return n
}

func contains(all, want []attribute.KeyValue) bool {
	for _, kv := range want {
		if !slices.Contains(all, kv) {
			return false
		}
	}
	return true
}

func (r *rig) receive(max int) []broker.Delivery {
	r.t.Helper()
	ds, err := r.rcv.Receive(r.t.Context(), max)
	must(r.t, err)
	return ds
}

func TestContextTravels(t *testing.T) {
	r := newRig(t)
	member, err := baggage.NewMember("tenant", "blue")
	must(t, err)
	bag, err := baggage.New(member)
	must(t, err)
	ctx, parent := r.tracers.Tracer("test").Start(baggage.ContextWithBaggage(t.Context(), bag), "request")
	// A message that is handed on carries the old context in any case: replaced.
	headers := broker.Headers{{Key: "a", Value: "1"}, {Key: "TraceParent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {Key: "a", Value: "2"}}
	msgs := []broker.Message{{ID: "1", Body: []byte("body"), Headers: headers}}
	_, err = r.pub.Publish(ctx, msgs...)
	must(t, err)
	parent.End()
	if len(msgs[0].Headers) != 3 || msgs[0].Time.IsZero() {
		t.Errorf("the caller's message has become %+v", msgs[0])
	}

	ds := r.receive(1)
	if got := ds[0].Headers.Values("a"); !slices.Equal(got, []string{"1", "2"}) || ds[0].Headers.Get("TraceParent") != "" {
		t.Errorf("headers %v", ds[0].Headers)
	}
	handled := false
	h := r.telemetry.Handler(subscription, func(ctx context.Context, _ *broker.Delivery) error {
		handled = baggage.FromContext(ctx).Member("tenant").Value() == "blue" && trace.SpanFromContext(ctx).SpanContext().IsValid()
		return nil
	})
	must(t, h(t.Context(), &ds[0]))
	if !handled {
		t.Error("the handler's context has no span, or not the sender's baggage")
	}
	_, err = ds[0].Ack(t.Context())
	must(t, err)

	send, process, receive := r.span("send orders"), r.span("process "+subscription), r.span("receive "+subscription)
	if send.SpanKind() != trace.SpanKindProducer || send.Parent().SpanID() != parent.SpanContext().SpanID() {
		t.Errorf("send: kind %s, parent %s", send.SpanKind(), send.Parent().SpanID())
	}
	if process.SpanKind() != trace.SpanKindConsumer || process.Parent().SpanID() != send.SpanContext().SpanID() || process.SpanContext().TraceID() != parent.SpanContext().TraceID() {
		t.Errorf("process: kind %s, parent %s", process.SpanKind(), process.Parent().SpanID())
	}
	if links := receive.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != send.SpanContext().SpanID() {
		t.Errorf("receive: links %v", links)
	}
	has(t, send, attribute.String("messaging.system", "aws_sqs"), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", topic), attribute.String("messaging.message.id", "1"),
		attribute.Int("messaging.message.body.size", 4), attribute.Int("onceline.receipts.stored", 1))
	has(t, process, attribute.Int("onceline.attempt", 1), attribute.String("messaging.operation.type", "process"))
	has(t, r.span("settle "+subscription), attribute.Int("onceline.outcomes.confirmed", 1))
}

func TestAnswersAreCounted(t *testing.T) {
	r := newRig(t)
	_, err := r.pub.Publish(t.Context(), broker.Message{ID: "1"}, broker.Message{ID: "2"}, broker.Message{ID: "1"}, broker.Message{})
	if !errors.Is(err, broker.ErrInvalid) {
		t.Fatalf("an empty ID: %v", err)
	}
	for verdict, want := range map[string]int64{"stored": 2, "duplicate": 1, "refused": 1, "unknown": 0} {
		if got := r.sum("messaging.client.sent.messages", attribute.String("onceline.verdict", verdict)); got != want {
			t.Errorf("%d %s, want %d", got, verdict, want)
		}
	}
	send := r.span("send orders")
	has(t, send, attribute.Int("messaging.batch.message_count", 4), attribute.Int("onceline.receipts.duplicate", 1), attribute.String("error.type", "invalid"))
	if send.Status().Code != codes.Error {
		t.Errorf("status %v", send.Status())
	}
	if n := r.sum("messaging.client.operation.duration", attribute.String("messaging.operation.name", "send"), attribute.String("error.type", "invalid")); n != 1 {
		t.Errorf("%d durations of failed sends", n)
	}

	ds := r.receive(10)
	if len(ds) != 2 {
		t.Fatalf("%d deliveries", len(ds))
	}
	if n := r.sum("messaging.client.consumed.messages"); n != 2 {
		t.Errorf("%d consumed", n)
	}
	// By the receiver, by the delivery's own method, and a copy of it.
	copied := ds[1]
	s := []broker.Settlement{{Delivery: &ds[0], Action: broker.Nack, Delay: time.Hour}, {Delivery: &copied}}
	must(t, r.rcv.Settle(t.Context(), s))
	if s[0].Outcome.State != broker.Confirmed || s[1].Outcome.State != broker.Confirmed || s[0].Delivery != &ds[0] {
		t.Errorf("outcomes %+v", s)
	}
	if _, err := ds[1].Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("nack after ack: %v", err)
	}
	for action, want := range map[string]int64{"ack": 1, "nack": 2} {
		if got := r.sum("onceline.settled.messages", attribute.String("onceline.action", action), attribute.String("onceline.state", "confirmed")); got != want {
			t.Errorf("%d %s, want %d", got, action, want)
		}
	}
}

func TestQuietReceiveIsNoNews(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ds, err := r.rcv.Receive(ctx, 1); len(ds) > 0 || err == nil {
			t.Fatalf("%v, %v", ds, err)
		}
		if n := len(r.spans.Ended()); n != 0 {
			t.Errorf("%d spans", n)
		}
	})
}

func TestHandlerFailures(t *testing.T) {
	r := newRig(t)
	for name, h := range map[string]broker.Handler{
		"error": func(context.Context, *broker.Delivery) error { return errors.New("no") },
		"panic": func(context.Context, *broker.Delivery) error { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.spans.Ended())
			func() {
				defer func() {
					if p := recover(); (p != nil) != (name == "panic") {
						t.Errorf("recovered %v", p)
					}
				}()
				if err := r.telemetry.Handler(subscription, h)(t.Context(), &broker.Delivery{}); err == nil {
					t.Error("the error is gone")
				}
			}()
			ended := r.spans.Ended()
			if len(ended) != before+1 || ended[before].Status().Code != codes.Error {
				t.Errorf("%d spans more", len(ended)-before)
			}
		})
	}
}

// TestWrapped: what wraps a publisher in turn may wrap an instrumented one.
func TestWrapped(t *testing.T) {
	r := newRig(t)
	p := broker.NewBatcher(r.pub, 1, 10)
	receipt := make(chan broker.Receipt, 1)
	p.Go(t.Context(), broker.Message{ID: "1"}, func(got broker.Receipt) { receipt <- got })
	if got := <-receipt; got.Verdict != broker.Stored {
		t.Errorf("%+v", got)
	}
	must(t, p.Close(t.Context()))
	has(t, r.span("send orders"), attribute.Int("onceline.receipts.stored", 1))
}

func TestAllocationsPerCall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := memory.New()
	defer b.Close()
	tel, err := otel.New("mem")
	must(t, err)
	c := b.Conn()
	must(t, c.Ensure(t.Context(), broker.Entity{Topic: topic}))
	raw, err := c.OpenPublisher(t.Context(), topic)
	must(t, err)
	publish := func(p broker.Publisher, n int) float64 {
		msgs := make([]broker.Message, n)
		for i := range msgs {
			msgs[i].ID = "same"
		}
		return testing.AllocsPerRun(100, func() { _, _ = p.Publish(t.Context(), msgs...) })
	}
	wrapped := tel.Publisher(raw, topic)
	few, many := publish(wrapped, 2)-publish(raw, 2), publish(wrapped, 200)-publish(raw, 200)
	if many > few+1 {
		t.Errorf("2 messages cost %v allocations more, 200 cost %v", few, many)
	}
	must(t, c.Close(t.Context()))
}
