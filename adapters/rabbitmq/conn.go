package rabbitmq

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// New returns a connection over a client that the caller holds and goes on
// owning: Close leaves nc open, and a client that is lost isn't made again, so
// every call fails with broker.ErrUnavailable then. Publishes and acks share its
// socket, which a node that is short of memory stops reading without this package
// noticing, and each message leaves by a system call of its own; Dial has neither
// limit. The client's own
// recovery must be off: it would restart delivery tags under handles that were
// given out (RMQ-F-11), and is broker.ErrInvalid. New doesn't block on the
// network. Streams need Dial.
func New(nc *amqp.Connection, opts ...Option) (broker.Conn, error) {
	s := defaults()
	if err := s.apply(opts); err != nil {
		return nil, err
	}
	switch {
	case nc == nil:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: no client")
	case nc.IsRecoveryEnabled():
		return nil, broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: the client recovers by itself, which gives old handles new messages")
	case nc.IsClosed():
		return nil, broker.Errorf(broker.ErrUnavailable, amqp.ErrClosed, "rabbitmq: the client")
	case s.kind == Stream:
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "rabbitmq: streams over a client of AMQP 0-9-1; use Dial")
	}
	c := &conn{settings: s}
	c.init()
	l := newLine(&c.settings, "consume")
	l.foreign = true
	c.consume, c.publish = l, l
	c.copies = newSender(l, "copies", s.maxInFlight, func(context.Context) error { return nil })
	l.begin(newSession(l, nc, nil))
	return driver.New(c), nil
}

// conn is the driver.Conn for queues.
type conn struct {
	settings
	consume *line // receivers and administration
	publish *line // publishers and copies; begins with its first use

	copies *sender // of delayed and dead-lettered messages

	mu     sync.Mutex
	wishes map[string]broker.Entity // what Ensure was told, by subscription
	topics map[string]broker.Entity // and by topic
	retry  map[string]time.Time     // retry queues, and when they were declared last
}

func (c *conn) init() {
	c.wishes, c.topics, c.retry = map[string]broker.Entity{}, map[string]broker.Entity{}, map[string]time.Time{}
}

func newQueueConn(ctx context.Context, s settings) (driver.Conn, error) {
	c := &conn{settings: s}
	c.init()
	c.consume, c.publish = newLine(&c.settings, "consume"), newLine(&c.settings, "publish")
	first, err := c.consume.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.consume.begin(first)
	c.copies = newSender(c.publish, "copies", s.maxInFlight, func(context.Context) error { return nil })
	return c, nil
}

// Now implements driver.Clock.
func (c *conn) Now() time.Time { return c.now() }

func (c *conn) As(target any) bool {
	t, ok := target.(**amqp.Connection)
	if !ok {
		return false
	}
	c.consume.mu.Lock()
	defer c.consume.mu.Unlock()
	if c.consume.cur == nil {
		return false
	}
	*t = c.consume.cur.conn
	return true
}

func (c *conn) Close(ctx context.Context) error {
	// Copies are of receivers, which are closed: nothing waits for one.
	if c.publish == c.consume {
		return errors.Join(c.copies.shut(ctx), c.consume.close(ctx))
	}
	c.copies.end()
	var publish error
	var wait sync.WaitGroup
	wait.Go(func() { publish = c.publish.close(ctx) })
	err := c.consume.close(ctx)
	wait.Wait()
	return errors.Join(err, publish)
}

// admin runs f on a channel of its own: what the broker refuses closes it.
func (c *conn) admin(ctx context.Context, f func(*session, *amqp.Channel) error) error {
	s, err := c.consume.session(ctx)
	if err != nil {
		return err
	}
	ch, err := s.channel(ctx)
	if err != nil {
		return err
	}
	_, err = await(ctx, s.line, func() (struct{}, error) {
		err := f(s, ch)
		if e := ch.Close(); err == nil && e != nil && !errors.Is(e, amqp.ErrClosed) {
			err = e
		}
		return struct{}{}, err
	}, nil)
	return err
}

// exists checks that a topic's exchange, or queue, is there, so that a missing
// one is told before anything is published: later the broker would close the
// channel under all that is in flight. What Ensure made through this connection
// is made again.
func (c *conn) exists(ctx context.Context, topic string, to place) error {
	err := c.admin(ctx, func(_ *session, ch *amqp.Channel) error {
		if to.exchange == "" {
			_, err := ch.QueueDeclarePassive(to.key, true, false, false, false, nil)
			return err
		}
		return ch.ExchangeDeclarePassive(to.exchange, amqp.ExchangeFanout, true, false, false, false, nil)
	})
	if err == nil || !errors.Is(kindOf(err), broker.ErrNotFound) {
		return err
	}
	c.mu.Lock()
	e, ours := c.topics[topic]
	c.mu.Unlock()
	if !ours {
		return err
	}
	return c.Ensure(ctx, e)
}

// wish is what Ensure was told of a subscription.
func (c *conn) wish(subscription string) (broker.Entity, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.wishes[subscription]
	return e, ok
}

// version is the node's, as far as it can be read: 3.10.8 is 3, 10. A node that
// doesn't say is taken for a new one.
func (s *session) version() (major, minor int) {
	v, _ := s.conn.Properties["version"].(string)
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return 99, 0
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return 99, 0
	}
	minor, _ = strconv.Atoi(parts[1]) // 0 for what isn't a number
	return major, minor
}

// atLeast reports whether the node's version is that or a later one.
func (s *session) atLeast(major, minor int) bool {
	a, b := s.version()
	return a > major || a == major && b >= minor
}
