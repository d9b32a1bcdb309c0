package memory

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/onceline/onceline/broker"
)

// Ensure makes the topic, the dead-letter topic and the subscription. It makes
// all or, on error, nothing.
//
// MaxDeliveries without DeadLetter parks a message that was delivered that often:
// it stays with the subscription and is never delivered again (Stats.Parked).
func (c *conn) Ensure(_ context.Context, e broker.Entity) error {
	if err := checkEntity(e); err != nil {
		return err
	}
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.ready("ensure", e.Topic); err != nil {
		return err
	}
	if err := b.checkWishes(e); err != nil {
		return err
	}
	t := b.ensureTopic(e.Topic, e.Window, e.MaxBody)
	if e.Subscription == "" {
		return nil
	}
	if e.DeadLetter != "" {
		b.ensureTopic(e.DeadLetter, 0, 0)
	}
	if b.subs[e.Subscription] != nil {
		return nil
	}
	d := b.defaults
	defaults{lease: e.Lease, maxDeliveries: e.MaxDeliveries}.apply(&d)
	s := &subscription{b: b, topic: t, name: e.Subscription, lease: int64(d.lease), maxDeliveries: d.maxDeliveries,
		deadLetter: e.DeadLetter, ordered: e.Ordered, lanes: map[string]*lane{}}
	b.subs[s.name] = s
	t.subscribe(s)
	return nil
}

// checkWishes compares an entity with what exists.
func (b *Broker) checkWishes(e broker.Entity) error {
	if t := b.topics[e.Topic]; t != nil {
		what := "ensure topic " + e.Topic
		if err := clash(what, "window", time.Duration(t.window), e.Window); err != nil {
			return err
		}
		if err := clash(what, "max body", t.maxBody, e.MaxBody); err != nil {
			return err
		}
	}
	s := b.subs[e.Subscription]
	if s == nil {
		return nil
	}
	what := "ensure subscription " + s.name
	if err := clash(what, "lease", time.Duration(s.lease), e.Lease); err != nil {
		return err
	}
	if err := clash(what, "max deliveries", s.maxDeliveries, e.MaxDeliveries); err != nil {
		return err
	}
	if err := clash(what, "ordered", s.ordered, e.Ordered); err != nil {
		return err
	}
	if e.DeadLetter == "" || e.DeadLetter == s.deadLetter {
		return nil
	}
	return broker.Errorf(broker.ErrConflict, nil, "%s: dead letter is %q, wished %q", what, s.deadLetter, e.DeadLetter)
}

func (b *Broker) ensureTopic(name string, window time.Duration, maxBody int) *topic {
	t := b.topics[name]
	if t == nil {
		d := b.defaults
		defaults{window: window, maxBody: maxBody}.apply(&d)
		t = newTopic(b, name, d.window, d.maxBody)
		b.topics[name] = t
	}
	return t
}

func checkEntity(e broker.Entity) error {
	if err := checkName("topic", e.Topic); err != nil {
		return err
	}
	if e.Partitions > 1 {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure topic %s: %d partitions; a topic has one", e.Topic, e.Partitions)
	}
	if e.Subscription == "" {
		if e.Lease != 0 || e.MaxDeliveries != 0 || e.DeadLetter != "" || e.Ordered {
			return broker.Errorf(broker.ErrInvalid, nil,
				"ensure topic %s: a wish for lease, max deliveries, dead letter or order, and no subscription", e.Topic)
		}
		return nil
	}
	own, ok := strings.CutPrefix(e.Subscription, e.Topic+"/")
	if !ok {
		return broker.Errorf(broker.ErrInvalid, nil, "ensure subscription %q: the name doesn't begin with %q", e.Subscription, e.Topic+"/")
	}
	if err := checkName("subscription", own); err != nil {
		return err
	}
	if e.DeadLetter == "" {
		return nil
	}
	if e.DeadLetter == e.Topic {
		return broker.Errorf(broker.ErrInvalid, nil, "ensure subscription %s: its own topic as the dead-letter topic", e.Subscription)
	}
	return checkName("dead-letter topic", e.DeadLetter)
}

func checkName(what, name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r == '/' || unicode.IsControl(r) }) {
		return broker.Errorf(broker.ErrInvalid, nil, "%s %q: a name is text without / and control characters", what, name)
	}
	return nil
}

// Delete removes the subscription and, as Ensure makes them along, the topic
// and the dead-letter topic where no other subscription needs them. Without a
// subscription it removes the topic with all of its subscriptions.
func (c *conn) Delete(_ context.Context, e broker.Entity) error {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.ready("delete", e.Topic); err != nil {
		return err
	}
	now := b.begin()
	defer b.arm(now)
	t := b.topics[e.Topic]
	if e.Subscription != "" {
		if s := b.subs[e.Subscription]; s != nil && s.topic == t {
			b.deleteSubscription(s)
		}
		b.deleteUnused(t)
		if e.DeadLetter != "" {
			b.deleteUnused(b.topics[e.DeadLetter])
		}
		return nil
	}
	if t != nil {
		for _, s := range slices.Clone(t.subs) {
			b.deleteSubscription(s)
		}
		t.deleted = true
		delete(b.topics, t.name)
	}
	return nil
}

func (b *Broker) deleteSubscription(s *subscription) {
	s.deleted = true
	s.discard(func(*item) bool { return true })
	s.topic.subs = slices.DeleteFunc(s.topic.subs, func(o *subscription) bool { return o == s })
	delete(b.subs, s.name)
	s.wakeAll()
}

// Purge removes all messages of a topic, also those that consumers hold. Its IDs
// stay known until their window ends. It returns broker.ErrNotFound for a topic
// that there isn't.
func (b *Broker) Purge(topic string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.begin()
	defer b.arm(now)
	t := b.topics[topic]
	if t == nil {
		return broker.Errorf(broker.ErrNotFound, nil, "purge topic %s", topic)
	}
	t.lose(0, b.broken.dedupAfterPurge)
	return nil
}

// deleteUnused deletes a topic that no subscription reads or buries its dead
// in; t may be nil.
func (b *Broker) deleteUnused(t *topic) {
	if t == nil || len(t.subs) > 0 {
		return
	}
	for _, s := range b.subs {
		if s.deadLetter == t.name {
			return
		}
	}
	t.deleted = true
	delete(b.topics, t.name)
}

// wakeAll wakes all receivers that wait, to see that something is gone.
func (s *subscription) wakeAll() {
	for s.waiters.n > 0 {
		s.waiters.pop().wake <- struct{}{}
	}
}
