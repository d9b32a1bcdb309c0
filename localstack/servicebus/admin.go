package servicebus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// The errors of the methods that make and remove entities, wrapped with which and
// why.
var (
	ErrNotFound = errors.New("servicebus: entity not found")
	ErrExists   = errors.New("servicebus: entity already exists")
	ErrInvalid  = errors.New("servicebus: invalid description")
	ErrClosed   = errors.New("servicebus: server closed")
)

// CreateQueue makes a queue with its sub-queues.
func (s *Server) CreateQueue(name string, p QueueProperties) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createQueue(name, p)
}

func (s *Server) createQueue(name string, p QueueProperties) error {
	name = strings.Trim(name, "/")
	if err := s.mayCreate(name, 260, &p); err != nil {
		return err
	}
	q := newQueue(s, name, &p, s.clock.Now())
	s.register(q)
	s.tracef("create queue %s", name)
	return nil
}

func (s *Server) mayCreate(name string, limit int, p *QueueProperties) error {
	if s.closed {
		return ErrClosed
	}
	if err := checkName(name, limit); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := p.complete(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	for _, to := range []string{p.ForwardTo, p.ForwardDeadLettersTo} {
		if to != "" && s.target(to) == nil {
			return fmt.Errorf("%w: %s forwards to %s, which doesn't exist", ErrInvalid, name, to)
		}
	}
	if p.Partitioned { // each of the sixteen partitions has the size that was given
		p.kept.megabytes = int32(min(16*p.megabytes(), 1<<30))
	}
	k := key(name)
	if s.queues[k] != nil || s.topics[k] != nil {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	return nil
}

func (s *Server) register(q *queue) {
	for _, q := range []*queue{q, q.dead, q.transfer} {
		s.queues[key(q.path)] = q
	}
}

// CreateTopic makes a topic. Of the properties, those about receiving mean nothing.
func (s *Server) CreateTopic(name string, p QueueProperties) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createTopic(name, p)
}

func (s *Server) createTopic(name string, p QueueProperties) error {
	name = strings.Trim(name, "/")
	p.RequiresSession, p.ForwardTo, p.ForwardDeadLettersTo = false, "", ""
	if err := s.mayCreate(name, 260, &p); err != nil {
		return err
	}
	now := s.clock.Now()
	t := &topic{s: s, path: name, p: &p, created: now, updated: now}
	t.waiting = bareQueue(s, name, &p, now)
	t.waiting.fanout = t
	s.topics[key(name)] = t
	s.tracef("create topic %s", name)
	return nil
}

// CreateSubscription makes a subscription of a topic, with a rule named "$Default"
// that takes all. Duplicate detection is the topic's.
func (s *Server) CreateSubscription(topic, name string, p QueueProperties) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.createSubscription(topic, name, p, &rule{name: defaultRule, filter: trueFilter{}})
}

func (s *Server) createSubscription(topicName, name string, p QueueProperties, first *rule) error {
	t := s.topics[key(topicName)]
	if t == nil {
		return fmt.Errorf("%w: %s", ErrNotFound, topicName)
	}
	if err := checkName(name, 50); err != nil || strings.Contains(name, "/") {
		return fmt.Errorf("%w: the name of subscription %q: %w", ErrInvalid, name, err)
	}
	p.DuplicateDetection, p.Partitioned = false, false
	path := t.path + "/Subscriptions/" + name
	if err := s.mayCreate(path, 400, &p); err != nil {
		return err
	}
	now := s.clock.Now()
	first.created = now
	q := newQueue(s, path, &p, now)
	q.topic, q.accessed = t, now
	q.rules = []*rule{first}
	s.register(q)
	t.addSub(q)
	s.tracef("create subscription %s", path)
	return nil
}

// Delete removes a queue, a topic with its subscriptions, or the subscription at
// "topic/subscriptions/name", with all that is in it. Their links are detached.
func (s *Server) Delete(address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delete(address)
}

func (s *Server) delete(address string) error {
	k := key(address)
	if t := s.topics[k]; t != nil {
		for _, q := range slices.Clone(t.subs) {
			s.drop(q)
		}
		t.waiting.stopTimers()
		delete(s.topics, k)
		s.detachFrom(deleted, func(l *link) bool { return l.target == target(t) })
		return nil
	}
	q := s.queues[k]
	if q == nil || q.parent != nil {
		return fmt.Errorf("%w: %s", ErrNotFound, address)
	}
	s.drop(q)
	return nil
}

// drop removes a queue or subscription.
func (s *Server) drop(q *queue) {
	s.tracef("delete %s", q.path)
	for _, q := range []*queue{q, q.dead, q.transfer} {
		delete(s.queues, key(q.path))
		q.stopTimers()
		s.detachFrom(deleted, func(l *link) bool { return l.q == q || l.target == target(q) })
	}
	if t := q.topic; t != nil {
		t.subs = slices.DeleteFunc(t.subs, func(o *queue) bool { return o == q })
	}
}

var deleted = amqp.Error{Condition: "amqp:not-found", Description: "The messaging entity has been deleted."}

// changed is the reason with which links are detached when their entity's
// properties change, as the service does (SB-F-45).
var changed = amqp.Error{Condition: "amqp:link:detach-forced", Description: "The link is force detached by the broker because the entity was updated."}

// detachFrom detaches links for a reason.
func (s *Server) detachFrom(reason amqp.Error, which func(*link) bool) {
	for c := range s.conns {
		for _, ch := range c.channels {
			for _, l := range ch.links {
				if which(l) {
					l.detach(reason)
				}
			}
		}
	}
}

// UpdateQueue changes the properties of a queue or subscription. Whether it
// requires sessions, detects duplicates and is partitioned is fixed (SB-F-02).
// Locks that are held are lost by it, as the service documents (SB-F-43).
func (s *Server) UpdateQueue(address string, p QueueProperties) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[key(address)]
	if q == nil || q.parent != nil {
		return fmt.Errorf("%w: %s", ErrNotFound, address)
	}
	return s.updateQueue(q, p)
}

func (s *Server) updateQueue(q *queue, p QueueProperties) error {
	if q.topic != nil {
		p.DuplicateDetection, p.Partitioned = false, false
	}
	if err := s.update(q.path, q.p, p); err != nil {
		return err
	}
	now := s.clock.Now()
	q.updated = now
	q.dropLocks(now)
	s.detachFrom(changed, func(l *link) bool { return l.q == q || l.target == target(q) })
	return nil
}

func (s *Server) updateTopic(t *topic, p QueueProperties) error {
	p.RequiresSession, p.ForwardTo, p.ForwardDeadLettersTo = false, "", ""
	if err := s.update(t.path, t.p, p); err != nil {
		return err
	}
	t.updated = s.clock.Now()
	s.detachFrom(changed, func(l *link) bool { return l.target == target(t) })
	return nil
}

func (s *Server) update(name string, old *QueueProperties, p QueueProperties) error {
	if err := p.complete(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	for _, fixed := range []struct {
		name     string
		new, old bool
	}{
		{"RequiresSession", p.RequiresSession, old.RequiresSession},
		{"RequiresDuplicateDetection", p.DuplicateDetection, old.DuplicateDetection},
	} {
		if fixed.new != fixed.old {
			return fmt.Errorf("%w: %s: The value for the %s property of an existing %s cannot be changed", ErrInvalid, name, fixed.name, s.kind(name))
		}
	}
	if p.Partitioned != old.Partitioned {
		return fmt.Errorf("%w: %s: Partitioning cannot be changed for %s. ", ErrInvalid, name, s.kind(name))
	}
	for _, to := range []string{p.ForwardTo, p.ForwardDeadLettersTo} {
		if to != "" && s.target(to) == nil {
			return fmt.Errorf("%w: %s forwards to %s, which doesn't exist", ErrInvalid, name, to)
		}
	}
	*old = p
	return nil
}

// kind is what an entity is, in the service's words.
func (s *Server) kind(path string) string {
	switch q := s.queues[key(path)]; {
	case q == nil:
		return "Topic"
	case q.topic != nil:
		return "Subscription"
	}
	return "Queue"
}

// Counts are the messages of a queue or subscription.
type Counts struct {
	Active, DeadLettered, Scheduled, Transfer int
	Bytes                                     int64
}

// Count returns what is in the queue or subscription at an address.
func (s *Server) Count(address string) (Counts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[key(address)]
	if q == nil {
		return Counts{}, fmt.Errorf("%w: %s", ErrNotFound, address)
	}
	return q.counts(), nil
}

// counts counts deferred and locked messages among the active, as the service does.
func (q *queue) counts() Counts {
	c := Counts{Bytes: q.size}
	for _, m := range q.held {
		if m.state == scheduled {
			c.Scheduled++
		}
	}
	c.Active = q.all.n - c.Scheduled
	if q.dead != nil {
		c.DeadLettered, c.Transfer = q.dead.all.n, q.transfer.all.n
		c.Bytes += q.dead.size + q.transfer.size
	}
	return c
}

// lastName is the last part of a subscription's path, its own name.
func (q *queue) lastName() string { return q.path[strings.LastIndexByte(q.path, '/')+1:] }

// at formats a time for the HTTP interface; the zero time as the service does.
func at(t time.Time) string {
	if t.IsZero() {
		return "0001-01-01T00:00:00"
	}
	return t.UTC().Format("2006-01-02T15:04:05.0000000Z")
}
