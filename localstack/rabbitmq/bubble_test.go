package rabbitmq_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/rabbitmq"
	amqp "github.com/rabbitmq/amqp091-go"
)

// bubble runs a test on a broker without sockets, in time of its own.
func bubble(t *testing.T, f func(t *testing.T, b *inside), options ...rabbitmq.Option) {
	bubbletest.Run(t, func(t *testing.T) {
		b := &inside{Server: rabbitmq.New(options...)}
		defer func() { // also where the test has failed
			for _, c := range b.conns {
				_ = c.Close()
			}
			if err := b.Close(context.Background()); err != nil {
				t.Error(err)
			}
			b.served.Wait()
		}()
		f(t, b)
	})
}

// inside is a broker in a bubble.
type inside struct {
	*rabbitmq.Server
	served sync.WaitGroup
	conns  []*amqp.Connection
}

func (b *inside) pipe() net.Conn {
	near, far := net.Pipe()
	b.served.Go(func() { b.ServeConn(far) })
	return near
}

func (b *inside) dial(t *testing.T) *amqp.Connection {
	t.Helper()
	c, err := amqp.DialConfig("amqp://guest:guest@inside/", amqp.Config{
		Heartbeat: 10 * time.Second, Dial: func(string, string) (net.Conn, error) { return b.pipe(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.conns = append(b.conns, c)
	return c
}

func (b *inside) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	return channel(t, b.dial(t))
}

// queue declares a durable queue.
func queue(t testing.TB, ch *amqp.Channel, name string, args amqp.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// put publishes bodies, persistent and confirmed.
func put(t testing.TB, ch *amqp.Channel, key string, bodies ...string) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		c, err := ch.PublishWithDeferredConfirm("", key, true, false, amqp.Publishing{Body: []byte(body), DeliveryMode: 2})
		if err != nil {
			t.Fatal(err)
		}
		if !c.Wait() {
			t.Fatalf("%q was not confirmed", body)
		}
	}
}

func subscribe(t testing.TB, ch *amqp.Channel, name, tag string, prefetch int, args amqp.Table) <-chan amqp.Delivery {
	t.Helper()
	if err := ch.Qos(prefetch, 0, false); err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume(name, tag, false, false, false, false, args)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// expect takes the next delivery, which must have this body.
func expect(t testing.TB, ds <-chan amqp.Delivery, body string) amqp.Delivery {
	t.Helper()
	select {
	case d, ok := <-ds:
		if !ok {
			t.Fatalf("no more deliveries, where %q was expected", body)
		}
		if string(d.Body) != body {
			t.Fatalf("got %q, want %q", d.Body, body)
		}
		return d
	case <-time.After(10 * time.Second):
		t.Fatalf("got nothing, want %q", body)
	}
	return amqp.Delivery{}
}

// fetch takes the next message by basic.get; "" expects none.
func fetch(t testing.TB, ch *amqp.Channel, name, body string) amqp.Delivery {
	t.Helper()
	d, ok, err := ch.Get(name, false)
	if err != nil {
		t.Fatal(err)
	}
	if ok != (body != "") || string(d.Body) != body {
		t.Fatalf("got %q, want %q", d.Body, body)
	}
	return d
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func messages(t testing.TB, ch *amqp.Channel, name string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	must(t, err)
	return q.Messages
}

func dialer(b *inside) func(string, string) (net.Conn, error) {
	return func(string, string) (net.Conn, error) { return b.pipe(), nil }
}

func portText(port int) string { return strconv.Itoa(port) }
