package servicebus

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/onceline/onceline/broker"
)

// metadata is what Ensure writes into the user metadata of what it makes, so that
// Delete knows its own.
const metadata = "made by onceline"

// What the service admits (SB-F-03, SB-F-13, SB-F-18).
const (
	minWindow     = 20 * time.Second
	maxWindow     = 7 * 24 * time.Hour
	maxDeliveries = 2000
	minPremium    = 1024 // KB: the least that a limit of the message size can be set to
	maxPremium    = 100 * 1024
)

// facts are the settings of an entity as the admin interface tells them.
type facts struct {
	queue      bool
	sessions   bool
	duplicates bool
	window     time.Duration
	lease      time.Duration
	deliveries int
	kilobytes  int64
	body       int    // what that leaves for a body
	forward    string // of dead letters
	metadata   string
}

// describe asks for an entity to send to. It returns nil if nobody tells: without
// an admin client, or without the right to manage, which sending doesn't need.
func (c *conn) describe(ctx context.Context, topic string) *facts {
	ctx, cancel := context.WithTimeout(ctx, describeWait)
	defer cancel()
	f, err := c.topicFacts(ctx, topic)
	if err != nil {
		return nil
	}
	return f
}

// describeSource is describe for an entity to receive from.
func (c *conn) describeSource(ctx context.Context, s *source) *facts {
	ctx, cancel := context.WithTimeout(ctx, describeWait)
	defer cancel()
	var f *facts
	var err error
	if s.queue != "" {
		f, err = c.queueFacts(ctx, s.queue)
	} else {
		f, err = c.subscriptionFacts(ctx, s.topic, s.subscription)
	}
	if err != nil {
		return nil
	}
	return f
}

// describeWait bounds what opening waits for settings that it can do without.
const describeWait = 3 * time.Second

// topicFacts returns nil without an error if there is neither queue nor topic.
func (c *conn) topicFacts(ctx context.Context, name string) (*facts, error) {
	f, err := c.queueFacts(ctx, name)
	if f != nil || err != nil {
		return f, err
	}
	t, err := c.admin.GetTopic(ctx, name, nil)
	if err != nil || t == nil {
		return nil, err
	}
	f = &facts{duplicates: deref(t.RequiresDuplicateDetection), window: duration(t.DuplicateDetectionHistoryTimeWindow),
		metadata: deref(t.UserMetadata)}
	return f.settle(t.MaxMessageSizeInKilobytes), nil
}

func (c *conn) queueFacts(ctx context.Context, name string) (*facts, error) {
	if c.admin == nil {
		return nil, errNoAdmin
	}
	q, err := c.admin.GetQueue(ctx, name, nil)
	// A topic lives at the same address, and the SDK reads it as a queue of which
	// nothing is known.
	if err != nil || q == nil || q.LockDuration == nil {
		return nil, err
	}
	f := &facts{queue: true, sessions: deref(q.RequiresSession), duplicates: deref(q.RequiresDuplicateDetection),
		window: duration(q.DuplicateDetectionHistoryTimeWindow), lease: duration(q.LockDuration),
		deliveries: int(deref(q.MaxDeliveryCount)), forward: entityName(deref(q.ForwardDeadLetteredMessagesTo)), metadata: deref(q.UserMetadata)}
	return f.settle(q.MaxMessageSizeInKilobytes), nil
}

func (c *conn) subscriptionFacts(ctx context.Context, topic, name string) (*facts, error) {
	if c.admin == nil {
		return nil, errNoAdmin
	}
	s, err := c.admin.GetSubscription(ctx, topic, name, nil)
	if err != nil || s == nil {
		return nil, err
	}
	return &facts{sessions: deref(s.RequiresSession), lease: duration(s.LockDuration), deliveries: int(deref(s.MaxDeliveryCount)),
		forward: entityName(deref(s.ForwardDeadLetteredMessagesTo)), metadata: deref(s.UserMetadata)}, nil
}

func (f *facts) settle(kilobytes *int64) *facts {
	if !f.duplicates {
		f.window = 0
	}
	if f.kilobytes = deref(kilobytes); f.kilobytes > 0 {
		f.body = int(f.kilobytes<<10) - maxHeaders
	}
	return f
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func duration(s *string) time.Duration {
	d, err := parseDuration(deref(s))
	if err != nil {
		return 0
	}
	return d
}

// entityName is the name of an entity that the service shows as a URI.
func entityName(uri string) string {
	if _, rest, ok := strings.Cut(uri, "://"); ok {
		_, uri, _ = strings.Cut(rest, "/")
	}
	return uri
}

// Ensure makes the dead-letter queue, then the queue, or the topic and its
// subscription. It can be called again after an error.
func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	s, err := checkEntity(e)
	if err != nil {
		return err
	}
	if c.admin == nil {
		return broker.Errorf(broker.ErrUnsupported, errNoAdmin, "ensure %s", e.Topic)
	}
	if e.DeadLetter != "" {
		f, err := c.topicFacts(ctx, e.DeadLetter)
		if err != nil {
			return failure(ctx, err, "ensure %s: dead-letter entity %s", e.Topic, e.DeadLetter)
		}
		if f == nil {
			// Its messages keep their sessions, and need no more than that.
			if err := c.ensureQueue(ctx, broker.Entity{Topic: e.DeadLetter, Ordered: e.Ordered}); err != nil {
				return err
			}
		}
	}
	if s.topic == "" {
		return c.ensureQueue(ctx, e)
	}
	if err := c.ensureTopic(ctx, e); err != nil {
		return err
	}
	return c.ensureSubscription(ctx, e, s)
}

func checkEntity(e broker.Entity) (source, error) {
	if err := checkTopic(e.Topic); err != nil {
		return source{}, err
	}
	s := source{queue: e.Topic}
	unsupported := func(format string, args ...any) (source, error) {
		return source{}, broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: "+format, append([]any{e.Topic}, args...)...)
	}
	if e.Subscription != "" && !strings.EqualFold(e.Subscription, e.Topic) {
		var err error
		if s, err = parseSource(e.Subscription); err != nil {
			return source{}, err
		}
		if s.dead || !strings.EqualFold(s.topic, e.Topic) {
			return source{}, broker.Errorf(broker.ErrInvalid, nil,
				"ensure %s: subscription %q: want the queue itself, or %s/SUBSCRIPTION", e.Topic, e.Subscription, e.Topic)
		}
	}
	switch {
	case e.Window != 0 && (e.Window < minWindow || e.Window > maxWindow):
		return unsupported("a window of %s: the broker admits %s to %s", e.Window, minWindow, maxWindow)
	case e.Lease != 0 && (e.Lease < minLock || e.Lease > maxLock):
		return unsupported("a lease of %s: the broker admits %s to %s", e.Lease, minLock, maxLock)
	case e.MaxDeliveries > maxDeliveries:
		return unsupported("%d deliveries: the broker admits %d", e.MaxDeliveries, maxDeliveries)
	case e.Partitions > 1:
		return unsupported("%d partitions: the broker chooses their number", e.Partitions)
	case e.MaxBody > 0 && (kilobytes(e.MaxBody) < minPremium || kilobytes(e.MaxBody) > maxPremium):
		return unsupported("bodies of %d bytes: the broker admits a limit of %d to %d KB for body and headers", e.MaxBody, minPremium, maxPremium)
	}
	if e.DeadLetter != "" {
		if err := checkTopic(e.DeadLetter); err != nil {
			return source{}, err
		}
		if strings.EqualFold(e.DeadLetter, e.Topic) {
			return source{}, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: its own dead-letter entity", e.Topic)
		}
	}
	return s, nil
}

// kilobytes is the limit for body and headers that admits such bodies.
func kilobytes(body int) int64 { return (int64(body) + maxHeaders + 1023) >> 10 }

func (c *conn) ensureQueue(ctx context.Context, e broker.Entity) error {
	find := func() (*facts, error) {
		f, err := c.topicFacts(ctx, e.Topic)
		if f != nil && !f.queue {
			return nil, broker.Errorf(broker.ErrConflict, nil, "ensure %s: it is a topic, wished a queue", e.Topic)
		}
		return f, err
	}
	p := &admin.QueueProperties{UserMetadata: to.Ptr(metadata), RequiresDuplicateDetection: to.Ptr(c.duplicates(e)),
		DuplicateDetectionHistoryTimeWindow: isoWish(e.Window), LockDuration: isoWish(e.Lease)}
	if c.sessions(e) {
		p.RequiresSession = to.Ptr(true)
	}
	if e.MaxDeliveries > 0 {
		p.MaxDeliveryCount = to.Ptr(int32(e.MaxDeliveries))
	}
	if e.DeadLetter != "" {
		p.ForwardDeadLetteredMessagesTo = &e.DeadLetter
	}
	if e.MaxBody > 0 {
		p.MaxMessageSizeInKilobytes = to.Ptr(kilobytes(e.MaxBody))
	}
	return c.ensure(ctx, "queue "+e.Topic, find, c.wished(e, true, true), func() error {
		_, err := c.admin.CreateQueue(ctx, e.Topic, &admin.CreateQueueOptions{Properties: p})
		return err
	})
}

func (c *conn) ensureTopic(ctx context.Context, e broker.Entity) error {
	find := func() (*facts, error) {
		f, err := c.topicFacts(ctx, e.Topic)
		if f != nil && f.queue {
			return nil, broker.Errorf(broker.ErrConflict, nil, "ensure %s: it is a queue, wished a topic", e.Topic)
		}
		return f, err
	}
	p := &admin.TopicProperties{UserMetadata: to.Ptr(metadata), RequiresDuplicateDetection: to.Ptr(c.duplicates(e)),
		DuplicateDetectionHistoryTimeWindow: isoWish(e.Window)}
	if c.sessions(e) {
		p.SupportOrdering = to.Ptr(true)
	}
	if e.MaxBody > 0 {
		p.MaxMessageSizeInKilobytes = to.Ptr(kilobytes(e.MaxBody))
	}
	return c.ensure(ctx, "topic "+e.Topic, find, c.wished(e, true, false), func() error {
		_, err := c.admin.CreateTopic(ctx, e.Topic, &admin.CreateTopicOptions{Properties: p})
		return err
	})
}

func (c *conn) ensureSubscription(ctx context.Context, e broker.Entity, s source) error {
	p := &admin.SubscriptionProperties{UserMetadata: to.Ptr(metadata), LockDuration: isoWish(e.Lease)}
	if c.sessions(e) {
		p.RequiresSession = to.Ptr(true)
	}
	if e.MaxDeliveries > 0 {
		p.MaxDeliveryCount = to.Ptr(int32(e.MaxDeliveries))
	}
	if e.DeadLetter != "" {
		p.ForwardDeadLetteredMessagesTo = &e.DeadLetter
	}
	find := func() (*facts, error) { return c.subscriptionFacts(ctx, s.topic, s.subscription) }
	return c.ensure(ctx, "subscription "+e.Subscription, find, c.wished(e, false, true), func() error {
		_, err := c.admin.CreateSubscription(ctx, s.topic, s.subscription, &admin.CreateSubscriptionOptions{Properties: p})
		return err
	})
}

// duplicates is whether duplicate detection is switched on for what is made.
func (c *conn) duplicates(e broker.Entity) bool { return e.Window > 0 || !c.opts.noDuplicates }

// sessions is whether what is made has sessions.
func (c *conn) sessions(e broker.Entity) bool { return e.Ordered || c.opts.sessions }

// ensure looks for what is wished and makes it where it is missing.
func (c *conn) ensure(ctx context.Context, what string, find func() (*facts, error), compare func(*facts, string, error) error, create func() error) error {
	for try := 0; ; try++ {
		f, err := find()
		if err != nil {
			if errors.Is(err, broker.ErrConflict) {
				return err // of another kind of entity
			}
			return failure(ctx, err, "ensure %s", what)
		}
		if f != nil {
			return compare(f, what, broker.ErrConflict)
		}
		if err = create(); err == nil {
			// What was made is looked at: the service ignores settings that its tier
			// doesn't have.
			if f, err = find(); err == nil && f != nil {
				return compare(f, what, broker.ErrUnsupported)
			}
		}
		if err == nil || try > 0 || kindOf(err) != broker.ErrConflict {
			if err == nil {
				return broker.Errorf(broker.ErrUnavailable, nil, "ensure %s: made, and not found", what)
			}
			return failure(ctx, err, "ensure %s: create", what)
		}
		// Somebody else made it meanwhile.
	}
}

// wished returns the comparison of what is there with the wishes: those of the
// sending side, of the receiving side, or both. kind is the error for a
// difference: what exists is in conflict with the wish, what was just made shows
// that the broker can't meet it.
func (c *conn) wished(e broker.Entity, sends, receives bool) func(f *facts, what string, kind error) error {
	return func(f *facts, what string, kind error) error {
		differs := func(setting string, has, wish any) error {
			return broker.Errorf(kind, nil, "ensure %s: it has %s %v, wished %v", what, setting, has, wish)
		}
		switch {
		case sends && e.Window > 0 && f.window != e.Window:
			return differs("window", f.window, e.Window)
		case sends && e.MaxBody > 0 && f.kilobytes != kilobytes(e.MaxBody):
			return differs("a limit in KB (body and headers) of", f.kilobytes, kilobytes(e.MaxBody))
		case receives && e.Lease > 0 && f.lease != e.Lease:
			return differs("lease", f.lease, e.Lease)
		case receives && e.MaxDeliveries > 0 && f.deliveries != e.MaxDeliveries:
			return differs("a limit of deliveries of", f.deliveries, e.MaxDeliveries)
		case receives && c.sessions(e) && !f.sessions:
			return differs("sessions", f.sessions, true)
		case receives && e.DeadLetter != "" && !strings.EqualFold(f.forward, e.DeadLetter):
			return differs("dead-letter entity", f.forward, e.DeadLetter)
		}
		return nil
	}
}

// Delete removes the subscription, the queue or topic, and the dead-letter queue,
// each only if Ensure made it.
func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	s, err := checkEntity(e)
	if err != nil {
		return err
	}
	if c.admin == nil {
		return broker.Errorf(broker.ErrUnsupported, errNoAdmin, "delete %s", e.Topic)
	}
	if s.topic != "" {
		f, err := c.subscriptionFacts(ctx, s.topic, s.subscription)
		if err == nil && f != nil && f.metadata == metadata {
			_, err = c.admin.DeleteSubscription(ctx, s.topic, s.subscription, nil)
		}
		if err != nil && kindOf(err) != broker.ErrNotFound {
			return failure(ctx, err, "delete %s", e.Subscription)
		}
	}
	for _, name := range []string{e.Topic, e.DeadLetter} {
		if name == "" {
			continue
		}
		f, err := c.topicFacts(ctx, name)
		switch {
		case err != nil || f == nil || f.metadata != metadata:
		case f.queue:
			_, err = c.admin.DeleteQueue(ctx, name, nil)
		default:
			_, err = c.admin.DeleteTopic(ctx, name, nil)
		}
		if err != nil && kindOf(err) != broker.ErrNotFound {
			return failure(ctx, err, "delete %s", name)
		}
	}
	return nil
}
