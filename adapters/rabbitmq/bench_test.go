package rabbitmq

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
)

// The benchmark holds the adapter against the raw SDK used well for the same
// promise, in pairs of runs that alternate:
//
//	ONCELINE_LOCAL=1 go test -run '^$' -bench '^BenchmarkRatio' -benchtime 1x ./adapters/rabbitmq
//
// With ONCELINE_LOCAL=1 the broker is the RabbitMQ that is installed here, one node,
// started here; ONCELINE_RABBITMQ=host:port names another one. With neither it is
// the emulator in this process.
//
// Publish: a Batcher over the adapter, against mandatory publishes with deferred
// confirms and as many of them in flight, with the same properties and headers.
// Receive: exact receives with a settle of the batch, one after the other, against
// qos, consume, cancel and one ack for the batch: the same promise. Window: the
// standing consumer against one with the same prefetch that acks each batch at
// once.
var benchMessages = paired.Messages(5000)

func BenchmarkRatio(b *testing.B) {
	h := &host{addr: os.Getenv("ONCELINE_RABBITMQ")}
	switch {
	case h.addr != "":
	case os.Getenv("ONCELINE_LOCAL") == "1":
		// Past the proxy that faults need.
		h.addr = strings.TrimPrefix(startMeasured(b).DirectURL(), "rabbitmq://")
	default:
		h = emulate(b)
	}
	for _, size := range []int{256, 4096} {
		for _, batch := range []int{100, 500} {
			w := newBench(b, h, batch)
			name := fmt.Sprintf("batch=%d/size=%d", batch, size)
			b.Run("publish/"+name, func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawPublish(b, size) },
					func() time.Duration { return w.batcherPublish(b, size, batch) })
			})
			b.Run("receive/"+name, func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawReceive(b, size, batch) },
					func() time.Duration { return w.ourReceive(b, w.conn, size, batch) })
			})
			b.Run("window/"+name, func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawWindow(b, size, batch) },
					func() time.Duration { return w.ourReceive(b, w.standing, size, batch) })
			})
		}
	}
}

// bench is one queue and a client for each side.
type bench struct {
	conn, standing broker.Conn
	raw            *amqp.Connection
	queue          string
	ids            int
}

func newBench(b *testing.B, h *host, batch int) *bench {
	w := &bench{conn: h.dial(b), standing: h.dial(b, Window(2*batch))}
	e := entity(b, w.conn)
	e.Topic = "/" + e.Subscription
	w.queue = e.Subscription
	var err error
	if w.raw, err = amqp.Dial("amqp://guest:guest@" + h.addr + "/"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.raw.Close() })
	return w
}

func (w *bench) channel(b *testing.B) *amqp.Channel {
	ch, err := w.raw.Channel()
	if err != nil {
		b.Fatal(err)
	}
	return ch
}

func (w *bench) purge(b *testing.B) {
	ch := w.channel(b)
	if _, err := ch.QueuePurge(w.queue, false); err != nil {
		b.Fatal(err)
	}
	_ = ch.Close()
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
	ch := w.channel(b)
	defer func() { _ = ch.Close() }()
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	now := time.Now()
	begin := time.Now()
	table := amqp.Table{driver.HeaderTime: driver.FormatTime(now)}
	marks := make([]*amqp.DeferredConfirmation, 0, benchMessages)
	wait := func(m *amqp.DeferredConfirmation) {
		if !m.Wait() {
			b.Fatal("nack")
		}
	}
	for i := range ids {
		if i >= defaultInFlight {
			wait(marks[i-defaultInFlight])
		}
		m, err := ch.PublishWithDeferredConfirm("", w.queue, true, false, amqp.Publishing{MessageId: ids[i], Body: body,
			DeliveryMode: amqp.Persistent, Timestamp: now, Headers: table})
		if err != nil {
			b.Fatal(err)
		}
		marks = append(marks, m)
	}
	for _, m := range marks[max(0, len(marks)-defaultInFlight):] {
		wait(m)
	}
	select {
	case r := <-returns:
		b.Fatal(r)
	default:
	}
	return time.Since(begin)
}

func (w *bench) batcherPublish(b *testing.B, size, batch int) time.Duration {
	w.purge(b)
	ids, body := w.nextIDs(), make([]byte, size)
	p := broker.NewBatcher(publisherOf(b, w.conn, "/"+w.queue), max(2, defaultInFlight/batch), batch)
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

func (w *bench) fill(b *testing.B, size int) {
	w.purge(b)
	p := publisherOf(b, w.conn, "/"+w.queue)
	defer closing(b, p)
	ids, body := w.nextIDs(), make([]byte, size)
	ms := make([]broker.Message, len(ids))
	for i := range ids {
		ms[i] = broker.Message{ID: ids[i], Body: body}
	}
	if _, err := p.Publish(b.Context(), ms...); err != nil {
		b.Fatal(err)
	}
}

func (w *bench) rawReceive(b *testing.B, size, batch int) time.Duration {
	w.fill(b, size)
	ch := w.channel(b)
	defer func() { _ = ch.Close() }()
	begin := time.Now()
	if err := ch.Qos(batch, 0, false); err != nil {
		b.Fatal(err)
	}
	for got := 0; got < benchMessages; {
		in, err := ch.Consume(w.queue, "raw", false, false, false, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		ds := make([]amqp.Delivery, 0, batch)
		for len(ds) < batch {
			ds = append(ds, <-in)
		}
		if err := ch.Cancel("raw", false); err != nil {
			b.Fatal(err)
		}
		if err := ds[len(ds)-1].Ack(true); err != nil {
			b.Fatal(err)
		}
		got += len(ds)
	}
	if _, err := ch.QueueDeclarePassive(w.queue, true, false, false, false, nil); err != nil { // the acks are there
		b.Fatal(err)
	}
	return time.Since(begin)
}

func (w *bench) rawWindow(b *testing.B, size, batch int) time.Duration {
	w.fill(b, size)
	ch := w.channel(b)
	defer func() { _ = ch.Close() }()
	begin := time.Now()
	if err := ch.Qos(2*batch, 0, false); err != nil {
		b.Fatal(err)
	}
	in, err := ch.Consume(w.queue, "raw", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	for got := 1; got <= benchMessages; got++ {
		d := <-in
		if got%batch == 0 || got == benchMessages {
			if err := d.Ack(true); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := ch.QueueDeclarePassive(w.queue, true, false, false, false, nil); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

func (w *bench) ourReceive(b *testing.B, c broker.Conn, size, batch int) time.Duration {
	w.fill(b, size)
	r := receiverOf(b, c, w.queue)
	ctx := context.Background()
	ss := make([]broker.Settlement, batch)
	begin := time.Now()
	for got := 0; got < benchMessages; {
		ds, err := r.Receive(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		for i := range ds {
			ss[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
		}
		if err := r.Settle(ctx, ss[:len(ds)]); err != nil {
			b.Fatal(err)
		}
		got += len(ds)
	}
	var ch *amqp.Channel
	if !r.As(&ch) {
		b.Fatal("no channel")
	}
	if _, err := ch.QueueDeclarePassive(w.queue, true, false, false, false, nil); err != nil { // the acks are there
		b.Fatal(err)
	}
	took := time.Since(begin)
	closing(b, r)
	return took
}
