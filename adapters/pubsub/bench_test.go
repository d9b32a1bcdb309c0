package pubsub

import (
	"fmt"
	"testing"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
)

// The benchmark holds the adapter against the vendor's generated client used
// well for the same promise, in pairs of runs that alternate:
//
//	go test -run '^$' -bench Ratio -benchtime 3x ./adapters/pubsub
//
// Publish: one request after the other, of so many messages with ID and time as
// attributes, without retries. Receive: Pull of so many, then Acknowledge of all,
// on a subscription with exactly-once delivery, so that both are answered. Both
// sides share the emulator's process.
func BenchmarkRatio(b *testing.B) {
	const count = 4000
	for _, size := range []int{256, 4096} {
		for _, batch := range []int{100, 1000} {
			n := count
			if batch == 1 {
				n /= 8
			}
			b.Run(fmt.Sprintf("publish/batch=%d/size=%d", batch, size), func(b *testing.B) {
				w := newBench(b, n, batch, size)
				paired.Compare(b, n, w.rawPublish, w.ourPublish)
			})
			b.Run(fmt.Sprintf("receive/batch=%d/size=%d", batch, size), func(b *testing.B) {
				w := newBench(b, n, batch, size)
				paired.Compare(b, n, w.rawReceive, w.ourReceive)
			})
		}
	}
}

// BenchmarkAllocs is what a message costs each side in allocations, the
// emulator's included: the difference is the adapter's.
func BenchmarkAllocs(b *testing.B) {
	const count = 1000
	for _, side := range []string{"raw", "ours"} {
		for _, batch := range []int{1, 100} {
			w := newBench(b, count, batch, 256)
			publish, receive := w.rawPublish, w.rawReceive
			if side == "ours" {
				publish, receive = w.ourPublish, w.ourReceive
			}
			for what, run := range map[string]func() time.Duration{"publish": publish, "receive": receive} {
				b.Run(fmt.Sprintf("%s/batch=%d/%s", what, batch, side), func(b *testing.B) {
					b.ReportAllocs()
					for range b.N {
						run()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/msg")
				})
			}
		}
	}
}

type bench struct {
	b           *testing.B
	count, size int
	batch       int
	rig         *rig
	topics      *vkit.TopicAdminClient
	subs        *vkit.SubscriptionAdminClient
	topic, sub  string
	sink        broker.Publisher // of a topic without a subscription
	sinkTopic   string
	ids         int
}

func newBench(b *testing.B, count, batch, size int) *bench {
	g := ends(b, true, func(e *broker.Entity) { e.Lease = 600 * time.Second })
	w := &bench{b: b, count: count, batch: batch, size: size, rig: g, topic: "projects/p/topics/" + g.e.Topic, sub: "projects/p/subscriptions/" + g.e.Subscription}
	sink := entity(func(e *broker.Entity) { e.Subscription, e.Lease = "", 0 })
	ensure(b, g.conn, sink)
	w.sink, w.sinkTopic = publisherOf(b, g.conn, sink.Topic), "projects/p/topics/"+sink.Topic
	if !g.conn.As(&w.topics) || !g.conn.As(&w.subs) {
		b.Fatal("no clients")
	}
	return w
}

func (w *bench) id() string {
	w.ids++
	return fmt.Sprintf("message-%08d", w.ids)
}

func (w *bench) rawPublish() time.Duration {
	body := make([]byte, w.size)
	ids := make([]string, w.count)
	for i := range ids {
		ids[i] = w.id()
	}
	ctx := w.b.Context()
	begin := time.Now()
	when := driver.FormatTime(begin)
	for from := 0; from < w.count; from += w.batch {
		slab := make([]pb.PubsubMessage, w.batch)
		list := make([]*pb.PubsubMessage, w.batch)
		for i := range slab {
			slab[i].Data = body
			slab[i].Attributes = map[string]string{"id": ids[from+i], "time": when}
			list[i] = &slab[i]
		}
		res, err := w.topics.Publish(ctx, &pb.PublishRequest{Topic: w.sinkTopic, Messages: list}, once)
		if err != nil || len(res.MessageIds) != w.batch {
			w.b.Fatal(err)
		}
	}
	return time.Since(begin)
}

func (w *bench) ourPublish() time.Duration {
	body := make([]byte, w.size)
	ms := make([]broker.Message, w.count)
	for i := range ms {
		ms[i] = broker.Message{ID: w.id(), Body: body}
	}
	ctx := w.b.Context()
	begin := time.Now()
	for from := 0; from < w.count; from += w.batch {
		if _, err := w.sink.Publish(ctx, ms[from:from+w.batch]...); err != nil {
			w.b.Fatal(err)
		}
	}
	return time.Since(begin)
}

// fill puts the messages of one run into the subscription.
func (w *bench) fill() {
	ms := make([]broker.Message, w.count)
	body := make([]byte, w.size)
	for i := range ms {
		ms[i] = broker.Message{ID: w.id(), Body: body}
	}
	publish(w.b, w.rig.pub, ms...)
}

func (w *bench) rawReceive() time.Duration {
	w.fill()
	ctx := w.b.Context()
	bytes := 0
	begin := time.Now()
	for n := 0; n < w.count; {
		res, err := w.subs.Pull(ctx, &pb.PullRequest{Subscription: w.sub, MaxMessages: int32(w.batch)}, once)
		if err != nil {
			w.b.Fatal(err)
		}
		ids := make([]string, len(res.ReceivedMessages))
		for i, m := range res.ReceivedMessages {
			ids[i] = m.AckId
			bytes += len(m.Message.Data) + len(m.Message.Attributes[driver.HeaderID])
		}
		if err := w.subs.Acknowledge(ctx, &pb.AcknowledgeRequest{Subscription: w.sub, AckIds: ids}, once); err != nil {
			w.b.Fatal(err)
		}
		n += len(ids)
	}
	return time.Since(begin)
}

func (w *bench) ourReceive() time.Duration {
	w.fill()
	ctx := w.b.Context()
	bytes := 0
	begin := time.Now()
	for n := 0; n < w.count; {
		ds, err := w.rig.rcv.Receive(ctx, w.batch)
		if err != nil {
			w.b.Fatal(err)
		}
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i].Delivery = &ds[i]
			bytes += len(ds[i].Body) + len(ds[i].ID)
		}
		if err := w.rig.rcv.Settle(ctx, s); err != nil {
			w.b.Fatal(err)
		}
		n += len(ds)
	}
	return time.Since(begin)
}
