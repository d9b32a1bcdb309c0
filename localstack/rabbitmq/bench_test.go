package rabbitmq_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	wire "github.com/onceline/onceline/localstack/rabbitmq/amqp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// BenchmarkPublish publishes batches and waits for their confirms, one message at
// an operation.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{256, 4096} {
		b.Run(fmt.Sprintf("batch=100/size=%d", size), func(b *testing.B) {
			s := start(b)
			ch := s.channel(b)
			if err := ch.Confirm(false); err != nil {
				b.Fatal(err)
			}
			args := amqp.Table{"x-queue-type": "quorum", "x-max-length": 1000}
			if _, err := ch.QueueDeclare("q", true, false, false, false, args); err != nil {
				b.Fatal(err)
			}
			body := bytes.Repeat([]byte("x"), size)
			waits := make([]*amqp.DeferredConfirmation, 0, 100)
			b.ReportAllocs()
			for n := 0; n < b.N; n += 100 {
				waits = waits[:0]
				for range 100 {
					c, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: body, DeliveryMode: 2, MessageId: "id"})
					if err != nil {
						b.Fatal(err)
					}
					waits = append(waits, c)
				}
				for _, c := range waits {
					if !c.Wait() {
						b.Fatal("nack")
					}
				}
			}
		})
	}
}

// BenchmarkServer is what the server itself takes for a publish with its confirm
// and a delivery with its ack: the client is a writer of frames made before.
func BenchmarkServer(b *testing.B) {
	for _, size := range []int{256, 4096} {
		b.Run(fmt.Sprintf("batch=100/size=%d", size), func(b *testing.B) {
			s := start(b)
			ch := s.channel(b)
			queue(b, ch, "q", amqp.Table{"x-queue-type": "quorum"})
			r := dialRaw(b, s)
			_, err := r.Write(append(methodFrame(1, wire.ConfirmSelect, 1), methodFrame(1, wire.BasicConsume, 0, 0, 1, 'q', 1, 't', 4, 0, 0, 0, 0)...))
			must(b, err)
			_, _, err = r.method()
			must(b, err)
			var batch []byte
			for range 100 {
				batch = append(batch, publishTo(1, "q")...)
				batch = append(batch, contentHeader(1, wire.ClassBasic, uint64(size))...)
				batch = append(batch, frame(wire.FrameBody, 1, make([]byte, size)...)...)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 100 {
				_, err := r.Write(batch)
				must(b, err)
				for confirmed, delivered := 0, 0; confirmed < n+100 || delivered < n+100; {
					m, d, err := r.method()
					must(b, err)
					switch m {
					case wire.BasicAck:
						confirmed = int(d.Uint64())
					case wire.BasicDeliver:
						d.Short()
						delivered = int(d.Uint64())
					}
				}
				_, err = r.Write(methodFrame(1, wire.BasicAck, append(binary.BigEndian.AppendUint64(nil, uint64(n+100)), 1)...))
				must(b, err)
			}
		})
	}
}

// BenchmarkConsume receives what was published before, and acks it in batches.
func BenchmarkConsume(b *testing.B) {
	for _, size := range []int{256, 4096} {
		b.Run(fmt.Sprintf("prefetch=200/size=%d", size), func(b *testing.B) {
			s := start(b)
			ch := s.channel(b)
			if _, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
				b.Fatal(err)
			}
			body := bytes.Repeat([]byte("x"), size)
			for range b.N {
				if err := ch.Publish("", "q", false, false, amqp.Publishing{Body: body}); err != nil {
					b.Fatal(err)
				}
			}
			if err := ch.Qos(200, 0, false); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			ds, err := ch.Consume("q", "", false, false, false, false, nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				d := <-ds
				if i%100 == 99 || i == b.N-1 {
					if err := d.Ack(true); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
