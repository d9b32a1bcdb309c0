package memory

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// conn is a driver.Conn and a driver.Clock.
type conn struct {
	b *Broker
	// Guarded by the broker's lock.
	link      *link
	receivers map[*receiver]struct{}
	closed    bool
}

// link is the life of a connection between two cuts.
type link struct{ gone chan struct{} }

func newLink() *link { return &link{gone: make(chan struct{})} }

// errCut is why an answer didn't come.
var errCut = errors.New("the connection was cut")

// Now is the broker's time, for the fence.
func (c *conn) Now() time.Time { return c.b.now() }

func (c *conn) OpenPublisher(_ context.Context, topic string, _ broker.PublisherOptions) (driver.Publisher, error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.ready("open publisher", topic); err != nil {
		return nil, err
	}
	t := b.topics[topic]
	if t == nil && b.broken.topicsCreated {
		t = b.ensureTopic(topic, 0, 0)
	}
	if t == nil {
		return nil, broker.Errorf(broker.ErrNotFound, nil, "topic %s", topic)
	}
	b.clients++
	p := &publisher{c: c, name: topic, topic: t, done: make(chan struct{}),
		limits: broker.Limits{Body: t.maxBody, Window: time.Duration(t.window)}}
	if b.broken.limitsTold {
		p.limits.Body = 0
	}
	if b.broken.dedupAcrossPublishers {
		p.scope = strconv.Itoa(b.clients)
	}
	return p, nil
}

func (c *conn) OpenReceiver(_ context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.ready("open receiver", subscription); err != nil {
		return nil, err
	}
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil,
			"open receiver %s: StartFrom: a subscription is a queue and forgets what is settled", subscription)
	}
	s := b.subs[subscription]
	if s == nil {
		return nil, broker.Errorf(broker.ErrNotFound, nil, "subscription %s", subscription)
	}
	r := &receiver{c: c, name: subscription, sub: s, wake: make(chan struct{}, 1), done: make(chan struct{}), epoch: new(driver.Epoch)}
	r.wait.of = r
	c.receivers[r] = struct{}{}
	return r, nil
}

func (c *conn) ready(what, name string) error {
	if c.closed || c.b.closed {
		return broker.Errorf(broker.ErrClosed, nil, "%s %s", what, name)
	}
	return nil
}

func (c *conn) As(target any) bool { return c.b.as(target) }

func (b *Broker) as(target any) bool {
	p, ok := target.(**Broker)
	if ok {
		*p = b
	}
	return ok
}

// Close also closes what was opened through an unfenced view.
func (c *conn) Close(context.Context) error {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	now := b.begin()
	for r := range c.receivers {
		r.shut(now)
	}
	c.cut()
	delete(b.conns, c)
	b.arm(now)
	return nil
}

// cut ends the connection and the handles given out over it, and makes a new
// one unless conn or broker are closed: then the old one stays, gone for good,
// and nobody can begin to wait on it. What receivers hold stays under its lease.
func (c *conn) cut() {
	select {
	case <-c.link.gone:
		return
	default:
	}
	close(c.link.gone)
	for r := range c.receivers {
		if c.b.broken.handlesAcrossCuts && !c.closed && !c.b.closed {
			break
		}
		r.epoch.End()
		r.epoch = new(driver.Epoch)
	}
	if !c.closed && !c.b.closed {
		c.link = newLink()
	}
}

// connected returns the link as of now.
func (c *conn) connected() *link {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.link
}

// cutNow is cut for those who don't have the lock.
func (c *conn) cutNow() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.cut()
}

// silence waits for an answer that doesn't come, until nobody waits for it any
// more, and returns why.
func silence(ctx context.Context, l *link, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.gone:
		return errCut
	case <-done:
		return broker.ErrClosed
	}
}

var named = struct {
	sync.Mutex
	brokers map[string]*Broker
}{brokers: map[string]*Broker{}}

// Named returns the broker that Open knows as mem://name, and makes it with opts
// if there is none. The options of an existing one stay as they are. Its Close
// frees the name.
func Named(name string, opts ...Option) *Broker {
	named.Lock()
	defer named.Unlock()
	b := named.brokers[name]
	if b == nil {
		b = New(opts...)
		b.name = name
		named.brokers[name] = b
	}
	return b
}

func unname(b *Broker) {
	if b.name == "" {
		return
	}
	named.Lock()
	defer named.Unlock()
	if named.brokers[b.name] == b {
		delete(named.brokers, b.name)
	}
}

func init() { broker.Register("mem", open) }

func open(_ context.Context, u *url.URL) (broker.Conn, error) {
	if u.Host == "" || u.User != nil || (u.Path != "" && u.Path != "/") || u.Fragment != "" {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "open mem://%s: the URL is mem://NAME and parameters", u.Host)
	}
	wished, err := parseParameters(u)
	if err != nil {
		return nil, err
	}
	b := Named(u.Host, func(b *Broker) { wished.apply(&b.defaults) })
	if err := wished.check(b.defaults, u.Host); err != nil {
		return nil, err
	}
	return b.Conn(), nil
}
