package otel

import (
	"context"

	"github.com/onceline/onceline/broker"
)

// Conn instruments what is opened through c. Closing the result closes c.
func (t *Telemetry) Conn(c broker.Conn) broker.Conn { return &conn{c, t} }

type conn struct {
	broker.Conn
	t *Telemetry
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, opts ...broker.PublisherOption) (broker.Publisher, error) {
	p, err := c.Conn.OpenPublisher(ctx, topic, opts...)
	if err != nil {
		return nil, err
	}
	return c.t.Publisher(p, topic), nil
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, opts ...broker.ReceiverOption) (broker.Receiver, error) {
	r, err := c.Conn.OpenReceiver(ctx, subscription, opts...)
	if err != nil {
		return nil, err
	}
	return c.t.Receiver(r, subscription), nil
}

// OpenTransactor is broker.TransactorOpener's. What happens within a transaction is
// not instrumented.
func (c *conn) OpenTransactor(ctx context.Context, id string, opts ...broker.TransactorOption) (broker.Transactor, error) {
	return broker.OpenTransactor(ctx, c.Conn, id, opts...)
}

// RecoverTransaction is broker.TransactorOpener's.
func (c *conn) RecoverTransaction(ctx context.Context, token []byte, commit bool) (broker.Outcome, error) {
	return broker.RecoverTransaction(ctx, c.Conn, token, commit)
}
