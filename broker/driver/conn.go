package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// New returns the connection that users get: c with validation and the fence.
func New(c Conn) broker.Conn { return wrap(c, true) }

// Unfenced returns a second view of a connection that New made, with fence and
// local validation off: every settle and every message goes to the broker as it
// is. It exists to ask what the vendor does by itself, which is what the
// conformance suite's vendor claims are about. Closing the view closes what was
// opened through it, not the connection; closing the connection closes its
// views.
func Unfenced(c broker.Conn) (broker.Conn, error) {
	inner, ok := c.(*conn)
	if !ok {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "unfenced view of a %T: not made by driver.New", c)
	}
	view := wrap(borrowed{own(inner.driver)}, false)
	view.parent = inner
	inner.mu.Lock()
	defer inner.mu.Unlock()
	if inner.shut {
		return nil, broker.Errorf(broker.ErrClosed, nil, "unfenced view")
	}
	inner.open[view] = struct{}{}
	return view, nil
}

// Unwrap returns the adapter's own connection behind one that New made.
func Unwrap(c broker.Conn) (Conn, bool) {
	inner, ok := c.(*conn)
	if !ok {
		return nil, false
	}
	return own(inner.driver), true
}

// borrowed is a driver connection that somebody else closes.
type borrowed struct{ Conn }

// own is the adapter's connection itself.
func own(c Conn) Conn {
	if b, ok := c.(borrowed); ok {
		return b.Conn
	}
	return c
}

func (b borrowed) Close(context.Context) error { return nil }

func wrap(c Conn, fenced bool) *conn {
	now := time.Now
	if clock, ok := own(c).(Clock); ok {
		now = clock.Now
	}
	return &conn{driver: c, fenced: fenced, now: now, open: map[closer]struct{}{}}
}

// conn is the broker.Conn around an adapter's.
type conn struct {
	driver Conn
	fenced bool
	now    func() time.Time

	parent *conn // of an unfenced view

	gate gate // of the calls that reach the driver's connection
	mu   sync.Mutex
	shut bool
	open map[closer]struct{} // publishers, receivers and views
	once sync.Once
	err  error // of Close
}

type closer interface {
	Close(ctx context.Context) error
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, opts ...broker.PublisherOption) (broker.Publisher, error) {
	if err := c.enter("open publisher", topic); err != nil {
		return nil, err
	}
	defer c.gate.leave()
	var o broker.PublisherOptions
	for _, opt := range opts {
		opt(&o)
	}
	d, err := c.driver.OpenPublisher(ctx, topic, o)
	if err != nil {
		return nil, err
	}
	p := &publisher{driver: d, topic: topic, limits: d.Limits(), conn: c}
	if err := c.remember(ctx, p, "open publisher", topic); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, opts ...broker.ReceiverOption) (broker.Receiver, error) {
	if err := c.enter("open receiver", subscription); err != nil {
		return nil, err
	}
	defer c.gate.leave()
	var o broker.ReceiverOptions
	for _, opt := range opts {
		opt(&o)
	}
	d, err := c.driver.OpenReceiver(ctx, subscription, o)
	if err != nil {
		return nil, err
	}
	r := &receiver{driver: d, name: subscription, conn: c}
	if err := c.remember(ctx, r, "open receiver", subscription); err != nil {
		return nil, err
	}
	return r, nil
}

func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	if err := c.enter("ensure", e.Topic); err != nil {
		return err
	}
	defer c.gate.leave()
	if e.Window < 0 || e.Lease < 0 || e.MaxDeliveries < 0 || e.Partitions < 0 || e.MaxBody < 0 {
		return broker.Errorf(broker.ErrInvalid, nil, "ensure %s: a negative wish", e.Topic)
	}
	return c.driver.Ensure(ctx, e)
}

func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	if err := c.enter("delete", e.Topic); err != nil {
		return err
	}
	defer c.gate.leave()
	return c.driver.Delete(ctx, e)
}

func (c *conn) As(target any) bool { return c.driver.As(target) }

// Close waits for the calls that open and ensure, so that the driver is not
// called after its Close, then closes what is open, then the driver.
func (c *conn) Close(ctx context.Context) error {
	c.once.Do(func() {
		c.gate.shut()
		c.gate.wait(ctx)
		c.mu.Lock()
		c.shut = true
		open := make([]closer, 0, len(c.open))
		for h := range c.open {
			open = append(open, h)
		}
		c.mu.Unlock()
		errs := make([]error, len(open)+1)
		var wait sync.WaitGroup
		for i, h := range open {
			wait.Go(func() { errs[i] = h.Close(ctx) })
		}
		wait.Wait()
		errs[len(open)] = c.driver.Close(ctx)
		c.err = errors.Join(errs...)
		if c.parent != nil {
			c.parent.forget(c)
		}
	})
	return c.err
}

// enter lets a call through to the driver; the caller leaves the gate.
func (c *conn) enter(what, name string) error {
	if name == "" {
		return broker.Errorf(broker.ErrInvalid, nil, "%s: empty name", what)
	}
	if !c.gate.enter() {
		return broker.Errorf(broker.ErrClosed, nil, "%s %s", what, name)
	}
	return nil
}

// remember keeps h for Close. If Close didn't wait any longer, h is closed here.
func (c *conn) remember(ctx context.Context, h closer, what, name string) error {
	c.mu.Lock()
	closed := c.shut
	if !closed {
		c.open[h] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		return broker.Errorf(broker.ErrClosed, h.Close(ctx), "%s %s", what, name)
	}
	return nil
}

func (c *conn) forget(h closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, h)
}
