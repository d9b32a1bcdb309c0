package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq"
	wire "github.com/onceline/onceline/localstack/rabbitmq/amqp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// FuzzServer feeds a server what no client sends, before and after the login. It
// must neither panic nor hang, and serve others as before.
func FuzzServer(f *testing.F) {
	f.Add(true, append(methodFrame(1, wire.ChannelOpen, 0), publishTo(1, "q")...))
	f.Add(true, bytes.Join([][]byte{methodFrame(1, wire.ChannelOpen, 0), publishTo(1, "q"), contentHeader(1, 60, 3), frame(wire.FrameBody, 1, 'a', 'b', 'c')}, nil))
	f.Add(true, bytes.Join([][]byte{methodFrame(1, wire.ChannelOpen, 0), methodFrame(1, wire.BasicConsume, 0, 0, 1, 'q', 1, 't', 0, 0, 0, 0, 0)}, nil))
	f.Add(true, bytes.Join([][]byte{methodFrame(1, wire.ChannelOpen, 0), methodFrame(1, wire.QueueDeclare, 0, 0, 1, 'z', 2, 0, 0, 0, 0)}, nil))
	f.Add(true, bytes.Join([][]byte{methodFrame(1, wire.ChannelOpen, 0), methodFrame(1, wire.TxSelect), publishTo(1, "q"), contentHeader(1, 60, 0), methodFrame(1, wire.TxCommit)}, nil))
	f.Add(false, append(wire.Protocol[:], startOk("guest", "guest")...))
	f.Add(false, []byte("AMQP\x03\x01\x00\x00"))
	f.Add(false, []byte("GET / HTTP/1.1\r\n\r\n"))
	s := rabbitmq.New()
	f.Cleanup(func() { _ = s.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, login bool, input []byte) {
		near, far := net.Pipe()
		var served sync.WaitGroup
		served.Go(func() { s.ServeConn(far) })
		r := &raw{Conn: near}
		if login {
			if err := r.open(0); err != nil {
				t.Fatal(err)
			}
		}
		served.Go(func() { _, _ = io.Copy(io.Discard, near) })
		_ = near.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := near.Write(input); errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("the server reads no more")
		}
		_ = near.Close()
		served.Wait()

		near, far = net.Pipe()
		served.Go(func() { s.ServeConn(far) })
		if err := (&raw{Conn: near}).open(0); err != nil {
			t.Fatalf("another client: %v", err)
		}
		_ = near.Close()
		served.Wait()
	})
}

// Announced bodies cost no memory before they come.
func TestAnnouncedBodiesCostNothing(t *testing.T) {
	b := start(t)
	nc, err := net.Dial("tcp", addr(t, b.url))
	must(t, err)
	defer nc.Close()
	r := &raw{Conn: nc}
	must(t, r.open(0))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var batch []byte
	for id := range uint16(2000) {
		batch = append(batch, methodFrame(id+1, wire.ChannelOpen, 0)...)
		batch = append(batch, publishTo(id+1, "q")...)
		batch = append(batch, contentHeader(id+1, 60, 16<<20)...)
	}
	go func() { _, _ = nc.Write(batch) }()
	for range 2000 {
		if m, _, err := r.method(); err != nil || m != wire.ChannelOpenOk {
			t.Fatal(m, err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("2,000 announced bodies of 16 MiB took %d MiB", grown>>20)
	}
}

func addr(t testing.TB, url string) string {
	t.Helper()
	u, err := amqp.ParseURI(url)
	must(t, err)
	return net.JoinHostPort(u.Host, portText(u.Port))
}

// A body over the limit is refused when all of it has come, and not kept.
func TestMaxMessageSize(t *testing.T) {
	b := start(t, rabbitmq.WithMaxMessageSize(1000))
	ch := b.channel(t)
	queue(t, ch, "q", nil)
	put(t, ch, "q", string(bytes.Repeat([]byte("x"), 1000)))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	must(t, ch.Publish("", "q", false, false, amqp.Publishing{Body: bytes.Repeat([]byte("x"), 300_000)}))
	want := "PRECONDITION_FAILED - message size 300000 is larger than configured max size 1000"
	if e := <-closed; e == nil || e.Reason != want {
		t.Errorf("closed with %v", e)
	}
	if n := messages(t, b.channel(t), "q"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// A client that doesn't read holds up nobody else, and takes a bounded share of
// the memory: what doesn't fit its connection stays in the queue.
func TestClientThatDoesNotRead(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "q", nil)
	nc, err := net.Dial("tcp", addr(t, b.url))
	must(t, err)
	defer nc.Close()
	r := &raw{Conn: nc}
	must(t, r.open(0))
	_, err = nc.Write(append(methodFrame(1, wire.ChannelOpen, 0), methodFrame(1, wire.BasicConsume, 0, 0, 1, 'q', 1, 't', 2, 0, 0, 0, 0)...))
	must(t, err)
	for range 2 { // the answers; from now on it reads nothing
		_, _, err := r.method()
		must(t, err)
	}
	body := string(bytes.Repeat([]byte("x"), 1<<20))
	for range 40 {
		put(t, ch, "q", body)
	}
	left := messages(t, ch, "q")
	if left < 10 {
		t.Errorf("%d of 40 MiB left in the queue, the rest went to a client that doesn't read", left)
	}
	got := 0
	for got < 40 { // it goes on when it is read
		f, err := r.frame()
		must(t, err)
		if f.Type == wire.FrameHeader {
			got++
		}
	}
	if n := messages(t, ch, "q"); n != 0 {
		t.Errorf("%d messages left", n)
	}
}

// A client that sends requests and reads no answers isn't read any more.
func TestRequestsWithoutReading(t *testing.T) {
	b := start(t)
	nc, err := net.Dial("tcp", addr(t, b.url))
	must(t, err)
	defer nc.Close()
	r := &raw{Conn: nc}
	must(t, r.open(0))
	_, err = nc.Write(methodFrame(1, wire.ChannelOpen, 0))
	must(t, err)
	batch := bytes.Repeat(methodFrame(1, wire.BasicQos, 0, 0, 0, 0, 0, 1, 0), 4000)
	_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
	sent := 0
	for {
		n, err := nc.Write(batch)
		if sent += n; err != nil {
			break
		}
		if sent > 256<<20 {
			t.Fatal("the server reads on though nobody reads its answers")
		}
	}
	_ = b.channel(t) // others don't wait
}

// Who connects and doesn't log in is hung up on after 10 s.
func TestSlowHandshake(t *testing.T) {
	for _, say := range []string{"", "AM", "AMQP\x00\x00\x09\x01"} {
		bubble(t, func(t *testing.T, b *inside) {
			nc := b.pipe()
			begin := time.Now()
			_, err := nc.Write([]byte(say))
			must(t, err)
			_, _ = io.Copy(io.Discard, nc)
			if d := time.Since(begin); d != 10*time.Second {
				t.Errorf("after %q it took %v", say, d)
			}
			_ = nc.Close()
			open := b.channel(t)
			time.Sleep(time.Minute)
			queue(t, open, "q", nil)
		})
	}
}

// Close ends connections that haven't said anything.
func TestCloseWithSilentConnections(t *testing.T) {
	b := start(t)
	for _, say := range []string{"", "AM", "AMQP\x00\x00\x09\x01"} {
		nc, err := net.Dial("tcp", addr(t, b.url))
		must(t, err)
		defer nc.Close()
		_, err = nc.Write([]byte(say))
		must(t, err)
	}
	_ = b.channel(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	must(t, b.Close(ctx))
	must(t, b.Close(ctx))
}

// Connections and channels that come and go leave nothing behind.
func TestChurn(t *testing.T) {
	b := start(t)
	setup := b.channel(t)
	queue(t, setup, "q", nil)
	put(t, setup, "q", "x")
	for i := range 100 {
		c, err := amqp.Dial(b.url)
		must(t, err)
		ch := channel(t, c)
		ds := subscribe(t, ch, "q", "", 1, nil)
		d := expect(t, ds, "x")
		if d.Redelivered != (i > 0) {
			t.Errorf("delivery %d has redelivered=%v", i+1, d.Redelivered)
		}
		if i%2 == 0 {
			must(t, c.Close())
		} else {
			must(t, ch.Close())
			must(t, c.Close())
		}
	}
	q, err := setup.QueueDeclarePassive("q", true, false, false, false, nil)
	must(t, err)
	if q.Messages != 1 || q.Consumers != 0 {
		t.Errorf("%d messages, %d consumers", q.Messages, q.Consumers)
	}
}
