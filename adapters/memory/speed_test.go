package memory

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

func batchOf(n, size int) []broker.Message {
	msgs := make([]broker.Message, n)
	for i := range msgs {
		msgs[i] = broker.Message{Body: make([]byte, size)}
	}
	return msgs
}

var idCount int

func rename(msgs []broker.Message) {
	for i := range msgs {
		idCount++
		msgs[i].ID = strconv.Itoa(idCount)
	}
}

// roundTrip publishes, receives and acks a batch.
func roundTrip(t testing.TB, x *bench, msgs []broker.Message, s []broker.Settlement) {
	if _, err := x.pub.Publish(context.Background(), msgs...); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < len(msgs); {
		ds, err := x.rcv.Receive(context.Background(), len(msgs))
		if err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			s[i] = broker.Settlement{Delivery: &ds[i]}
		}
		if err := x.rcv.Settle(context.Background(), s[:len(ds)]); err != nil {
			t.Fatal(err)
		}
		got += len(ds)
	}
}

func TestAllocations(t *testing.T) {
	x := newBench(t, broker.Entity{})
	const n = 100
	msgs, s := batchOf(n, 256), make([]broker.Settlement, n)
	per := testing.AllocsPerRun(100, func() {
		rename(msgs) // one allocation each, which is not the broker's
		x.clock.Advance(time.Minute)
		roundTrip(t, x, msgs, s)
	})/n - 1
	if per > 0.5 {
		t.Fatalf("%.2f allocations per message in batches of %d", per, n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		for _, size := range []int{1, 100} {
			b.Run(fmt.Sprintf("backlog=%d/batch=%d", backlog, size), func(b *testing.B) {
				x := newBench(b, broker.Entity{Lease: 24 * time.Hour})
				msgs, s := batchOf(size, 256), make([]broker.Settlement, size)
				if backlog > 0 {
					old := batchOf(backlog, 16)
					rename(old)
					x.send(old...)
					held, err := x.rcv.Receive(b.Context(), backlog/10)
					if err != nil || len(held) != backlog/10 {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; n += size {
					b.StopTimer()
					rename(msgs)
					b.StartTimer()
					roundTrip(b, x, msgs, s)
				}
			})
		}
	}
}
