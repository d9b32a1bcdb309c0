package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
)

// BenchmarkLoop holds broker.Process against the same loop written by hand on
// franz-go's GroupTransactSession, in alternating pairs as BenchmarkRatio does: read,
// an output with ID and body for each input, commit.
//
//	ONCELINE_LOCAL=1 go test -run '^$' -bench Loop -benchtime 1x ./adapters/kafka
func BenchmarkLoop(b *testing.B) {
	w := newBench(b, benchServer(b), 256)
	defer w.close()
	for _, batch := range []int{100, 500} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			paired.Compare(b, benchMessages, func() time.Duration { return w.rawLoop(b, batch) }, func() time.Duration { return w.ourLoop(b, batch) })
		})
	}
}

func (w *bench) rawLoop(b *testing.B, batch int) time.Duration {
	w.empty(b)
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(w.addrs...), kgo.ConsumerGroup(w.group()), kgo.ConsumeTopics(w.read),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.TransactionalID("raw-loop"),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := b.Context()
	once := func(most int) int {
		fs := s.PollRecords(ctx, most)
		if err := fs.Err(); err != nil {
			b.Fatal(err)
		}
		if err := s.Begin(); err != nil {
			b.Fatal(err)
		}
		n := 0
		var bad kgo.FirstErrPromise
		fs.EachRecord(func(r *kgo.Record) {
			n++
			s.Produce(ctx, &kgo.Record{Topic: w.write, Value: r.Value, Headers: []kgo.RecordHeader{{Key: driver.HeaderID, Value: r.Headers[0].Value}}}, bad.Promise())
		})
		if ok, err := s.End(ctx, kgo.TransactionEndTry(bad.Err() == nil)); !ok || err != nil {
			b.Fatal(ok, err)
		}
		return n
	}
	n := once(1) // joins the group
	begin := time.Now()
	for n < benchMessages {
		n += once(batch)
	}
	return time.Since(begin)
}

func (w *bench) ourLoop(b *testing.B, batch int) time.Duration {
	w.empty(b)
	r, err := w.conn.OpenReceiver(b.Context(), w.read+"/"+w.group())
	if err != nil {
		b.Fatal(err)
	}
	x, err := broker.OpenTransactor(b.Context(), w.conn, "our-loop")
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := errors.Join(x.Close(b.Context()), r.Close(b.Context())); err != nil {
			b.Fatal(err)
		}
	}()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	n := 0
	var begin time.Time
	err = broker.Process(ctx, r, x, func(_ context.Context, in []broker.Delivery) ([]broker.Output, error) {
		if begin.IsZero() {
			begin = time.Now() // it has joined the group
		}
		out := make([]broker.Output, len(in))
		for i := range in {
			out[i] = broker.Output{Topic: w.write, Message: broker.Message{ID: in[i].ID, Body: in[i].Body}}
		}
		if n += len(in); n >= benchMessages {
			cancel()
		}
		return out, nil
	}, broker.ProcessOptions{Batch: batch, ErrorHook: func(err error) { b.Error(err) }})
	if err != nil || n != benchMessages {
		b.Fatal(n, err)
	}
	return time.Since(begin)
}
