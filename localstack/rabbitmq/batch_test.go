package rabbitmq_test

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	wire "github.com/onceline/onceline/localstack/rabbitmq/amqp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// dialRaw opens a connection and channel 1.
func dialRaw(t testing.TB, b *broker) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr(t, b.url))
	must(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	r := &raw{Conn: nc}
	must(t, r.open(0))
	_, err = nc.Write(methodFrame(1, wire.ChannelOpen, 0))
	must(t, err)
	_, _, err = r.method()
	must(t, err)
	return r
}

// Publishes that come in one piece are confirmed by one answer (RMQ-F-07), unless
// it would cover one that has none.
func TestConfirmsOfABatch(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind fault.Kind
		want []string
	}{
		{"all well", 0, []string{"60.80 5 true"}},
		{"a lost answer", fault.LoseResponse, []string{"60.80 1 false", "60.80 3 false", "60.80 4 false", "60.80 5 false"}},
		{"a lost request", fault.LoseRequest, []string{"60.80 1 false", "60.80 3 false", "60.80 4 false", "60.80 5 false"}},
		{"a refusal", fault.Error, []string{"60.80 1 false", "60.120 2 false", "60.80 5 true"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := start(t)
			ch := b.channel(t)
			queue(t, ch, "q", nil)
			queue(t, ch, "struck", nil)
			r := dialRaw(t, b)
			_, err := r.Write(methodFrame(1, wire.ConfirmSelect, 0))
			must(t, err)
			_, _, err = r.method()
			must(t, err)
			if tc.kind != 0 {
				must(t, b.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: tc.kind, Match: "struck"}, nil).Err())
			}
			var batch []byte
			for i := range 5 {
				key := "q"
				if i == 1 {
					key = "struck"
				}
				batch = append(batch, publishTo(1, key)...)
				batch = append(batch, contentHeader(1, wire.ClassBasic, 1)...)
				batch = append(batch, frame(wire.FrameBody, 1, 'x')...)
			}
			_, err = r.Write(append(batch, methodFrame(1, wire.AccessRequest, 0, 0)...))
			must(t, err)
			var got []string
			for answered := false; !answered || len(got) < len(tc.want); {
				m, d, err := r.method()
				must(t, err)
				if m == wire.AccessRequestOk {
					answered = true
					continue
				}
				got = append(got, fmt.Sprintf("%d.%d %d %v", m.Class(), m.Number(), d.Uint64(), d.Bit()))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("answers: %q, want %q", got, tc.want)
			}
		})
	}
}

// What is over the limit of a message isn't kept while it comes in.
func TestBodyOverTheLimitIsNotKept(t *testing.T) {
	b := start(t)
	r := dialRaw(t, b)
	const size = 96 << 20
	part := frame(wire.FrameBody, 1, make([]byte, 4088)...)
	_, err := r.Write(append(publishTo(1, "q"), contentHeader(1, wire.ClassBasic, size)...))
	must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parts := bytes.Repeat(part, 256)
	for sent := 0; sent < size-(2<<20); sent += 256 * 4088 {
		_, err := r.Write(parts)
		must(t, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d MiB are held of a message that will be refused", grown>>20)
	}
}

// A binding that is gone routes no more, whatever was routed by it before.
func TestUnbindTakesEffect(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "q", nil)
	must(t, ch.QueueBind("q", "k", "amq.direct", false, nil))
	for _, want := range []int{1, 1} {
		must(t, ch.Publish("amq.direct", "k", false, false, amqp.Publishing{}))
		if n := messages(t, ch, "q"); n != want {
			t.Errorf("%d messages, want %d", n, want)
		}
		must(t, ch.QueueUnbind("q", "k", "amq.direct", nil))
	}
	must(t, ch.QueueBind("q", "k", "amq.direct", false, nil))
	must(t, ch.Publish("amq.direct", "k", false, false, amqp.Publishing{}))
	if n := messages(t, ch, "q"); n != 2 {
		t.Errorf("%d messages after it was bound again", n)
	}
}

// A channel's limit counts the deliveries of all its consumers.
func TestGlobalPrefetch(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "a", nil)
	queue(t, ch, "b", nil)
	put(t, ch, "a", "1", "2")
	put(t, ch, "b", "3", "4", "5")
	c := b.channel(t)
	must(t, c.Qos(3, 0, true))
	fromA, err := c.Consume("a", "", false, false, false, false, nil)
	must(t, err)
	fromB, err := c.Consume("b", "", false, false, false, false, nil)
	must(t, err)
	expect(t, fromA, "1")
	expect(t, fromA, "2")
	d := expect(t, fromB, "3")
	if n := messages(t, ch, "b"); n != 2 {
		t.Fatalf("%d of 2 messages over the limit stayed in their queue", n)
	}
	must(t, d.Ack(true))
	expect(t, fromB, "4")
	expect(t, fromB, "5")
}

// What a connection gives back comes back once, though it has more consumers that
// could take it while it ends.
func TestConnectionGivesBackOnce(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "q", amqp.Table{"x-queue-type": "quorum"})
	put(t, ch, "q", "x")
	c := b.dial(t)
	first := subscribe(t, channel(t, c), "q", "", 10, nil)
	for range 3 {
		_ = subscribe(t, channel(t, c), "q", "", 10, nil)
	}
	expect(t, first, "x")
	must(t, c.Close())
	if d := fetch(t, ch, "q", "x"); d.Headers["x-delivery-count"] != int64(1) {
		t.Errorf("%v", d.Headers)
	}
}
