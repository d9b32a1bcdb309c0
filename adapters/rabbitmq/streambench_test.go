package rabbitmq

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	sdk "github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
)

// BenchmarkStreamRatio holds the adapter beside the vendor's stream client used
// well for the same promise: batches whose confirms are waited for, of messages
// that carry an ID and a time; whole batches received, with the offset stored and
// asked for behind each. On the emulator, or on the real broker that
// ONCELINE_RABBITMQ_STREAM names.
func BenchmarkStreamRatio(b *testing.B) {
	target := os.Getenv("ONCELINE_RABBITMQ_STREAM")
	if target == "" {
		_, target = streamServer(b)
	}
	for _, batch := range []int{1, 10, 100} {
		for _, size := range []int{256, 4096} {
			b.Run(fmt.Sprintf("publish/batch=%d/size=%d", batch, size), func(b *testing.B) { streamPublishRatio(b, target, batch, size) })
		}
	}
	for _, batch := range []int{10, 100} {
		for _, size := range []int{256, 4096} {
			b.Run(fmt.Sprintf("receive/batch=%d/size=%d", batch, size), func(b *testing.B) { streamReceiveRatio(b, target, batch, size) })
		}
	}
}

// sdkProducer returns a function that publishes n messages and waits for their
// confirms.
func sdkProducer(b *testing.B, env *sdk.Environment, stream string, size int) func(n, batch int) {
	p, err := env.NewProducer(stream, sdk.NewProducerOptions().SetProducerName(fmt.Sprintf("bench-%d", streamNames.Add(1))))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	confirms := p.NotifyPublishConfirmation()
	body, id := make([]byte, size), 0
	return func(n, batch int) {
		for n > 0 {
			ms := make([]message.StreamMessage, min(n, batch))
			for i := range ms {
				id++
				m := amqp.NewMessage(body)
				m.Properties = &amqp.MessageProperties{MessageID: "m" + strconv.Itoa(id)}
				m.ApplicationProperties = map[string]any{driver.HeaderTime: driver.FormatTime(time.Now())}
				ms[i] = m
			}
			if err := p.BatchSend(ms); err != nil {
				b.Fatal(err)
			}
			for left := len(ms); left > 0; {
				for _, c := range <-confirms {
					if !c.IsConfirmed() {
						b.Fatal(c.GetError())
					}
					left--
				}
			}
			n -= len(ms)
		}
	}
}

func streamPublishRatio(b *testing.B, target string, batch, size int) {
	n := 20 * batch
	env, c := sdkEnvironment(b, target), dialStreams(b, target)
	theirs, our := streamEntity(b, c), streamEntity(b, c)
	send := sdkProducer(b, env, theirs.Topic, size)
	p := streamPub(b, c, our)
	ms := make([]broker.Message, batch)
	body, id := make([]byte, size), 0
	paired.Compare(b, n, func() time.Duration {
		begun := time.Now()
		send(n, batch)
		return time.Since(begun)
	}, func() time.Duration {
		begun := time.Now()
		for sent := 0; sent < n; sent += batch {
			for i := range ms {
				id++
				ms[i] = broker.Message{ID: "m" + strconv.Itoa(id), Body: body}
			}
			if _, err := p.Publish(b.Context(), ms...); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(begun)
	})
}

func streamReceiveRatio(b *testing.B, target string, batch, size int) {
	n := 20 * batch
	env, c := sdkEnvironment(b, target), dialStreams(b, target)
	theirs, our := streamEntity(b, c), streamEntity(b, c)
	fillTheirs, fillOurs := sdkProducer(b, env, theirs.Topic, size), sdkProducer(b, env, our.Topic, size)
	type got struct {
		m      *amqp.Message
		offset int64
	}
	arrived := make(chan got, 1<<16)
	var chunks atomic.Int64
	entries := uint16(0)
	consumer, err := env.NewConsumer(theirs.Topic, func(at sdk.ConsumerContext, m *amqp.Message) {
		if entries == 0 {
			entries = at.GetEntriesCount()
			chunks.Add(1)
		}
		entries--
		arrived <- got{m, at.Consumer.GetOffset()}
	}, sdk.NewConsumerOptions().SetConsumerName("bench").SetOffset(sdk.OffsetSpecification{}.First()).SetManualCommit().
		SetCreditStrategy(sdk.ManualCreditStrategy).SetInitialCredits(1))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { consumer.Close() })
	r := streamRcv(b, c, our)
	s := make([]broker.Settlement, 0, batch)
	given := int64(1)
	credit := func(chunks int) {
		given += int64(chunks)
		if err := consumer.Credit(int16(chunks)); err != nil {
			b.Fatal(err)
		}
	}
	paired.Compare(b, n, func() time.Duration {
		fillTheirs(n, batch)
		// As many chunks as there should be on their way at once, from here on:
		// nothing is decoded before.
		begun := time.Now()
		if ahead := given - chunks.Load(); ahead < int64(n/batch) {
			credit(n/batch - int(ahead))
		}
		for received := 0; received < n; {
			var last got
			for range batch {
				if len(arrived) == 0 && given == chunks.Load() {
					credit(1)
				}
				last = <-arrived
				_ = last.m.GetData()
			}
			received += batch
			if err := consumer.StoreCustomOffset(last.offset); err != nil {
				b.Fatal(err)
			}
			if at, err := consumer.QueryOffset(); err != nil || at != last.offset {
				b.Fatal(at, err)
			}
		}
		return time.Since(begun)
	}, func() time.Duration {
		fillOurs(n, batch)
		begun := time.Now()
		for received := 0; received < n; {
			ds, err := r.Receive(b.Context(), batch)
			if err != nil {
				b.Fatal(err)
			}
			s = s[:0]
			for i := range ds {
				s = append(s, broker.Settlement{Delivery: &ds[i]})
			}
			if err := r.Settle(b.Context(), s); err != nil {
				b.Fatal(err)
			}
			received += len(ds)
		}
		return time.Since(begun)
	})
}
