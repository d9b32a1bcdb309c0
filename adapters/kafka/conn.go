package kafka

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Mode says how the receivers of a connection take messages.
type Mode uint8

// The two modes.
const (
	// Group is a consumer group: partitions are shared out among members, the
	// order of a key holds, an ack is a committed offset.
	Group Mode = iota
	// Share is a share group (KIP-932): messages are shared out one by one,
	// each with a lease, no order holds. It needs Kafka 4.2 for production
	// (KAF-F-40).
	Share
)

// Options is what a connection is made of. The zero value of each field is a
// default that the field's comment names.
type Options struct {
	// Client holds franz-go options, used for every client that the connection
	// makes: one for administration, one for publishing, one per receiver and
	// per publisher that publishes at most once. kgo.SeedBrokers belongs here,
	// as do TLS and SASL. Options of group membership, of fetching positions
	// and of idempotence are the adapter's own and must not be given.
	Client []kgo.Opt
	// Mode is Group or Share.
	Mode Mode
	// Latest lets a new group begin at the end of each partition. The default
	// is the beginning, for what is published before the first receiver joined
	// would be lost otherwise (KAF-F-44). In share mode it is the group's own
	// configuration, which Ensure sets.
	Latest bool
	// Uncommitted also delivers messages of open and aborted transactions. The
	// default is read committed; Kafka's own is not (KAF-F-15). Group mode.
	Uncommitted bool
	// Instance is the static membership ID (KIP-345). A connection with one may
	// open one receiver per subscription. Group mode.
	Instance string
	// NextGen uses the consumer protocol of KIP-848, where the broker assigns
	// the partitions (KAF-F-35). Group mode.
	NextGen bool
	// Session is after how long without a heartbeat the broker takes a member
	// for dead. Zero means 45 s. Group mode with the classic protocol; with the
	// other one, and for share groups, the broker's configuration decides.
	Session time.Duration
	// Partitions and Replicas are for topics that Ensure creates where the
	// entity has no wish. Zero means the broker's default.
	Partitions, Replicas int
	// MaxDeliveries, DeadLetter and Ordered are the entity's wishes of the same
	// name, for receivers of subscriptions that Ensure of this connection was
	// not called for: Kafka has no place to keep them.
	MaxDeliveries int
	DeadLetter    string
	Ordered       bool
	// Logger gets what no caller is waiting for. Nil means slog.Default().
	Logger *slog.Logger
}

// conn is the driver's connection.
type conn struct {
	opts  Options
	log   *slog.Logger
	admin *kgo.Client
	adm   *kadm.Client

	batchMax  sync.Map // topic → int32: the largest batch that the topic takes
	keepsTime sync.Map // topic → bool: a record's timestamp stays as it was sent

	mu       sync.Mutex
	wishes   map[string]wishes // by subscription
	producer *producer         // made by the first publisher, replaced when it is dead
	letters  map[string]*publisher
	closed   bool
	retiring sync.WaitGroup
}

// wishes is what Kafka can't keep of a subscription.
type wishes struct {
	maxDeliveries int
	deadLetter    string
	ordered       bool
}

// New makes a connection. It returns broker.ErrUnavailable if no broker answers
// before ctx ends, ErrUnauthorized if the credentials are refused and
// ErrInvalid for options that contradict each other.
func New(ctx context.Context, o Options) (broker.Conn, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &conn{opts: o, log: o.Logger, wishes: map[string]wishes{}, letters: map[string]*publisher{}}
	if c.log == nil {
		c.log = slog.Default()
	}
	admin, err := kgo.NewClient(c.client()...)
	if err != nil {
		return nil, broker.Errorf(broker.ErrInvalid, err, "kafka: options")
	}
	c.admin, c.adm = admin, kadm.NewClient(admin)
	if err := ping(ctx, admin); err != nil {
		admin.Close()
		return nil, broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "kafka: connect")
	}
	return driver.New(c), nil
}

// ping asks for the brokers until one answers or ctx ends. The client's own
// request gives up after some dials; a broker that starts up takes longer.
func ping(ctx context.Context, cl *kgo.Client) error {
	for {
		err := cl.Ping(ctx)
		if err == nil || ctx.Err() != nil || kindOf(err, nil) == broker.ErrUnauthorized {
			return err
		}
		if _, bounded := ctx.Deadline(); !bounded {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (o *Options) check() error {
	bad := func(why string) error { return broker.Errorf(broker.ErrInvalid, nil, "kafka: options: %s", why) }
	switch {
	case o.Mode > Share:
		return bad("unknown mode")
	case o.Mode == Share && (o.Instance != "" || o.NextGen || o.Session != 0 || o.Uncommitted):
		return bad("instance, protocol, session and isolation belong to group mode")
	case o.Mode == Share && o.Ordered:
		return broker.Errorf(broker.ErrUnsupported, nil, "kafka: options: a share group keeps no order (KAF-F-51)")
	case o.Session < 0 || o.Partitions < 0 || o.Replicas < 0 || o.MaxDeliveries < 0:
		return bad("a negative number")
	case o.MaxDeliveries > 0 && o.DeadLetter == "":
		return bad("max deliveries without a dead-letter topic: an offset can't be committed past a message that is kept")
	}
	return nil
}

// client is what all clients share: the caller's options win.
func (c *conn) client(own ...kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ClientID("onceline"),
		kgo.DisableClientMetrics(),
		kgo.UnknownTopicRetries(1), // OpenPublisher has looked; four more rounds only delay the refusal
		// After a connection died the client looks its brokers up before it sends
		// again, but not sooner than this after the last look: by default 5 s in
		// which nothing is published.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	return slices.Concat(opts, c.opts.Client, own)
}

// As sets a **kgo.Client to the client for administration.
func (c *conn) As(target any) bool {
	if t, ok := target.(**kgo.Client); ok {
		*t = c.admin
		return true
	}
	return false
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	body, err := c.lookUp(ctx, topic)
	if err != nil {
		return nil, err
	}
	return c.newPublisher(topic, body, o.Semantics == broker.AtMostOnce)
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	topic, group, err := splitSubscription(subscription)
	if err != nil {
		return nil, err
	}
	meta, err := c.topicMeta(ctx, topic)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	w, ok := c.wishes[subscription]
	c.mu.Unlock()
	if !ok {
		w = wishes{c.opts.MaxDeliveries, c.opts.DeadLetter, c.opts.Ordered}
	}
	if c.opts.Mode == Share {
		if o.StartFrom != nil {
			return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver %s: a share group keeps its positions itself", subscription)
		}
		return c.newShare(ctx, meta, group, w)
	}
	return c.newGroup(topic, group, w, o)
}

// splitSubscription takes "topic/group" apart. A topic's name has no slash, so
// a group's may.
func splitSubscription(s string) (topic, group string, err error) {
	topic, group, ok := strings.Cut(s, "/")
	if !ok || topic == "" || group == "" {
		return "", "", broker.Errorf(broker.ErrInvalid, nil, "subscription %q: want topic/group", s)
	}
	return topic, group, checkTopic(topic)
}

// Close closes the clients. Publishers and receivers are closed by now; what
// an abandoned Publish left with the SDK is dropped, its outcome unknown.
func (c *conn) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	p := c.producer
	c.producer = nil
	c.mu.Unlock()
	if p != nil {
		p.stop()
		p.close(ctx)
	}
	err := within(ctx, func() { c.admin.Close(); c.retiring.Wait() })
	if err != nil {
		return broker.Errorf(broker.ErrUnavailable, err, "kafka: close")
	}
	return nil
}

// within runs f and waits for it until ctx ends. f must end soon by itself.
func within(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	// What is left is local work by now: give it a moment rather than leave a
	// goroutine behind.
	select {
	case <-done:
		return nil
	case <-time.After(500 * time.Millisecond):
		return context.Cause(ctx)
	}
}
