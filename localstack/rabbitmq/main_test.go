package rabbitmq_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a server on the loopback interface.
type broker struct {
	*rabbitmq.Server
	url string
}

func start(t testing.TB, options ...rabbitmq.Option) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := rabbitmq.New(options...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &broker{s, "amqp://guest:guest@" + l.Addr().String() + "/"}
}

func (b *broker) dial(t testing.TB) *amqp.Connection {
	t.Helper()
	c, err := amqp.Dial(b.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (b *broker) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	return channel(t, b.dial(t))
}

func channel(t testing.TB, c *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
