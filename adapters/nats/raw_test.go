package nats

import (
	"errors"
	"fmt"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// raw is a client with a stream of its own.
type raw struct {
	*testing.T
	nc       *natsgo.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.Consumer
	name     string // of the stream, and its only subject
}

func rawTo(t *testing.T, url string) *raw {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond), natsgo.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &raw{T: t, nc: nc, js: js, name: fmt.Sprint("raw", names.Add(1))}
}

// rawStream makes the stream on the shared server and, if change isn't nil, a
// consumer.
func rawStream(t *testing.T, s jetstream.StreamConfig, change func(*jetstream.ConsumerConfig)) *raw {
	t.Helper()
	c := rawTo(t, shared.ClientURL())
	c.create(s, change)
	return c
}

func (c *raw) create(s jetstream.StreamConfig, change func(*jetstream.ConsumerConfig)) {
	c.Helper()
	s.Name, s.Subjects = c.name, []string{c.name, c.name + ".>"}
	var err error
	if c.stream, err = c.js.CreateStream(c.Context(), s); err != nil {
		c.Fatal(err)
	}
	if change == nil {
		return
	}
	k := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute}
	change(&k)
	if c.consumer, err = c.stream.CreateConsumer(c.Context(), k); err != nil {
		c.Fatal(err)
	}
}

func (c *raw) publish(id string) *jetstream.PubAck {
	c.Helper()
	a, err := c.js.Publish(c.Context(), c.name, []byte(id), jetstream.WithMsgID(id))
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func (c *raw) next(within time.Duration) jetstream.Msg {
	c.Helper()
	m, err := c.consumer.Next(jetstream.FetchMaxWait(within))
	if err != nil {
		c.Fatal(err)
	}
	return m
}

func (c *raw) nothing(within time.Duration) {
	c.Helper()
	if m, err := c.consumer.Next(jetstream.FetchMaxWait(within)); err == nil {
		c.Errorf("%q came", m.Data())
	}
}

func (c *raw) delivered(m jetstream.Msg) uint64 {
	c.Helper()
	meta, err := m.Metadata()
	if err != nil {
		c.Fatal(err)
	}
	return meta.NumDelivered
}

func (c *raw) confirm(m jetstream.Msg) {
	c.Helper()
	if err := m.DoubleAck(c.Context()); err != nil {
		c.Fatal(err)
	}
}

func plain(*jetstream.ConsumerConfig) {}

func code(err error) int {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode)
	}
	return 0
}
