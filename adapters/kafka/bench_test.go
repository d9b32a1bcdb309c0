package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver/paired"
)

// The benchmark holds the adapter against franz-go used well for the same
// promise, in pairs of runs that alternate, so that what else the machine does
// hits both:
//
//	go test -run '^$' -bench Ratio -benchtime 1x ./adapters/kafka
//
// Publish: a Batcher over the adapter, against async idempotent Produce with as
// many records in flight. Receive: Receive and Settle of each batch, against
// PollRecords and one CommitRecords per batch. Each line has the median of the
// paired ratios and what the adapter adds per message, with 95 % intervals by
// order statistics; a ratio over 1 means that the adapter is faster. The broker
// is the fake in this process, which answers faster than any broker, so the
// added time counts, not the ratio; or the one that ONCELINE_KAFKA names.
const (
	benchMessages = 20_000
)

func BenchmarkRatio(b *testing.B) {
	for _, size := range []int{256, 4096} {
		for _, batch := range []int{100, 500} {
			w := newBench(b, size)
			b.Run(fmt.Sprintf("publish/batch=%d/size=%d", batch, size), func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawPublish(b) }, func() time.Duration { return w.ourPublish(b, batch) })
			})
			b.Run(fmt.Sprintf("receive/batch=%d/size=%d", batch, size), func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawReceive(b, batch) }, func() time.Duration { return w.ourReceive(b, batch) })
			})
			w.close()
		}
	}
}

// bench is a broker of its own with a topic to write and one to read.
type bench struct {
	cluster *kfake.Cluster // nil: a real broker
	addrs   []string
	write   string // topics
	read    string
	raw     *kgo.Client
	conn    broker.Conn
	pub     broker.Publisher
	ids     []string
	body    []byte
	groups  int
}

func newBench(b *testing.B, size int) *bench {
	w := &bench{body: make([]byte, size), ids: make([]string, benchMessages)}
	for i := range w.ids {
		w.ids[i] = fmt.Sprintf("message-%08d", i)
	}
	var err error
	w.write, w.read = "write", "read"
	if addr := os.Getenv("ONCELINE_KAFKA"); addr != "" {
		w.addrs = []string{addr}
		run := time.Now().UnixNano()
		w.write, w.read = fmt.Sprintf("write-%d", run), fmt.Sprintf("read-%d", run)
	} else {
		if w.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(quick)); err != nil {
			b.Fatal(err)
		}
		w.addrs = w.cluster.ListenAddrs()
	}
	seeds := []kgo.Opt{kgo.SeedBrokers(w.addrs...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(2 * benchMessages)}
	if w.raw, err = kgo.NewClient(append(seeds, kgo.ProducerLinger(0))...); err != nil {
		b.Fatal(err)
	}
	if w.conn, err = New(b.Context(), Options{Client: seeds, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		b.Fatal(err)
	}
	for _, topic := range []string{w.write, w.read} {
		if err := w.conn.Ensure(b.Context(), broker.Entity{Topic: topic, Partitions: 1}); err != nil {
			b.Fatal(err)
		}
	}
	if w.pub, err = w.conn.OpenPublisher(b.Context(), w.read); err != nil {
		b.Fatal(err)
	}
	ms := make([]broker.Message, benchMessages)
	for i := range ms {
		ms[i] = broker.Message{ID: w.ids[i], Body: w.body}
	}
	if _, err := w.pub.Publish(b.Context(), ms...); err != nil {
		b.Fatal(err)
	}
	if w.pub, err = w.conn.OpenPublisher(b.Context(), w.write); err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *bench) close() {
	for _, topic := range []string{w.write, w.read} {
		_ = w.conn.Delete(context.Background(), broker.Entity{Topic: topic}) // a benchmark: nothing depends on it
	}
	_ = w.conn.Close(context.Background())
	w.raw.Close()
	if w.cluster != nil {
		w.cluster.Close()
	}
}

// empty makes the topic anew small: the fake keeps all it gets in memory.
func (w *bench) empty(b *testing.B) {
	if w.cluster == nil {
		return
	}
	p := w.cluster.PartitionInfo(w.write, 0)
	if err := w.cluster.DeleteRecords(w.write, 0, p.HighWatermark); err != nil {
		b.Fatal(err)
	}
}

func (w *bench) rawPublish(b *testing.B) time.Duration {
	w.empty(b)
	ctx := b.Context()
	var wait sync.WaitGroup
	wait.Add(benchMessages)
	var once sync.Once
	var bad error
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			once.Do(func() { bad = err })
		}
		wait.Done()
	}
	begin := time.Now()
	for i := range w.ids {
		w.raw.Produce(ctx, &kgo.Record{Topic: w.write, Value: w.body, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(w.ids[i])}}}, done)
	}
	wait.Wait()
	took := time.Since(begin)
	if bad != nil {
		b.Fatal(bad)
	}
	return took
}

func (w *bench) ourPublish(b *testing.B, batch int) time.Duration {
	w.empty(b)
	ctx := b.Context()
	p, err := w.conn.OpenPublisher(ctx, w.write)
	if err != nil {
		b.Fatal(err)
	}
	// Up to 12,000 messages or 16 MiB in flight.
	bt := broker.NewBatcher(p, max(1, min(12_000, 16<<20/len(w.body))/batch), batch)
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
	for i := range w.ids {
		bt.Go(ctx, broker.Message{ID: w.ids[i], Body: w.body, Time: now}, done)
	}
	wait.Wait()
	took := time.Since(begin)
	if err := bt.Close(ctx); bad != nil || err != nil {
		b.Fatal(bad, err)
	}
	return took
}

func (w *bench) group() string {
	w.groups++
	return fmt.Sprintf("%s-g%d", w.read, w.groups)
}

func (w *bench) rawReceive(b *testing.B, batch int) time.Duration {
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.addrs...), kgo.ConsumerGroup(w.group()), kgo.ConsumeTopics(w.read),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	ctx := b.Context()
	commit := func(n int) (int, string) {
		fs := cl.PollRecords(ctx, n)
		if err := fs.Err(); err != nil {
			b.Fatal(err)
		}
		rs := fs.Records()
		id := ""
		for _, r := range rs {
			id = string(r.Headers[0].Value) // the same promise: the consumer knows the message
		}
		if err := cl.CommitRecords(ctx, rs...); err != nil {
			b.Fatal(err)
		}
		return len(rs), id
	}
	n, last := commit(1) // joins the group
	begin := time.Now()
	for n < benchMessages {
		var k int
		k, last = commit(batch)
		n += k
	}
	took := time.Since(begin)
	if last != w.ids[benchMessages-1] {
		b.Fatalf("ended with %s", last)
	}
	return took
}

func (w *bench) ourReceive(b *testing.B, batch int) time.Duration {
	ctx := b.Context()
	r, err := w.conn.OpenReceiver(ctx, w.read+"/"+w.group())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = r.Close(ctx) }()
	ss := make([]broker.Settlement, 0, batch)
	take := func(n int) (int, string) {
		ds, err := r.Receive(ctx, n)
		if err != nil {
			b.Fatal(err)
		}
		ss = ss[:0]
		for i := range ds {
			ss = append(ss, broker.Settlement{Delivery: &ds[i], Action: broker.Ack})
		}
		if err := r.Settle(ctx, ss); err != nil {
			b.Fatal(err)
		}
		return len(ds), ds[len(ds)-1].ID
	}
	n, last := take(1)
	begin := time.Now()
	for n < benchMessages {
		var k int
		k, last = take(batch)
		n += k
	}
	took := time.Since(begin)
	if last != w.ids[benchMessages-1] {
		b.Fatalf("ended with %s", last)
	}
	return took
}
