package sqs

import (
	"context"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// New returns a connection that uses a client which the caller holds. New
// doesn't block on the network. It returns broker.ErrInvalid for a bad option;
// WithTransport concerns Dial alone and is refused.
//
// The client's retries and checksum validation are off in the calls that
// publish, receive and settle, whatever its own options say: see the package
// comment. The connections of the client's HTTP transport stay the caller's.
func New(client *awssqs.Client, opts ...Option) (broker.Conn, error) {
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "sqs: no client")
	}
	if o.transport != nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "sqs: WithTransport belongs to Dial: the client exists already")
	}
	return driver.New(&conn{client: client, single: single(client), opts: o}), nil
}

// conn is the driver.Conn. It holds no connection of its own: the SDK's HTTP
// transport makes one where a request needs it.
type conn struct {
	client *awssqs.Client
	single *awssqs.Client // its calls are one request each: what publishes, receives and settles
	opts   options
	idle   func() // closes the idle connections, where the transport is ours
}

// Now implements driver.Clock.
func (c *conn) Now() time.Time { return c.opts.now() }

// As sets target to the *sqs.Client.
func (c *conn) As(target any) bool {
	if t, ok := target.(**awssqs.Client); ok {
		*t = c.client
		return true
	}
	return false
}

// Close closes the idle connections of a client that Dial made.
func (c *conn) Close(context.Context) error {
	if c.idle != nil {
		c.idle()
	}
	return nil
}

// asQueue is As of publishers and receivers.
func (c *conn) asQueue(q *Queue, target any) bool {
	if t, ok := target.(*Queue); ok {
		*t = *q
		return true
	}
	return c.As(target)
}

// life is a context that ends when a handle is closed for good. Its calls run in
// it and in their caller's.
type life struct {
	ctx context.Context
	end context.CancelFunc
}

func newLife() life {
	ctx, end := context.WithCancel(context.Background())
	return life{ctx, end}
}

// join returns a context that ends with either. done must be called.
func (l *life) join(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
