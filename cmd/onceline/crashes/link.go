package crashes

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"

	_ "github.com/onceline/onceline/adapters/nats"     // by URL
	_ "github.com/onceline/onceline/adapters/rabbitmq" // by URL
)

// The brokers, which are embedded.
const (
	NATS     = "nats"
	RabbitMQ = "rabbitmq"
)

// Brokers returns their names.
func Brokers() []string { return []string{NATS, RabbitMQ} }

// link is a broker of a cell's own, with what it publishes to.
type link struct {
	emulator localstack.Emulator
	url      string
	conn     broker.Conn
	pub      broker.Publisher
	entity   broker.Entity
}

// startLink starts a broker. A store by position gets a log of RabbitMQ's, a stream.
func startLink(ctx context.Context, name string, log bool) (*link, error) {
	l := &link{entity: broker.Entity{Topic: "orders", Subscription: "orders/all", Lease: brokerLease}}
	var err error
	switch name {
	case NATS:
		l.entity.Subscription = "ORDERS/all"
		l.emulator, err = localstack.StartNATS(ctx)
	case RabbitMQ:
		l.emulator, err = localstack.StartRabbitMQ(ctx)
	default:
		err = fmt.Errorf("there is no broker %q", name)
	}
	if err != nil {
		return nil, err
	}
	l.url = l.emulator.URL()
	if name == RabbitMQ {
		query := "queue=quorum&consumer-timeout=" + brokerLease.String()
		if log {
			_, port, err := net.SplitHostPort(l.emulator.Address())
			if err != nil {
				return nil, err
			}
			query, l.entity.Lease = "queue=stream&heartbeat=1s&stream-port="+port, 0 // one consumer at a time, until it is silent for two heartbeats
		}
		l.url += "?" + query
		if strings.Contains(l.emulator.URL(), "?") {
			l.url = l.emulator.URL() + "&" + query
		}
	}
	if l.conn, err = broker.Open(ctx, l.url); err == nil {
		if err = l.conn.Ensure(ctx, l.entity); err == nil {
			l.pub, err = l.conn.OpenPublisher(ctx, l.entity.Topic)
		}
	}
	if err != nil {
		_ = l.close()
		return nil, err
	}
	return l, nil
}

// publish publishes messages until each is there.
func (l *link) publish(ctx context.Context, msgs []broker.Message) error {
	pub := broker.Retry(l.pub, broker.RetryPolicy{})
	_, err := pub.Publish(ctx, msgs...)
	return err
}

func (l *link) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if l.conn != nil {
		_ = l.conn.Close(ctx) // the broker is gone in a moment
	}
	return l.emulator.Close(ctx)
}
