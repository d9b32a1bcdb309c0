package rabbitmq

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// Ensure declares the exchange, the queue with its binding, and the dead-letter
// exchange. It can be called again, by each connection that uses the
// subscription, and should be: the protocol tells nobody what a queue was
// declared with, so a connection knows lease, limit, dead-letter topic and order
// of a subscription from its own Ensure alone. What it ensured it also declares
// again when a node has lost it.
func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	to, dead, err := c.checkEntity(e)
	if err != nil {
		return err
	}
	if err = c.declareQueues(ctx, e, to, dead); err == nil {
		err = c.admin(ctx, func(s *session, ch *amqp.Channel) error { return c.declare(s, ch, e, to, dead) })
	}
	if err != nil {
		return failure(ctx, err, "ensure %s", nameOf(e))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[e.Topic] = broker.Entity{Topic: e.Topic}
	if to.single { // whose queue is the topic itself
		c.topics[e.Topic] = e
	}
	if e.Subscription != "" {
		c.wishes[e.Subscription] = e
	}
	if e.DeadLetter != "" {
		c.topics[e.DeadLetter] = broker.Entity{Topic: e.DeadLetter}
	}
	return nil
}

func nameOf(e broker.Entity) string {
	if e.Subscription != "" {
		return e.Subscription
	}
	return e.Topic
}

// checkEntity refuses what no node can do.
func (c *conn) checkEntity(e broker.Entity) (to, dead place, err error) {
	if to, err = placeOf(e.Topic); err != nil {
		return to, dead, err
	}
	no := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: "+format, append([]any{nameOf(e)}, args...)...)
	}
	switch {
	case e.Window > 0:
		return to, dead, no("a dedup window: queues know no copies")
	case e.Partitions > 1:
		return to, dead, no("%d partitions: a queue is one sequence", e.Partitions)
	case e.MaxBody > 0:
		return to, dead, no("bodies of %d bytes: the limit is a node's, not a queue's; see MaxBody", e.MaxBody)
	case e.Subscription == "" && (e.Lease > 0 || e.MaxDeliveries > 0 || e.DeadLetter != "" || e.Ordered):
		return to, dead, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: these wishes are a subscription's, and none is named", e.Topic)
	case e.MaxDeliveries > 0 && c.kind == Classic:
		return to, dead, no("%d deliveries: a classic queue doesn't count them", e.MaxDeliveries)
	case e.MaxDeliveries > 0 && e.DeadLetter == "":
		return to, dead, no("%d deliveries without a dead-letter topic: the queue would drop the message", e.MaxDeliveries)
	case e.Subscription != "" && !validQueue(e.Subscription):
		return to, dead, broker.Errorf(broker.ErrInvalid, nil, "subscription %q: want 1 to %d bytes, not amq.", e.Subscription, maxField-retrySuffix)
	case to.single && e.Subscription != "" && e.Subscription != to.key:
		return to, dead, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: topic %s is the queue %q itself", e.Subscription, e.Topic, to.key)
	}
	if e.DeadLetter != "" {
		if dead, err = placeOf(e.DeadLetter); err != nil {
			return to, dead, err
		}
		if dead == to {
			return to, dead, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: it would be its own dead-letter topic", nameOf(e))
		}
	}
	return to, dead, nil
}

// validQueue reports whether s can name a queue that has retry queues beside it.
func validQueue(s string) bool {
	return s != "" && len(s) <= maxField-retrySuffix && !(len(s) >= 4 && s[:4] == "amq.")
}

func (c *conn) declare(s *session, ch *amqp.Channel, e broker.Entity, to, dead place) error {
	if err := c.declarePlace(ch, to); err != nil || e.Subscription == "" {
		return err
	}
	args, err := c.queueArgs(s, e, dead)
	if err != nil {
		return err
	}
	if e.DeadLetter != "" {
		if err := c.declarePlace(ch, dead); err != nil {
			return err
		}
	}
	if _, err := ch.QueueDeclare(e.Subscription, true, false, false, false, args); err != nil {
		return err
	}
	if to.single {
		return nil // the default exchange binds by itself
	}
	return ch.QueueBind(e.Subscription, to.key, to.exchange, false, nil)
}

// declarePlace declares a topic's exchange. One that is a queue by itself is
// declared by declareQueues.
func (c *conn) declarePlace(ch *amqp.Channel, to place) error {
	if to.single {
		return nil
	}
	kind := amqp.ExchangeFanout
	if to.key != "" {
		kind = amqp.ExchangeDirect
	}
	return ch.ExchangeDeclare(to.exchange, kind, true, false, false, false, nil)
}

// declareQueues makes the queues that are topics by themselves, and nobody's
// subscription here, unless they exist: then with arguments of their own.
func (c *conn) declareQueues(ctx context.Context, e broker.Entity, places ...place) error {
	for _, p := range places {
		if !p.single || p.key == e.Subscription {
			continue
		}
		err := c.admin(ctx, func(_ *session, ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(p.key, true, false, false, false, nil)
			return err
		})
		if errors.Is(kindOf(err), broker.ErrNotFound) {
			err = c.admin(ctx, func(s *session, ch *amqp.Channel) error {
				args, err := c.queueArgs(s, broker.Entity{}, place{})
				if err != nil {
					return err
				}
				_, err = ch.QueueDeclare(p.key, true, false, false, false, args)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// queueArgs are the arguments of a subscription's queue. A wish that this node
// would pass over in silence is refused.
func (c *conn) queueArgs(s *session, e broker.Entity, dead place) (amqp.Table, error) {
	args := amqp.Table{"x-queue-type": c.kind.String()}
	if e.Ordered {
		args["x-single-active-consumer"] = true
	}
	if e.Lease > 0 {
		if !s.atLeast(3, 12) {
			return nil, broker.Errorf(broker.ErrUnsupported, nil, "a lease of %s: nodes before 3.12 have one timeout for all queues (RMQ-F-13)", e.Lease)
		}
		if c.kind == Classic && s.atLeast(4, 3) {
			return nil, broker.Errorf(broker.ErrUnsupported, nil, "a lease of %s: from 4.3 on classic queues have none (RMQ-F-13)", e.Lease)
		}
		args["x-consumer-timeout"] = e.Lease.Milliseconds()
	}
	if e.DeadLetter != "" {
		args["x-dead-letter-exchange"] = dead.exchange
		if dead.key != "" {
			args["x-dead-letter-routing-key"] = dead.key
		}
		if c.kind == Quorum {
			// By default a node moves dead letters without a confirm, and drops
			// those that no queue takes (RMQ-F-17).
			args["x-dead-letter-strategy"] = "at-least-once"
			args["x-overflow"] = "reject-publish"
		}
	}
	if c.kind == Quorum {
		switch {
		case e.MaxDeliveries > 0:
			args["x-delivery-limit"] = int64(e.MaxDeliveries - 1) // returns, not deliveries (RMQ-F-16)
		case e.Ordered:
			// Without a limit what is rejected or nacked goes to the queue's end; only
			// what a channel's end gives back keeps its place (RMQ-F-40).
			args["x-delivery-limit"] = int64(math.MaxInt32)
		case s.atLeast(4, 0):
			args["x-delivery-limit"] = int64(-1) // or it drops a message after twenty (RMQ-F-14)
		}
	}
	return args, nil
}

// Delete removes the queue with its retry queues, and the exchanges that nothing
// is bound to any more; without a subscription, the exchange in any case.
func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	to, dead, err := c.checkEntity(broker.Entity{Topic: e.Topic, Subscription: e.Subscription, DeadLetter: e.DeadLetter})
	if err != nil && e.Subscription == "" && e.DeadLetter != "" {
		// A dead-letter topic beside a topic alone: to remove both.
		if to, err = placeOf(e.Topic); err == nil {
			dead, err = placeOf(e.DeadLetter)
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.wishes, e.Subscription)
	delete(c.topics, e.Topic)
	delete(c.topics, e.DeadLetter)
	var queues []string
	if e.Subscription != "" {
		queues = append(queues, e.Subscription)
		for name := range c.retry {
			if retryOf(name) == e.Subscription {
				queues = append(queues, name)
				delete(c.retry, name)
			}
		}
	}
	c.mu.Unlock()
	if to.single && e.Subscription == "" {
		queues = append(queues, to.key)
	}
	for _, q := range queues {
		err := c.admin(ctx, func(_ *session, ch *amqp.Channel) error {
			_, err := ch.QueueDelete(q, false, false, false)
			return err
		})
		if err != nil && !errors.Is(kindOf(err), broker.ErrNotFound) {
			return failure(ctx, err, "delete queue %s", q)
		}
	}
	if err := c.deleteExchange(ctx, to, e.Subscription != ""); err != nil {
		return err
	}
	return c.deleteExchange(ctx, dead, true)
}

func (c *conn) deleteExchange(ctx context.Context, p place, ifUnused bool) error {
	if p.exchange == "" {
		return nil
	}
	err := c.admin(ctx, func(_ *session, ch *amqp.Channel) error { return ch.ExchangeDelete(p.exchange, ifUnused, false) })
	switch {
	case err == nil, errors.Is(kindOf(err), broker.ErrNotFound):
		return nil
	case ifUnused && errors.Is(kindOf(err), broker.ErrConflict):
		return nil // others use it
	}
	return failure(ctx, err, "delete exchange %s", p.exchange)
}

// A delayed message waits in a queue without consumers, whose messages expire
// after the delay and go back where they came from. One queue has one delay, for
// a message expires at the head of its queue alone; so delays are rounded up to
// four steps for each doubling, and a queue that isn't used any more expires too.
const (
	retryMark   = ".onceline-retry-"
	retrySuffix = len(retryMark) + 10 // of the name, beside the subscription's
	retryUnused = 10 * time.Minute    // a queue's life after its last message can have gone
	retryFresh  = 2 * time.Minute     // for how long a declaration isn't repeated
)

// roundDelay rounds up to whole milliseconds with three significant bits.
func roundDelay(d time.Duration) time.Duration {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	step := time.Duration(1)
	for ms/step >= 8 {
		step *= 2
	}
	return (ms + step - 1) / step * step * time.Millisecond
}

func retryQueue(queue string, delay time.Duration) string {
	return queue + retryMark + strconv.FormatInt(delay.Milliseconds(), 10)
}

// retryOf is the queue that a retry queue belongs to, or "".
func retryOf(name string) string {
	for i := len(name) - len(retryMark) - 1; i > 0; i-- {
		if name[i:i+len(retryMark)] == retryMark {
			return name[:i]
		}
	}
	return ""
}

func isRetryQueue(name string) bool { return retryOf(name) != "" }

// ensureRetry declares the retry queue for a delay and returns its name. It has
// to be repeated now and then: to publish to a queue doesn't count as its use.
func (c *conn) ensureRetry(ctx context.Context, queue string, delay time.Duration) (string, error) {
	name := retryQueue(queue, delay)
	now := time.Now()
	c.mu.Lock()
	last, known := c.retry[name]
	c.mu.Unlock()
	if known && now.Sub(last) < retryFresh {
		return name, nil
	}
	args := amqp.Table{"x-queue-type": c.kind.String(), "x-message-ttl": delay.Milliseconds(),
		"x-expires": (delay + retryUnused).Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
	if c.kind == Quorum {
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish"
	}
	err := c.admin(ctx, func(_ *session, ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	c.retry[name] = now
	c.mu.Unlock()
	return name, nil
}

// forgetRetry makes the next delay declare the queue again.
func (c *conn) forgetRetry(name string) {
	c.mu.Lock()
	delete(c.retry, name)
	c.mu.Unlock()
}
