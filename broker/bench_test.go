package broker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// endless is a receiver that always has deliveries and takes every settle.
type endless struct {
	broker.Receiver
	keys []string
	ids  []string
	n    int
}

func (r *endless) Receive(ctx context.Context, max int) ([]broker.Delivery, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ds := make([]broker.Delivery, max)
	lease := time.Now().Add(time.Hour)
	for i := range ds {
		r.n++
		ds[i].ID, ds[i].Lease = r.ids[r.n%len(r.ids)], lease
		if len(r.keys) > 0 {
			ds[i].Key = r.keys[r.n%len(r.keys)]
		}
	}
	return ds, nil
}

func (r *endless) Settle(_ context.Context, s []broker.Settlement) error {
	for i := range s {
		s[i].Outcome = broker.Outcome{State: broker.Confirmed}
	}
	return nil
}

func consumeN(ctx context.Context, n int, keys int, o broker.ConsumeOptions) error {
	r := &endless{}
	for i := range 1000 {
		r.ids = append(r.ids, fmt.Sprintf("id-%08d", i))
	}
	for i := range keys {
		r.keys = append(r.keys, fmt.Sprint("key", i))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var left atomic.Int64
	left.Store(int64(n))
	return broker.Consume(ctx, r, func(context.Context, *broker.Delivery) error {
		if left.Add(-1) == 0 {
			stop()
		}
		return nil
	}, o)
}

var consumeLoads = []struct {
	name string
	keys int
	o    broker.ConsumeOptions
}{
	{"workers=1", 0, broker.ConsumeOptions{Workers: 1, Batch: 100, MaxInFlight: 500}},
	{"workers=8", 0, broker.ConsumeOptions{Workers: 8, Batch: 100, MaxInFlight: 500}},
	{"workers=8/keys=50", 50, broker.ConsumeOptions{Workers: 8, Batch: 100, MaxInFlight: 500}},
	{"at-most-once", 0, broker.ConsumeOptions{Semantics: broker.AtMostOnce, Workers: 8, Batch: 100, MaxInFlight: 500}},
}

func BenchmarkConsume(b *testing.B) {
	for _, l := range consumeLoads {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			if err := consumeN(b.Context(), b.N, l.keys, l.o); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// Consume costs less than an allocation for a message: it has no goroutine,
// channel, timer or context of its own for each.
func TestConsumeIsCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations of the race detector count too")
	}
	for _, l := range consumeLoads {
		const n = 20_000
		start := time.Now()
		allocs := testing.AllocsPerRun(1, func() {
			if err := consumeN(t.Context(), n, l.keys, l.o); err != nil {
				t.Fatal(err)
			}
		}) / n
		each := time.Since(start) / (2 * n)
		if allocs > 1 {
			t.Errorf("%s: %.2f allocations for a message", l.name, allocs)
		}
		if each > 10*time.Microsecond {
			t.Errorf("%s: %s for a message", l.name, each)
		}
		t.Logf("%s: %s and %.2f allocations for a message", l.name, each, allocs)
	}
}

// A message through Batcher.Go costs no allocation, one through Publish the
// receipts and little else.
func TestBatcherIsCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations of the race detector count too")
	}
	p := &benchPublisher{receipts: stored(4096)}
	b := broker.NewBatcher(p, 1, 500)
	defer b.Close(t.Context())
	m := broker.Message{ID: "id", Body: make([]byte, 256), Time: time.Now()}
	done := func(broker.Receipt) {}
	const n = 10_000
	if allocs := testing.AllocsPerRun(5, func() {
		for range n {
			b.Go(t.Context(), m, done)
		}
	}) / n; allocs > 0.1 {
		t.Errorf("Go: %.2f allocations for a message", allocs)
	}
	msgs := make([]broker.Message, 100)
	for i := range msgs {
		msgs[i] = m
	}
	if allocs := testing.AllocsPerRun(100, func() {
		if _, err := b.Publish(t.Context(), msgs...); err != nil {
			t.Error(err)
		}
	}) / 100; allocs > 0.1 {
		t.Errorf("Publish: %.2f allocations for a message", allocs)
	}
}

func BenchmarkBatcher(b *testing.B) {
	answers := stored(4096)
	p := &benchPublisher{receipts: answers}
	for _, lanes := range []int{1, 4} {
		b.Run(fmt.Sprintf("go/lanes=%d", lanes), func(b *testing.B) {
			bt := broker.NewBatcher(p, lanes, 500)
			defer bt.Close(b.Context())
			var left atomic.Int64
			done := func(broker.Receipt) { left.Add(-1) }
			m := broker.Message{ID: "id", Body: make([]byte, 256), Time: time.Now()}
			b.ReportAllocs()
			left.Store(int64(b.N))
			for range b.N {
				bt.Go(b.Context(), m, done)
			}
			b.StopTimer()
			if err := bt.Close(b.Context()); err != nil || left.Load() != 0 {
				b.Fatal(err, left.Load())
			}
		})
		b.Run(fmt.Sprintf("publish/callers=64/lanes=%d", lanes), func(b *testing.B) {
			bt := broker.NewBatcher(p, lanes, 500)
			defer bt.Close(b.Context())
			m := broker.Message{ID: "id", Body: make([]byte, 256), Time: time.Now()}
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := bt.Publish(b.Context(), m); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// benchPublisher answers without an allocation.
type benchPublisher struct {
	fakePublisher
	receipts []broker.Receipt
}

func (p *benchPublisher) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	return p.receipts[:len(msgs)], nil
}
