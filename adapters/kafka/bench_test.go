package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
	"github.com/onceline/onceline/localstack"
)

// The benchmark holds the adapter against franz-go used well for the same
// promise, in pairs of runs that alternate, so that what else the machine does
// hits both:
//
//	ONCELINE_LOCAL=1 go test -run '^$' -bench Ratio -benchtime 1x ./adapters/kafka
//
// Publish: messages with bodies of their own through a Batcher over the adapter,
// against as many asynchronous idempotent Produce calls without linger, all of
// which may be in flight at once; both end when every message has its receipt.
// The Batcher has ten lanes of 2000 messages of 256 bytes or 250 of 4 KiB, which is
// about the megabyte of Kafka's largest batch, so that the SDK's five requests in
// flight for a broker are full and batches grow behind them. Both sides send the message's ID as a header and its time as
// the record's timestamp. Receive: Receive and Settle of each batch, against
// PollRecords and one CommitRecords for as many, read committed, the ID read.
//
// Each line has the median of the paired ratios and what the adapter adds per
// message, with 95 % intervals by order statistics; a ratio over 1 means that the
// adapter is faster.
//
// With ONCELINE_LOCAL=1 the broker is Apache Kafka itself, one node, started here
// and let compile; ONCELINE_KAFKA=host:port names another one. With neither it is
// the fake in this process, which answers faster than any broker, so that the
// added time counts there, not the ratio.
const benchMessages = 20_000 // different ones; each run sends or receives some times as many

func BenchmarkRatio(b *testing.B) {
	addr := benchServer(b)
	for _, size := range []int{256, 4096} {
		w := newBench(b, addr, size)
		if addr != "" && size == 256 {
			for range 30 { // a Java machine compiles what it has done often
				w.rawPublish(b, benchMessages)
				w.rawReceive(b, 500)
			}
		}
		if size == 256 {
			benchPublish(b, w, 10, 2000)
		} else {
			benchPublish(b, w, 10, 250)
		}
		for _, batch := range []int{100, 500} {
			b.Run(fmt.Sprintf("receive/batch=%d/size=%d", batch, size), func(b *testing.B) {
				paired.Compare(b, w.stock, func() time.Duration { return w.rawReceive(b, batch) }, func() time.Duration { return w.ourReceive(b, batch) })
			})
		}
		w.close()
	}
}

// BenchmarkSmallBatches publishes with more lanes and smaller batches than a
// request takes, which is more work for the same requests. Nothing is promised of
// it.
func BenchmarkSmallBatches(b *testing.B) {
	w := newBench(b, benchServer(b), 256)
	benchPublish(b, w, 20, 500)
	benchPublish(b, w, 100, 100)
	w.close()
}

func benchPublish(b *testing.B, w *bench, lanes, batch int) {
	pub, err := w.conn.OpenPublisher(b.Context(), w.write)
	if err != nil {
		b.Fatal(err)
	}
	size := len(w.bodies[0])
	batcher := broker.NewBatcher(pub, lanes, batch)
	messages := paired.Messages(10 * benchMessages)
	if size > 1024 {
		messages = paired.Messages(benchMessages)
	}
	b.Run(fmt.Sprintf("publish/batch=%d/size=%d", batch, size), func(b *testing.B) {
		paired.Compare(b, messages, func() time.Duration { return w.rawPublish(b, messages) }, func() time.Duration { return w.ourPublish(b, batcher, messages) })
	})
	if err := batcher.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// benchServer returns the address of a real broker, "" for none.
func benchServer(b *testing.B) string {
	if addr := os.Getenv("ONCELINE_KAFKA"); addr != "" {
		return addr
	}
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		return ""
	}
	k := startLocal(b,
		localstack.KafkaJVM("-Xmx1g", "-XX:TieredStopAtLevel=4"),
		// What was written goes soon, or it is gigabytes on a disk that everybody waits
		// for. The topic to read is never as large.
		localstack.KafkaConfig(map[string]string{
			"log.segment.bytes":               "33554432",
			"log.retention.bytes":             "268435456",
			"log.retention.check.interval.ms": "1000",
			"log.initial.task.delay.ms":       "1000",
			"log.segment.delete.delay.ms":     "1000",
		}))
	b.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	// Past the proxy that faults need.
	return strings.TrimPrefix(k.DirectURL(), "kafka://")
}

// bench is a broker of its own with a topic to write and one to read.
type bench struct {
	cluster *kfake.Cluster // nil: a real broker
	addrs   []string
	write   string // topics
	read    string
	raw     *kgo.Client
	conn    broker.Conn
	ids     []string
	bodies  [][]byte
	stock   int // messages to read
	groups  int
}

func newBench(b *testing.B, addr string, size int) *bench {
	stock := paired.Messages(100_000)
	if size > 1024 {
		stock = paired.Messages(40_000)
	}
	w := &bench{bodies: make([][]byte, benchMessages), ids: make([]string, benchMessages), stock: stock}
	for i := range w.ids {
		w.ids[i], w.bodies[i] = fmt.Sprintf("message-%08d", i), make([]byte, size)
	}
	var err error
	w.write, w.read = "write", "read"
	if addr != "" {
		w.addrs = []string{addr}
		run := time.Now().UnixNano()
		w.write, w.read = fmt.Sprintf("write-%d", run), fmt.Sprintf("read-%d", run)
	} else {
		if w.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(quick)); err != nil {
			b.Fatal(err)
		}
		w.addrs = w.cluster.ListenAddrs()
	}
	seeds := []kgo.Opt{kgo.SeedBrokers(w.addrs...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(4 * benchMessages)}
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
	pub, err := w.conn.OpenPublisher(b.Context(), w.read)
	if err != nil {
		b.Fatal(err)
	}
	ms := make([]broker.Message, stock)
	for i := range ms {
		ms[i] = broker.Message{ID: w.ids[i%benchMessages], Body: w.bodies[i%benchMessages]}
	}
	for some := range slices.Chunk(ms, benchMessages) {
		if _, err := pub.Publish(b.Context(), some...); err != nil {
			b.Fatal(err)
		}
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

func (w *bench) rawPublish(b *testing.B, messages int) time.Duration {
	w.empty(b)
	ctx := b.Context()
	var wait sync.WaitGroup
	wait.Add(messages)
	var once sync.Once
	var bad error
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			once.Do(func() { bad = err })
		}
		wait.Done()
	}
	begin := time.Now()
	for i := range messages {
		i %= benchMessages
		w.raw.Produce(ctx, &kgo.Record{Topic: w.write, Value: w.bodies[i], Headers: []kgo.RecordHeader{{Key: driver.HeaderID, Value: []byte(w.ids[i])}}}, done)
	}
	wait.Wait()
	took := time.Since(begin)
	if bad != nil {
		b.Fatal(bad)
	}
	return took
}

func (w *bench) ourPublish(b *testing.B, batcher *broker.Batcher, messages int) time.Duration {
	w.empty(b)
	ctx := b.Context()
	var wait sync.WaitGroup
	wait.Add(messages)
	var once sync.Once
	var bad error
	done := func(r broker.Receipt) {
		if r.Verdict != broker.Stored {
			once.Do(func() { bad = fmt.Errorf("%s: %w", r.Verdict, r.Err) })
		}
		wait.Done()
	}
	begin := time.Now()
	for i := range messages {
		i %= benchMessages
		batcher.Go(ctx, broker.Message{ID: w.ids[i], Body: w.bodies[i]}, done)
	}
	wait.Wait()
	took := time.Since(begin)
	if bad != nil {
		b.Fatal(bad)
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
	for n < w.stock {
		var k int
		k, last = commit(batch)
		n += k
	}
	took := time.Since(begin)
	if last != w.ids[(w.stock-1)%benchMessages] {
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
	for n < w.stock {
		var k int
		k, last = take(batch)
		n += k
	}
	took := time.Since(begin)
	if last != w.ids[(w.stock-1)%benchMessages] {
		b.Fatalf("ended with %s", last)
	}
	return took
}
