package nats

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver/paired"
)

// The benchmark holds the adapter against the raw SDK used well for the same
// promise, in pairs of runs that alternate, so that what else the machine does
// hits both:
//
//	go test -run '^$' -bench Ratio -benchtime 3x ./adapters/nats
//
// Publish: a Batcher over the adapter, against jetstream.PublishAsync with as
// many messages in flight. Receive: exact pulls with a confirmed settle of the
// batch, one after the other, against Fetch of a batch whose acks are then sent by
// requests on one inbox, all at once, and their answers counted: the same promise.
// Receive-overlapped: the same against Fetch with each message acked as it comes,
// which an application can do that has nothing to do with a message but ack it.
// Each line has the median of the paired ratios and its 95 % interval by order
// statistics; over 1 the adapter is faster.
var benchMessages = paired.Messages(10000)

func BenchmarkRatio(b *testing.B) {
	w := newBench(b)
	for _, size := range []int{256, 4096} {
		for _, batch := range []int{100, 500} {
			b.Run(fmt.Sprintf("publish/batch=%d/size=%d", batch, size), func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawPublish(b, size) },
					func() time.Duration { return w.batcherPublish(b, size, batch) })
			})
			b.Run(fmt.Sprintf("receive/batch=%d/size=%d", batch, size), func(b *testing.B) {
				w.fill(b, size)
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawReceive(b, batch, false) },
					func() time.Duration { return w.ourReceive(b, batch) })
			})
			b.Run(fmt.Sprintf("receive-overlapped/batch=%d/size=%d", batch, size), func(b *testing.B) {
				w.fill(b, size)
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawReceive(b, batch, true) },
					func() time.Duration { return w.ourReceive(b, batch) })
			})
		}
	}
}

// bench is a server of its own, one stream and a client for each side.
type bench struct {
	server *server.Server
	conn   broker.Conn
	raw    *natsgo.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	ids    int
	names  int
}

const (
	benchStream = "BENCH"
	benchTopic  = "bench"
)

func newBench(b *testing.B) *bench {
	w := new(bench)
	var err error
	if w.server, err = start(b.TempDir(), 0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		w.server.Shutdown()
		w.server.WaitForShutdown()
	})
	w.conn = dialTo(b, w.server.ClientURL(), MaxAckPending(8000))
	if w.raw, err = natsgo.Connect(w.server.ClientURL()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.raw.Close)
	if w.js, err = jetstream.New(w.raw, jetstream.WithPublishAsyncMaxPending(defaultInFlight)); err != nil {
		b.Fatal(err)
	}
	w.stream, err = w.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: benchStream, Subjects: []string{benchTopic, benchTopic + ".>"},
		Storage: jetstream.FileStorage, Duplicates: 100 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *bench) purge(b *testing.B) {
	if err := w.stream.Purge(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func (w *bench) nextIDs() []string {
	ids := make([]string, benchMessages)
	for i := range ids {
		w.ids++
		ids[i] = fmt.Sprintf("message-%08d", w.ids)
	}
	return ids
}

func (w *bench) rawPublish(b *testing.B, size int) time.Duration {
	w.purge(b)
	ids, body := w.nextIDs(), make([]byte, size)
	futures := make([]jetstream.PubAckFuture, 0, benchMessages)
	begin := time.Now()
	for i := range ids {
		f, err := w.js.PublishAsync(benchTopic, body, jetstream.WithMsgID(ids[i]), jetstream.WithStallWait(10*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

func (w *bench) batcherPublish(b *testing.B, size, batch int) time.Duration {
	w.purge(b)
	ids, body := w.nextIDs(), make([]byte, size)
	p := broker.NewBatcher(publisherOf(b, w.conn, benchTopic), defaultInFlight/batch/4, batch)
	defer closing(b, p)
	ctx := b.Context()
	now := time.Now()
	var wait sync.WaitGroup
	wait.Add(benchMessages)
	var once sync.Once
	var bad error
	done := func(r broker.Receipt) {
		if r.Verdict != broker.Stored {
			once.Do(func() { bad = fmt.Errorf("%s: %w", r.Verdict, r.Err) })
		}
		wait.Done()
	}
	begin := time.Now()
	for i := range ids {
		p.Go(ctx, broker.Message{ID: ids[i], Body: body, Time: now}, done)
	}
	wait.Wait()
	took := time.Since(begin)
	if bad != nil {
		b.Fatal(bad)
	}
	return took
}

func (w *bench) fill(b *testing.B, size int) { w.rawPublish(b, size) }

func (w *bench) consumer(b *testing.B) string {
	w.names++
	name := fmt.Sprintf("c%d", w.names)
	_, err := w.stream.CreateConsumer(b.Context(), jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 30 * time.Second, MaxAckPending: 8000})
	if err != nil {
		b.Fatal(err)
	}
	return name
}

// rawReceive fetches and confirms each batch by requests of its own on one inbox.
func (w *bench) rawReceive(b *testing.B, batch int, overlap bool) time.Duration {
	name := w.consumer(b)
	defer func() { _ = w.stream.DeleteConsumer(context.Background(), name) }()
	c, err := w.stream.Consumer(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	inbox := w.raw.NewInbox()
	answers := make(chan struct{}, benchMessages)
	sub, err := w.raw.Subscribe(inbox, func(*natsgo.Msg) { answers <- struct{}{} })
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	ackBody := []byte("+ACK")
	ack := func(m jetstream.Msg) {
		if err := w.raw.PublishRequest(m.Reply(), inbox, ackBody); err != nil {
			b.Fatal(err)
		}
	}
	hand := make([]jetstream.Msg, 0, batch)
	begin := time.Now()
	for n := 0; n < benchMessages; {
		ms, err := c.Fetch(min(batch, benchMessages-n), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		got := 0
		hand = hand[:0]
		for m := range ms.Messages() {
			if got++; overlap {
				ack(m)
			} else {
				hand = append(hand, m)
			}
		}
		for _, m := range hand {
			ack(m)
		}
		for range got {
			<-answers
		}
		n += got
	}
	return time.Since(begin)
}

func (w *bench) ourReceive(b *testing.B, batch int) time.Duration {
	name := w.consumer(b)
	defer func() { _ = w.stream.DeleteConsumer(context.Background(), name) }()
	r := receiverOf(b, w.conn, benchStream+"/"+name)
	defer closing(b, r)
	ctx, settlements := b.Context(), make([]broker.Settlement, 0, batch)
	begin := time.Now()
	for n := 0; n < benchMessages; {
		ds, err := r.Receive(ctx, min(batch, benchMessages-n))
		if err != nil {
			b.Fatal(err)
		}
		settlements = settlements[:0]
		for i := range ds {
			settlements = append(settlements, broker.Settlement{Delivery: &ds[i], Action: broker.Ack})
		}
		if err := r.Settle(ctx, settlements); err != nil {
			b.Fatal(err)
		}
		n += len(ds)
	}
	return time.Since(begin)
}
