package nats

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// New returns a connection that uses a client which the caller holds and goes
// on owning: Close leaves nc open. New doesn't block on the network. It returns
// broker.ErrUnavailable for a client that is closed or draining, and
// broker.ErrInvalid for a bad option; ClientOptions and Logger concern Dial
// alone and are refused.
//
// A client with a reconnect buffer (the SDK's default of 8 MiB) sends what was
// published while it was disconnected when it is back, which may be after the
// dedup window. New can't switch that off, so every send first looks whether the
// client is connected, and refuses with broker.ErrUnavailable if not. Between
// that look and the send the connection may still break: give New a client that
// was made with nats.ReconnectBufSize(-1), as Dial does, to close this gap too.
func New(nc *natsgo.Conn, opts ...Option) (broker.Conn, error) {
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if len(o.client) > 0 || o.logger != nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "nats: ClientOptions and Logger belong to Dial: the client exists already")
	}
	c, err := newConn(nc, o)
	if err != nil {
		return nil, err
	}
	return driver.New(c), nil
}

// conn is the driver.Conn.
type conn struct {
	nc       *natsgo.Conn
	js       jetstream.JetStream
	api      string // subject prefix of the JetStream API, with the dot
	opts     options
	mux      *mux
	buffered bool    // the client has a reconnect buffer to keep away from
	owned    *dialer // not nil: the client is ours to close

	link     atomic.Pointer[link] // nil while disconnected
	mu       sync.Mutex
	up       chan struct{} // closed and replaced when a link comes up; guarded by mu
	dead     chan struct{} // closed when the client is closed for good
	statuses chan natsgo.Status
	watched  chan struct{} // closed when watch has returned
}

// link is one life of the network connection.
type link struct {
	gone chan struct{} // closed at its end

	mu     sync.Mutex
	epochs map[*driver.Epoch]struct{} // of receivers; nil once ended
}

func newConn(nc *natsgo.Conn, o options) (*conn, error) {
	if nc == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "nats: no client")
	}
	c := &conn{nc: nc, api: jetstream.DefaultAPIPrefix, opts: o, buffered: nc.Opts.ReconnectBufSize >= 0,
		up: make(chan struct{}), dead: make(chan struct{}), watched: make(chan struct{})}
	var err error
	if o.domain == "" {
		c.js, err = jetstream.New(nc)
	} else {
		c.api = "$JS." + o.domain + ".API."
		c.js, err = jetstream.NewWithDomain(nc, o.domain)
	}
	if err != nil {
		return nil, broker.Errorf(broker.ErrInvalid, err, "nats: JetStream")
	}
	if c.mux, err = newMux(nc); err != nil {
		return nil, broker.Errorf(kindOf(err), err, "nats: inbox")
	}
	c.statuses = nc.StatusChanged(natsgo.CONNECTED, natsgo.RECONNECTING, natsgo.DISCONNECTED, natsgo.CLOSED, natsgo.DRAINING_SUBS, natsgo.DRAINING_PUBS)
	// The listener stands, so a change from here on is seen by watch; what was
	// before is asked for.
	c.notice(nc.Status())
	go c.watch()
	return c, nil
}

// watch follows the client's status until the listener is removed or the client
// closed. The SDK lets a publish wait for its whole context after the connection
// has dropped, though no answer can come any more.
func (c *conn) watch() {
	defer close(c.watched)
	for s := range c.statuses {
		c.notice(s)
	}
}

func (c *conn) notice(s natsgo.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.link.Load()
	switch s {
	case natsgo.CONNECTED:
		if old != nil {
			// The first status, or the end of the old connection was missed,
			// which costs a spurious end and no more.
			old.end()
		}
		c.link.Store(&link{gone: make(chan struct{}), epochs: map[*driver.Epoch]struct{}{}})
		close(c.up)
		c.up = make(chan struct{})
		return
	case natsgo.CLOSED:
		select {
		case <-c.dead:
		default:
			close(c.dead)
		}
	}
	c.link.Store(nil)
	if old != nil {
		old.end()
	}
}

func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.epochs {
		e.End()
	}
	l.epochs = nil
	close(l.gone)
}

// epoch returns an epoch that ends with the link, or is ended already.
func (l *link) epoch() *driver.Epoch {
	e := new(driver.Epoch)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epochs == nil {
		e.End()
	} else {
		l.epochs[e] = struct{}{}
	}
	return e
}

// forget ends e and takes it from the link.
func (l *link) forget(e *driver.Epoch) {
	e.End()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.epochs, e)
}

// await returns the link, once there is one.
func (c *conn) await(ctx context.Context, closing <-chan struct{}) (*link, error) {
	for {
		c.mu.Lock()
		l, up := c.link.Load(), c.up
		c.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-closing:
			return nil, broker.ErrClosed
		case <-c.dead:
			return nil, broker.Errorf(broker.ErrUnavailable, natsgo.ErrConnectionClosed, "nats: the client is closed")
		}
	}
}

// while returns a context for administrative requests that also ends with the
// connection, for the SDK lets them wait on as it does with publishes. done must
// be called.
func (c *conn) while(ctx context.Context) (_ context.Context, done func()) {
	l := c.link.Load()
	ctx, cancel := context.WithCancelCause(ctx)
	if l == nil {
		cancel(errLinkDown)
		return ctx, func() {}
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-l.gone:
			cancel(errLinkLost)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		wait.Wait()
	}
}

// sendable reports whether a send would go out now rather than into the
// client's reconnect buffer.
func (c *conn) sendable() bool { return !c.buffered || c.nc.Status() == natsgo.CONNECTED }

// Now implements driver.Clock: the server's time is real time.
func (c *conn) Now() time.Time { return time.Now() }

func (c *conn) As(target any) bool {
	switch t := target.(type) {
	case **natsgo.Conn:
		*t = c.nc
	case *jetstream.JetStream:
		*t = c.js
	default:
		return false
	}
	return true
}

func (c *conn) Close(ctx context.Context) error {
	c.mux.close(ctx)
	c.nc.RemoveStatusListener(c.statuses)
	select {
	case <-c.watched:
	case <-ctx.Done():
	}
	c.notice(natsgo.DISCONNECTED)
	if c.owned != nil {
		// The SDK flushes before it closes; into a black hole that can take as
		// long as its write timeout, unless the socket is taken away.
		stop := context.AfterFunc(ctx, c.owned.cut)
		c.nc.Close()
		stop()
	}
	if ctx.Err() != nil {
		return broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "nats: close")
	}
	return nil
}
