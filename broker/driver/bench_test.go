package driver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// noop is a driver that answers at once and allocates nothing, so that what is
// measured is the portable layer alone.
type noop struct {
	ids   []string
	body  []byte
	lease time.Time
}

func newNoop() *noop {
	n := &noop{body: make([]byte, 256), lease: time.Now().Add(24 * time.Hour)}
	for i := range 500 {
		n.ids = append(n.ids, fmt.Sprintf("id-%08d", i))
	}
	return n
}

func (n *noop) OpenPublisher(context.Context, string, broker.PublisherOptions) (driver.Publisher, error) {
	return n, nil
}

func (n *noop) OpenReceiver(context.Context, string, broker.ReceiverOptions) (driver.Receiver, error) {
	return n, nil
}

func (n *noop) Ensure(context.Context, broker.Entity) error { return nil }
func (n *noop) Delete(context.Context, broker.Entity) error { return nil }
func (n *noop) As(any) bool                                 { return false }
func (n *noop) AsDelivery(*driver.Token, any) bool          { return false }
func (n *noop) Close(context.Context) error                 { return nil }
func (n *noop) Limits() broker.Limits                       { return broker.Limits{Body: 1 << 20, Headers: 1 << 16} }

func (n *noop) Publish(_ context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	for i := range msgs {
		receipts[i] = broker.Receipt{Verdict: broker.Stored, Position: broker.Position{Offset: uint64(i)}}
	}
}

func (n *noop) Receive(_ context.Context, max int, out *driver.Batch) error {
	out.Grow(max)
	for i := range max {
		d, t := out.Add()
		d.ID, d.Body, d.Lease = n.ids[i], n.body, n.lease
		t.Tag, t.Ref = uint64(i), n
	}
	return nil
}

func (n *noop) Settle(_ context.Context, ops []driver.Op) {
	for i := range ops {
		ops[i].Settlement.Outcome.State = broker.Confirmed
	}
}

// load is one measured thing: what it does for n messages.
type load struct {
	name string
	n    int
	run  func() error
}

func loads(tb testing.TB) []load {
	n := newNoop()
	c := driver.New(n)
	ctx := context.Background()
	p, err := c.OpenPublisher(ctx, "topic")
	if err != nil {
		tb.Fatal(err)
	}
	r, err := c.OpenReceiver(ctx, "sub")
	if err != nil {
		tb.Fatal(err)
	}
	headers := broker.Headers{{Key: "trace", Value: "00-abc"}, {Key: "type", Value: "order"}}
	msgs := make([]broker.Message, 500)
	for i := range msgs {
		msgs[i] = broker.Message{ID: n.ids[i], Key: "k", Body: n.body, Headers: headers}
	}
	settlements := make([]broker.Settlement, 500)
	var all []load
	for _, size := range []int{100, 500} {
		all = append(all,
			load{"publish", size, func() error {
				_, err := p.Publish(ctx, msgs[:size]...)
				return err
			}},
			load{"receive and settle", size, func() error {
				ds, err := r.Receive(ctx, size)
				if err != nil {
					return err
				}
				for i := range ds {
					settlements[i] = broker.Settlement{Delivery: &ds[i]}
				}
				return r.Settle(ctx, settlements[:len(ds)])
			}},
			load{"receive and ack each", size, func() error {
				ds, err := r.Receive(ctx, size)
				for i := range ds {
					if _, err := ds[i].Ack(ctx); err != nil {
						return err
					}
				}
				return err
			}})
	}
	return append(all,
		load{"publish", 1, func() error {
			_, err := p.Publish(ctx, msgs[0])
			return err
		}},
		load{"receive and ack each", 1, func() error {
			ds, err := r.Receive(ctx, 1)
			if err != nil {
				return err
			}
			_, err = ds[0].Ack(ctx)
			return err
		}})
}

func BenchmarkPortableLayer(b *testing.B) {
	for _, l := range loads(b) {
		b.Run(fmt.Sprintf("%s/n=%d", l.name, l.n), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if err := l.run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*l.n), "ns/msg")
			b.ReportMetric(testing.AllocsPerRun(100, func() { l.run() })/float64(l.n), "allocs/msg")
		})
	}
}

// The portable layer costs at most two allocations and half a microsecond for a
// message. The time is gated loosely, for machines are slow and shared: by the
// best of some runs, at four times the goal.
func TestPortableLayerIsCheap(t *testing.T) {
	for _, l := range loads(t) {
		name := fmt.Sprintf("%s, %d at a time", l.name, l.n)
		limit := 2 * float64(l.n)
		switch {
		case l.n > 1 && l.name == "receive and ack each":
			limit = float64(l.n) + 4 // one settlement each escapes to the handle
		case l.n > 1:
			limit = 4 // for the batch
		}
		if raceEnabled {
			limit *= 2 // the detector's pools drop what they hold at random
		}
		allocs := testing.AllocsPerRun(50, func() {
			if err := l.run(); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > limit {
			t.Errorf("%s: %v allocations, want at most %v", name, allocs, limit)
		}
		if raceEnabled || testing.Short() {
			continue
		}
		best := time.Hour
		for range 20 {
			const rounds = 20
			start := time.Now()
			for range rounds {
				l.run()
			}
			best = min(best, time.Since(start)/time.Duration(rounds*l.n))
		}
		if best > 2*time.Microsecond {
			t.Errorf("%s: %s for a message, want about half a microsecond", name, best)
		}
		t.Logf("%s: %s and %.2f allocations for a message", name, best, allocs/float64(l.n))
	}
}
