package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/pipeline"
)

// BenchmarkPipeline: what a message costs from a source in memory to a sink in
// memory, with a checkpoint in SQLite for every 10,000.
func BenchmarkPipeline(b *testing.B) {
	s := openStore(b, file(b))
	l := newLog("0")
	msgs := make([]broker.Message, b.N)
	for i := range msgs {
		msgs[i] = broker.Message{ID: fmt.Sprint(i), Key: "k", Body: []byte("0123456789")}
	}
	l.add("0", msgs...)
	t := newTransactions()
	t.scope.Limit = 0
	done := make(chan struct{})
	total := uint64(0)
	o := options()
	o.Interval, o.MaxInput = time.Second, 10_000
	o.Checkpointed = func(i pipeline.Info) {
		if total += i.Input; total == uint64(b.N) {
			close(done)
		}
	}
	source := l.source("in")
	source.Batch = 500
	p, err := pipeline.New(pipeline.Config[*sql.Tx]{Name: "bench", Store: s, Sources: []pipeline.Source{source}, Options: o,
		Sink: pipeline.Transactional[*sql.Tx](t, "bench", pipeline.TransactionalOptions{}),
		Operator: pipeline.Operator{Process: func(_ context.Context, in *pipeline.Input, out *pipeline.Out) error {
			out.Emit("out", broker.Message{Key: in.Key, Body: in.Body})
			return nil
		}}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- p.Run(ctx) }()
	<-done
	b.StopTimer()
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
