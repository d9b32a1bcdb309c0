package main

import (
	"context"
	"net"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/otel"
	"github.com/onceline/onceline/localstack"
)

// TestContextTravelsEverywhere: on each broker the span of a handler belongs to the
// trace in which the message was sent, and is the child of the span that sent it.
func TestContextTravelsEverywhere(t *testing.T) {
	stack, err := localstack.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopBound)
		defer cancel()
		if err := stack.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	_, port, err := net.SplitHostPort(stack.Emulator("rabbitmq").Address())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, broker, query, topic, subscription string }{
		{"sqs", "sqs", "", "orders", "orders"},
		{"pubsub", "pubsub", "", "orders", "orders-sub"},
		{"servicebus", "servicebus", "", "orders", "orders"},
		{"rabbitmq", "rabbitmq", "", "orders", "orders/billing"},
		{"streams", "rabbitmq", "/?queue=stream&stream-port=" + port, "events", "events/billing"},
		{"nats", "nats", "", "orders", "ORDERS/billing"},
		{"kafka group", "kafka", "", "orders", "orders/billing"},
		{"kafka share", "kafka", "?mode=share", "events", "events/sharing"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			contextTravels(t, stack.URL(x.broker)+x.query, x.topic, x.subscription)
		})
	}
}

func contextTravels(t *testing.T, url, topic, subscription string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	spans := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	telemetry, err := otel.New("any", otel.WithTracerProvider(tracers))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := broker.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	conn := telemetry.Conn(inner)
	defer func() {
		if err := conn.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if err := conn.Ensure(ctx, broker.Entity{Topic: topic, Subscription: subscription}); err != nil {
		t.Fatal(err)
	}
	r, err := conn.OpenReceiver(ctx, subscription)
	if err != nil {
		t.Fatal(err)
	}
	p, err := conn.OpenPublisher(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	caller, parent := tracers.Tracer("test").Start(ctx, "request")
	if _, err := p.Publish(caller, broker.Message{ID: "1", Key: "k", Body: []byte("x"), Headers: broker.Headers{{Key: "mine", Value: "a"}, {Key: "mine", Value: "b"}}}); err != nil {
		t.Fatal(err)
	}
	parent.End()
	var handled trace.SpanContext
	done, stop := context.WithCancel(ctx)
	err = broker.Consume(done, r, telemetry.Handler(subscription, func(ctx context.Context, d *broker.Delivery) error {
		handled = trace.SpanContextFromContext(ctx)
		if got := d.Headers.Values("mine"); len(got) != 2 || got[0] != "a" || got[1] != "b" {
			t.Errorf("the caller's headers came as %v", d.Headers)
		}
		stop()
		return nil
	}), broker.ConsumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if handled.TraceID() != parent.SpanContext().TraceID() {
		t.Errorf("handled in trace %s, sent in %s", handled.TraceID(), parent.SpanContext().TraceID())
	}
	var sent, process sdktrace.ReadOnlySpan
	for _, s := range spans.Ended() {
		switch s.Name() {
		case "send " + topic:
			sent = s
		case "process " + subscription:
			process = s
		}
	}
	if sent == nil || process == nil || process.Parent().SpanID() != sent.SpanContext().SpanID() {
		t.Errorf("process %v isn't the child of send %v", process, sent)
	}
}
