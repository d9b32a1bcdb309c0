package sqs

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/broker/driver/paired"
	localsqs "github.com/onceline/onceline/localstack/sqs"
)

// The benchmark holds the adapter against the raw SDK used well for the same
// promise, on the emulator without a network, in pairs of runs that alternate:
//
//	go test -run '^$' -bench Ratio -benchtime 1x ./adapters/sqs
//
// Publish: SendMessageBatch of ten, each message with its ID and time as
// attributes. Receive: ReceiveMessage of ten with all attributes, then one
// DeleteMessageBatch whose entries are looked at. The SDK checks the MD5 of each
// body, as the adapter does. Binary bodies are apart, beside raw text of the same
// size: they have to travel in base64, a third longer.
var benchMessages = paired.Messages(2000)

func BenchmarkRatio(b *testing.B) {
	for _, fifo := range []bool{false, true} {
		w := newBench(b, fifo)
		kind := map[bool]string{false: "standard", true: "fifo"}[fifo]
		for _, size := range []int{256, 4096} {
			b.Run(fmt.Sprintf("%s/publish/batch=10/size=%d", kind, size), func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawPublish(b, size) },
					func() time.Duration { return w.ourPublish(b, size, 'x') })
			})
			b.Run(fmt.Sprintf("%s/receive/batch=10/size=%d", kind, size), func(b *testing.B) {
				paired.Compare(b, benchMessages, func() time.Duration { return w.rawReceive(b, size) },
					func() time.Duration { return w.ourReceive(b, size) })
			})
		}
		b.Run(kind+"/publish-binary/batch=10/size=4096", func(b *testing.B) {
			paired.Compare(b, benchMessages, func() time.Duration { return w.rawPublish(b, 4096) },
				func() time.Duration { return w.ourPublish(b, 4096, 0) })
		})
	}
}

// bench is an emulator of its own, and a client for each side.
type bench struct {
	fifo  bool
	conn  broker.Conn
	raw   *awssqs.Client
	names int
	ids   int
}

func newBench(b testing.TB, fifo bool) *bench {
	s := localsqs.New()
	client := func() *awssqs.Client {
		return awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: ptr("http://sqs.test"), Credentials: anonymous{},
			HTTPClient: &http.Client{Transport: s.Transport()}})
	}
	c, err := New(client(), FIFO(fifo))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closing(b, c) })
	return &bench{fifo: fifo, conn: c, raw: client()}
}

// queue is a new one; the last is deleted.
func (w *bench) queue(b testing.TB) (name, url string) {
	if w.names > 0 {
		if err := w.conn.Delete(b.Context(), broker.Entity{Topic: fmt.Sprint("q", w.names)}); err != nil {
			b.Fatal(err)
		}
	}
	w.names++
	name = fmt.Sprint("q", w.names)
	ensure(b, w.conn, broker.Entity{Topic: name})
	var q Queue
	p := publisherOf(b, w.conn, name)
	defer closing(b, p)
	p.As(&q)
	return name, q.URL
}

func (w *bench) nextIDs() []string {
	ids := make([]string, benchMessages)
	for i := range ids {
		w.ids++
		ids[i] = fmt.Sprintf("message-%08d", w.ids)
	}
	return ids
}

func payload(size int, fill byte) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = fill
	}
	return body
}

func (w *bench) rawPublish(b testing.TB, size int) time.Duration {
	_, url := w.queue(b)
	body, ids, text, ctx := payload(size, 'x'), w.nextIDs(), "String", b.Context()
	now := time.Now()
	begin := time.Now()
	for from := 0; from < len(ids); from += batchSize {
		stamp := driver.FormatTime(now)
		entries := make([]types.SendMessageBatchRequestEntry, batchSize)
		for i := range entries {
			id := ids[from+i]
			entries[i] = types.SendMessageBatchRequestEntry{Id: &entryIDs[i], MessageBody: ptr(string(body)),
				MessageAttributes: map[string]types.MessageAttributeValue{
					driver.HeaderID:   {DataType: &text, StringValue: &id},
					driver.HeaderTime: {DataType: &text, StringValue: &stamp},
				}}
			if w.fifo {
				entries[i].MessageDeduplicationId, entries[i].MessageGroupId = &id, &id
			}
		}
		out, err := w.raw.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		if err != nil || len(out.Successful) != batchSize {
			b.Fatal(err, out)
		}
	}
	return time.Since(begin)
}

func (w *bench) ourPublish(b testing.TB, size int, fill byte) time.Duration {
	name, _ := w.queue(b)
	p := publisherOf(b, w.conn, name)
	defer closing(b, p)
	body, ids, ctx := payload(size, fill), w.nextIDs(), b.Context()
	now := time.Now()
	batch := make([]broker.Message, batchSize)
	begin := time.Now()
	for from := 0; from < len(ids); from += batchSize {
		for i := range batch {
			batch[i] = broker.Message{ID: ids[from+i], Body: body, Time: now}
		}
		if _, err := p.Publish(ctx, batch...); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}

func (w *bench) filled(b testing.TB, size int) (name, url string) {
	name, url = w.queue(b)
	p := publisherOf(b, w.conn, name)
	defer closing(b, p)
	body := payload(size, 'x')
	ms := make([]broker.Message, benchMessages)
	for i, id := range w.nextIDs() {
		ms[i] = broker.Message{ID: id, Body: body}
	}
	publish(b, p, ms...)
	return name, url
}

func (w *bench) rawReceive(b testing.TB, size int) time.Duration {
	_, url := w.filled(b, size)
	system := systemAttributes
	if w.fifo {
		system = fifoAttributes
	}
	ctx := b.Context()
	begin := time.Now()
	for n := 0; n < benchMessages; {
		in := awssqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: batchSize,
			MessageAttributeNames: allAttributes, MessageSystemAttributeNames: system, WaitTimeSeconds: 1}
		if w.fifo { // so that a lost answer can be asked for again, as the adapter does
			in.ReceiveRequestAttemptId = ptr("attempt-" + strconv.Itoa(n))
		}
		out, err := w.raw.ReceiveMessage(ctx, &in)
		if err != nil || len(out.Messages) == 0 {
			b.Fatal(err)
		}
		entries := make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))
		for i := range out.Messages {
			m := &out.Messages[i]
			sink = []byte(*m.Body)
			if id := m.MessageAttributes[driver.HeaderID].StringValue; id == nil || *id == "" {
				b.Fatal("no ID")
			}
			entries[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: m.ReceiptHandle}
		}
		done, err := w.raw.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
		if err != nil || len(done.Failed) > 0 {
			b.Fatal(err)
		}
		n += len(entries)
	}
	return time.Since(begin)
}

// sink keeps what a handler would read.
var sink []byte

func (w *bench) ourReceive(b testing.TB, size int) time.Duration {
	name, _ := w.filled(b, size)
	r := receiverOf(b, w.conn, name)
	defer closing(b, r)
	ctx, settlements := b.Context(), make([]broker.Settlement, 0, batchSize)
	begin := time.Now()
	for n := 0; n < benchMessages; {
		ds, err := r.Receive(ctx, batchSize)
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

// BenchmarkAllocs shows what a message costs in allocations on either side.
func BenchmarkAllocs(b *testing.B) {
	for _, fifo := range []bool{false, true} {
		w := newBench(b, fifo)
		for name, run := range map[string]func(){
			"raw-publish": func() { w.rawPublish(b, 256) }, "our-publish": func() { w.ourPublish(b, 256, 'x') },
			"raw-receive": func() { w.rawReceive(b, 256) }, "our-receive": func() { w.ourReceive(b, 256) },
		} {
			b.Run(fmt.Sprintf("fifo=%v/%s", fifo, name), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					run()
				}
			})
		}
	}
}
