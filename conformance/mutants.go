package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
)

// Mutant is an adapter broken on purpose, in a way in which one can be written by
// mistake. The suite must find it out by the claim that it violates, or the suite is
// no good.
type Mutant struct {
	Name  string
	On    string // the target whose adapter it is; "" for one that breaks any
	Layer string // "publish", "receive", "settle" or "transact"
	Does  string // what is wrong with it, in a sentence
	Claim boundary.Claim
	// Answer is what the claim's probe then observes: on the reference implementation
	// where On is empty.
	Answer boundary.Answer
	broken mutation
}

// mutation holds what a mutant does instead of the adapter; nil leaves it.
type mutation struct {
	publish func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt)
	receive func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error
	settle  func(ctx context.Context, next driver.Receiver, ops []driver.Op)
	limits  func(broker.Limits) broker.Limits
	close   func(ctx context.Context, next driver.Receiver) error

	openPublisher   func(ctx context.Context, next driver.Conn, topic string, o broker.PublisherOptions) (driver.Publisher, error)
	receiverOptions func(broker.ReceiverOptions) broker.ReceiverOptions

	txn txnMutation
}

// wrap breaks a connection. One that driver.New didn't make is left as it is; nil is no
// mutant.
func (m *Mutant) wrap(c broker.Conn) broker.Conn {
	if m == nil {
		return c
	}
	inner, ok := driver.Unwrap(c)
	if !ok {
		return c
	}
	broken := &mutantConn{Conn: inner, m: m.broken}
	if _, ok := inner.(driver.Transacting); ok {
		return driver.New(transactingMutant{broken})
	}
	return driver.New(broken)
}

type mutantConn struct {
	driver.Conn
	m mutation
}

// Now is the adapter's clock, if it has one.
func (c *mutantConn) Now() time.Time {
	if clock, ok := c.Conn.(driver.Clock); ok {
		return clock.Now()
	}
	return time.Now()
}

func (c *mutantConn) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	open := c.Conn.OpenPublisher
	if c.m.openPublisher != nil {
		open = func(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
			return c.m.openPublisher(ctx, c.Conn, topic, o)
		}
	}
	p, err := open(ctx, topic, o)
	if err != nil {
		return nil, err
	}
	return &mutantPublisher{p, c.m}, nil
}

func (c *mutantConn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	if c.m.receiverOptions != nil {
		o = c.m.receiverOptions(o)
	}
	r, err := c.Conn.OpenReceiver(ctx, subscription, o)
	if err != nil {
		return nil, err
	}
	return &mutantReceiver{r, c.m}, nil
}

type mutantPublisher struct {
	driver.Publisher
	m mutation
}

func (p *mutantPublisher) Publish(ctx context.Context, ms []broker.Message, rs []broker.Receipt) {
	if p.m.publish == nil {
		p.Publisher.Publish(ctx, ms, rs)
		return
	}
	p.m.publish(ctx, p.Publisher, ms, rs)
}

func (p *mutantPublisher) Limits() broker.Limits {
	l := p.Publisher.Limits()
	if p.m.limits != nil {
		l = p.m.limits(l)
	}
	return l
}

type mutantReceiver struct {
	driver.Receiver
	m mutation
}

func (r *mutantReceiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	if r.m.receive == nil {
		return r.Receiver.Receive(ctx, max, out)
	}
	return r.m.receive(ctx, r.Receiver, max, out)
}

func (r *mutantReceiver) Settle(ctx context.Context, ops []driver.Op) {
	if r.m.settle == nil {
		r.Receiver.Settle(ctx, ops)
		return
	}
	r.m.settle(ctx, r.Receiver, ops)
}

func (r *mutantReceiver) Close(ctx context.Context) error {
	if r.m.close == nil {
		return r.Receiver.Close(ctx)
	}
	return r.m.close(ctx, r.Receiver)
}

// name is a mutant's, and "" of none.
func (m *Mutant) name() string {
	if m == nil {
		return ""
	}
	return m.Name
}

// mutantOf is the mutant of that name, nil for "".
func mutantOf(name string) (*Mutant, error) {
	if name == "" {
		return nil, nil
	}
	for _, m := range AllMutants() {
		if m.Name == name {
			return &m, nil
		}
	}
	return nil, fmt.Errorf("there is no mutant %q", name)
}
