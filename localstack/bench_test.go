package localstack_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onceline/onceline/localstack"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkNATS compares the proxy with the direct address: a publish at a time,
// where its two hops are latency, and many at once, where they are work.
func BenchmarkNATS(b *testing.B) {
	e, err := localstack.StartNATS(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close(b.Context())
	for name, url := range map[string]string{"direct": e.DirectURL(), "proxy": e.URL()} {
		nc, err := nats.Connect(url)
		if err != nil {
			b.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := js.CreateOrUpdateStream(b.Context(), jetstream.StreamConfig{Name: "B", Subjects: []string{"b"}, Storage: jetstream.MemoryStorage, MaxMsgs: 1000}); err != nil {
			b.Fatal(err)
		}
		body := make([]byte, 128)
		b.Run("sync/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := js.Publish(b.Context(), "b", body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("async/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := js.PublishAsync("b", body); err != nil {
					b.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
		})
	}
}

// BenchmarkKafka measures a produce at a time; kfake has no direct address.
func BenchmarkKafka(b *testing.B) {
	e, err := localstack.StartKafka(b.Context(), localstack.KafkaTopics(1, "a"))
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close(b.Context())
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.URL()[len("kafka://"):]), kgo.ProducerLinger(0))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	r := kgo.Record{Topic: "a", Value: make([]byte, 128)}
	b.ReportAllocs()
	for b.Loop() {
		c := r
		if err := cl.ProduceSync(b.Context(), &c).FirstErr(); err != nil {
			b.Fatal(err)
		}
	}
}
