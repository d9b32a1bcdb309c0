package servicebus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

const benchMessages = 1000

// BenchmarkRatio holds the adapter against the raw SDK used well for the same
// promise: batches with a message ID each and the time in a property of its own;
// messages received in batches by a call that can be ended, and completed, within as
// long and by as many workers as with the adapter. In publish-untimed the raw messages
// lack the property: what differs from publish is what that costs on the wire, in the
// model and where the queue is emptied. In receive-standing the raw side's workers are
// there before and after, as the adapter's are.
func BenchmarkRatio(b *testing.B) {
	for _, size := range []int{256, 4096} {
		for _, batch := range []int{1, 10, 50} {
			row := func(name string, raw, ours func(w *bench) time.Duration) {
				b.Run(fmt.Sprintf("%s/batch=%d/size=%d", name, batch, size), func(b *testing.B) {
					w := newBench(b, size)
					paired.Compare(b, benchMessages, func() time.Duration { return raw(w) }, func() time.Duration { return ours(w) })
				})
			}
			publish := func(w *bench) time.Duration { return w.ourPublish(b, batch) }
			receive := func(w *bench) time.Duration { return w.ourReceive(b, batch) }
			row("publish", func(w *bench) time.Duration { return w.rawPublish(b, batch, true) }, publish)
			row("publish-untimed", func(w *bench) time.Duration { return w.rawPublish(b, batch, false) }, publish)
			row("receive", func(w *bench) time.Duration { return w.rawReceive(b, batch, false) }, receive)
			row("receive-standing", func(w *bench) time.Duration { return w.rawReceive(b, batch, true) }, receive)
		}
	}
}

type bench struct {
	n      *namespace
	name   string
	body   []byte
	ids    int
	sender *azservicebus.Sender
	taker  *azservicebus.Receiver
	purger *azservicebus.Receiver
	pub    broker.Publisher
	rcv    broker.Receiver
}

func newBench(b *testing.B, size int) *bench {
	w := &bench{n: start(b), name: entity().Topic, body: make([]byte, size)}
	if err := w.n.CreateQueue(w.name, emulator.QueueProperties{DuplicateDetection: true}); err != nil {
		b.Fatal(err)
	}
	ours, raw := w.n.dial(b), w.n.dial(b)
	w.pub, w.rcv = publisherOf(b, ours, w.name), receiverOf(b, ours, w.name)
	var client *azservicebus.Client
	var err error
	if !raw.As(&client) {
		b.Fatal("no client")
	}
	if w.sender, err = client.NewSender(w.name, nil); err != nil {
		b.Fatal(err)
	}
	if w.taker, err = client.NewReceiverForQueue(w.name, nil); err != nil {
		b.Fatal(err)
	}
	if w.purger, err = client.NewReceiverForQueue(w.name, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}); err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *bench) id() string {
	w.ids++
	return fmt.Sprintf("bench-message-%09d", w.ids)
}

func (w *bench) rawPublish(b *testing.B, batch int, timed bool) time.Duration {
	ids := make([]string, benchMessages)
	for i := range ids {
		ids[i] = w.id()
	}
	defer w.purge(b)
	ctx := b.Context()
	begin := time.Now()
	for from := 0; from < benchMessages; from += batch {
		mb, err := w.sender.NewMessageBatch(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		for i := from; i < from+batch; i++ {
			m := azservicebus.Message{MessageID: &ids[i], Body: w.body}
			if timed {
				m.ApplicationProperties = map[string]any{driver.HeaderTime: driver.FormatTime(begin)}
			}
			if err := mb.AddMessage(&m, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.sender.SendMessageBatch(ctx, mb, nil); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

func (w *bench) ourPublish(b *testing.B, batch int) time.Duration {
	ms := make([]broker.Message, benchMessages)
	for i := range ms {
		ms[i] = broker.Message{ID: w.id(), Body: w.body}
	}
	defer w.purge(b)
	ctx := b.Context()
	begin := time.Now()
	for from := 0; from < benchMessages; from += batch {
		if _, err := w.pub.Publish(ctx, ms[from:from+batch]...); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

// purge empties the queue, outside of what is timed.
func (w *bench) purge(b *testing.B) {
	for n := 0; n < benchMessages; {
		ms, err := w.purger.ReceiveMessages(context.Background(), benchMessages-n, nil)
		if err != nil {
			b.Fatal(err)
		}
		n += len(ms)
	}
}

func (w *bench) fill(b *testing.B) {
	ms := make([]broker.Message, benchMessages)
	for i := range ms {
		ms[i] = broker.Message{ID: w.id(), Body: w.body}
	}
	if _, err := w.pub.Publish(b.Context(), ms...); err != nil {
		b.Fatal(err)
	}
}

// rawReceive completes a batch by workers that are started for it, or by some that
// wait for one batch after the other.
func (w *bench) rawReceive(b *testing.B, batch int, standing bool) time.Duration {
	w.fill(b)
	jobs := make(chan func())
	defer close(jobs)
	if standing {
		for range min(batch, settleWorkers) - 1 {
			go func() { // ends with jobs
				for work := range jobs {
					work()
				}
			}()
		}
	}
	begin := time.Now()
	for n := 0; n < benchMessages; {
		ms, err := w.taker.ReceiveMessages(b.Context(), min(batch, benchMessages-n), nil)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.Context(), defaultSettleTimeout)
		var next atomic.Int64
		var wait sync.WaitGroup
		work := func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(ms) {
					return
				}
				if err := w.taker.CompleteMessage(ctx, ms[i], nil); err != nil {
					b.Error(err)
				}
			}
		}
		done := func() {
			work()
			wait.Done()
		}
		for range min(len(ms), settleWorkers) - 1 {
			if standing {
				wait.Add(1)
				jobs <- done
			} else {
				wait.Go(work)
			}
		}
		work()
		wait.Wait()
		cancel()
		n += len(ms)
	}
	return time.Since(begin)
}

func (w *bench) ourReceive(b *testing.B, batch int) time.Duration {
	w.fill(b)
	ctx, settlements := b.Context(), make([]broker.Settlement, 0, batch)
	begin := time.Now()
	for n := 0; n < benchMessages; {
		ds, err := w.rcv.Receive(ctx, min(batch, benchMessages-n))
		if err != nil {
			b.Fatal(err)
		}
		settlements = settlements[:0]
		for i := range ds {
			settlements = append(settlements, broker.Settlement{Delivery: &ds[i], Action: broker.Ack})
		}
		if err := w.rcv.Settle(ctx, settlements); err != nil {
			b.Fatal(err)
		}
		n += len(ds)
	}
	return time.Since(begin)
}
