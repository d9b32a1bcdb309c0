package bridge_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"

	_ "github.com/onceline/onceline/adapters/kafka"
	_ "github.com/onceline/onceline/adapters/nats"
	_ "github.com/onceline/onceline/adapters/rabbitmq"

	"github.com/onceline/onceline/localstack"
)

// byHand is the loop that one would write: receive a batch, publish it, ack it. It has
// no retry, no lease that is extended, and one batch at a time.
func byHand(b *testing.B, from broker.Receiver, to broker.Publisher, n int) {
	for n > 0 {
		ds, err := from.Receive(b.Context(), 800)
		if err != nil {
			b.Fatal(err)
		}
		msgs := make([]broker.Message, len(ds))
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			msgs[i] = ds[i].Message
			s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
		}
		if _, err := to.Publish(b.Context(), msgs...); err != nil {
			b.Fatal(err)
		}
		if err := from.Settle(b.Context(), s); err != nil {
			b.Fatal(err)
		}
		n -= len(ds)
	}
}

// BenchmarkRatioBridge is the time of the loop by hand over that of the bridge, for the
// same messages, in turns: 1 is as fast. The brokers are in this process.
func BenchmarkRatioBridge(b *testing.B) {
	type side struct {
		start func(*testing.B) string // a URL
		e     broker.Entity
	}
	inProcess := func(name string) func(*testing.B) string {
		return func(b *testing.B) string {
			stack, err := localstack.Start(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = stack.Close(context.Background()) })
			return stack.URL(name)
		}
	}
	memoryNamed := func(name string) func(*testing.B) string {
		return func(b *testing.B) string {
			b.Cleanup(func() { memory.Named(name).Close() })
			return "mem://" + name
		}
	}
	for _, c := range []struct {
		name     string
		from, to side
		together bool
		keys     int
	}{
		{"memory-memory", side{memoryNamed("bench-from"), broker.Entity{Topic: "orders", Subscription: "orders/bridge"}},
			side{memoryNamed("bench-to"), broker.Entity{Topic: "far"}}, true, 1000},
		{"nats-kafka", side{inProcess(localstack.NATSName), broker.Entity{Topic: "orders", Subscription: "ORDERS/bridge"}},
			side{inProcess(localstack.KafkaName), broker.Entity{Topic: "far"}}, true, 1000},
		{"rabbitmq-nats", side{inProcess(localstack.RabbitMQName), broker.Entity{Topic: "orders", Subscription: "orders/bridge"}},
			side{inProcess(localstack.NATSName), broker.Entity{Topic: "far"}}, false, 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			const n, rounds = 5000, 7
			open := func(s side) broker.Conn {
				conn, err := broker.Open(b.Context(), s.start(b))
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = conn.Close(context.Background()) })
				if err := conn.Ensure(b.Context(), s.e); err != nil {
					b.Fatal(err)
				}
				return conn
			}
			source, far := open(c.from), open(c.to)
			in, err := source.OpenPublisher(b.Context(), "orders")
			if err != nil {
				b.Fatal(err)
			}
			from, err := source.OpenReceiver(b.Context(), c.from.e.Subscription)
			if err != nil {
				b.Fatal(err)
			}
			to, err := far.OpenPublisher(b.Context(), "far")
			if err != nil {
				b.Fatal(err)
			}
			sent := 0
			fill := func() {
				for range n / 500 {
					msgs := make([]broker.Message, 500)
					for i := range msgs {
						msgs[i] = broker.Message{ID: fmt.Sprint(sent), Key: fmt.Sprint("k", sent%c.keys), Body: make([]byte, 200)}
						sent++
					}
					if _, err := in.Publish(b.Context(), msgs...); err != nil {
						b.Fatal(err)
					}
				}
			}
			var ratios, rates []float64
			for range b.N {
				for range rounds {
					fill()
					began := time.Now()
					byHand(b, from, to, n)
					hand := time.Since(began)
					fill()
					began = time.Now()
					moved := bridge.New(from, to, bridge.Options{Batch: 400, Lanes: 2, Together: c.together, Count: n})
					if err := moved.Run(b.Context()); err != nil {
						b.Fatal(err)
					}
					took := time.Since(began)
					if s := moved.Stats(); s.Stored != n {
						b.Fatal(s)
					}
					ratios, rates = append(ratios, float64(hand)/float64(took)), append(rates, n/took.Seconds())
				}
			}
			slices.Sort(ratios)
			slices.Sort(rates)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(rates[len(rates)/2], "msgs/s")
		})
	}
}
