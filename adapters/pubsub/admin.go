package pubsub

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/broker"
)

// What Ensure labels topics and subscriptions with, so that Delete knows its own
// and a receiver the limit that is kept here.
const (
	labelEnsured       = "onceline-ensured"
	labelMaxDeliveries = "onceline-max-deliveries"
)

const (
	minLease      = 10 * time.Second // PS-F-09
	minDeliveries = 5                // that the service counts to (PS-F-27)
	maxDeliveries = 100
)

// Ensure makes the topic, the dead-letter topic and the subscription, in this
// order. It can be called again after an error. Where the service itself moves
// dead letters its own agent needs the right to publish to their topic and to
// subscribe to this subscription, which Ensure doesn't grant.
func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	topic, err := c.checkEntity(e)
	if err != nil {
		return err
	}
	if err := c.ensureTopic(ctx, topic); err != nil {
		return err
	}
	dead := ""
	if e.DeadLetter != "" {
		if dead, err = c.topicName(e.DeadLetter); err != nil {
			return err
		}
		if err := c.ensureTopic(ctx, dead); err != nil {
			return err
		}
	}
	if e.Subscription == "" {
		return nil
	}
	want, err := c.wish(e, topic, dead)
	if err != nil {
		return err
	}
	return c.ensureSubscription(ctx, e, want)
}

// checkEntity refuses what the service can't do.
func (c *conn) checkEntity(e broker.Entity) (topic string, err error) {
	topic, err = c.topicName(e.Topic)
	unsupported := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: "+format, append([]any{e.Topic}, args...)...)
	}
	room := (&publisher{}).Limits().Body
	switch {
	case err != nil:
		return "", err
	case e.Window > 0:
		return "", unsupported("a dedup window: the service knows no IDs of producers")
	case e.Partitions > 1:
		return "", unsupported("%d partitions: a topic has none", e.Partitions)
	case e.MaxBody > 0 && e.MaxBody != room:
		return "", unsupported("a limit of %d bytes for bodies: the service has its own, %d", e.MaxBody, room)
	case e.Lease > 0 && (e.Lease < minLease || e.Lease > maxLease || e.Lease%time.Second != 0):
		return "", unsupported("a lease of %s: want whole seconds, 10 to 600", e.Lease)
	case e.MaxDeliveries > maxDeliveries:
		return "", unsupported("%d deliveries, over %d", e.MaxDeliveries, maxDeliveries)
	case e.MaxDeliveries > 0 && e.DeadLetter == "":
		return "", unsupported("a limit of deliveries without a dead-letter topic")
	case e.Subscription == "" && (e.Lease > 0 || e.MaxDeliveries > 0 || e.Ordered || e.DeadLetter != ""):
		return "", broker.Errorf(broker.ErrInvalid, nil, "ensure %s: lease, deliveries, order and dead letters are a subscription's, and none is named", e.Topic)
	}
	return topic, nil
}

func (c *conn) ensureTopic(ctx context.Context, name string) error {
	_, err := c.topics.GetTopic(ctx, &pb.GetTopicRequest{Topic: name})
	if status.Code(err) != codes.NotFound {
		return wrapped(ctx, err, "ensure topic %s", name)
	}
	_, err = c.topics.CreateTopic(ctx, &pb.Topic{Name: name, Labels: map[string]string{labelEnsured: "true"}})
	if status.Code(err) == codes.AlreadyExists {
		return nil // somebody else did meanwhile
	}
	return wrapped(ctx, err, "ensure topic %s", name)
}

// wrapped is failure, and nil for nil.
func wrapped(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return failure(ctx, err, format, args...)
}

// wish is the subscription that e asks for.
func (c *conn) wish(e broker.Entity, topic, dead string) (*pb.Subscription, error) {
	name, err := c.subscriptionName(e.Subscription)
	if err != nil {
		return nil, err
	}
	s := &pb.Subscription{Name: name, Topic: topic, AckDeadlineSeconds: int32(e.Lease / time.Second),
		EnableMessageOrdering: e.Ordered, Labels: map[string]string{labelEnsured: "true"}}
	if c.opts.exactlyOnce != nil {
		s.EnableExactlyOnceDelivery = *c.opts.exactlyOnce
	}
	if dead != "" {
		if dead == topic {
			return nil, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: its dead letters would come back to it", e.Topic)
		}
		n := e.MaxDeliveries
		if n > 0 && n < minDeliveries {
			s.Labels[labelMaxDeliveries] = strconv.Itoa(n) // kept by the receivers
			n = minDeliveries
		}
		s.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: int32(n)}
	}
	return s, nil
}

func (c *conn) ensureSubscription(ctx context.Context, e broker.Entity, want *pb.Subscription) error {
	for try := 0; ; try++ {
		has, err := c.subs.GetSubscription(ctx, &pb.GetSubscriptionRequest{Subscription: want.Name})
		if err == nil {
			return c.compare(e, has, want)
		}
		if status.Code(err) != codes.NotFound {
			return failure(ctx, err, "ensure subscription %s", want.Name)
		}
		_, err = c.subs.CreateSubscription(ctx, want)
		if err == nil || try > 0 || status.Code(err) != codes.AlreadyExists {
			return wrapped(ctx, err, "ensure subscription %s", want.Name)
		}
		// Somebody else made it meanwhile: compare.
	}
}

// compare holds what exists against the wishes.
func (c *conn) compare(e broker.Entity, has, want *pb.Subscription) error {
	differs := func(what string, has, wished any) error {
		return broker.Errorf(broker.ErrConflict, nil, "ensure subscription %s: it has %s %v, wished %v", want.Name, what, has, wished)
	}
	old, new := has.GetDeadLetterPolicy(), want.DeadLetterPolicy
	switch {
	case has.Topic != want.Topic:
		return differs("topic", has.Topic, want.Topic)
	case e.Lease > 0 && has.AckDeadlineSeconds != want.AckDeadlineSeconds:
		return differs("a lease of seconds", has.AckDeadlineSeconds, want.AckDeadlineSeconds)
	case e.Ordered && !has.EnableMessageOrdering:
		return differs("order", false, true)
	case c.opts.exactlyOnce != nil && has.EnableExactlyOnceDelivery != *c.opts.exactlyOnce:
		return differs("exactly-once delivery", has.EnableExactlyOnceDelivery, *c.opts.exactlyOnce)
	case new != nil && old.GetDeadLetterTopic() != new.DeadLetterTopic:
		return differs("dead-letter topic", old.GetDeadLetterTopic(), new.DeadLetterTopic)
	case e.MaxDeliveries > 0 && (old.GetMaxDeliveryAttempts() != new.MaxDeliveryAttempts || has.Labels[labelMaxDeliveries] != want.Labels[labelMaxDeliveries]):
		n := strconv.Itoa(int(old.GetMaxDeliveryAttempts()))
		if kept := has.Labels[labelMaxDeliveries]; kept != "" {
			n = kept
		}
		return differs("a limit of deliveries of", n, e.MaxDeliveries)
	}
	return nil
}

// Delete removes the subscription and the topics of e that Ensure made, which
// their labels say; others stay. Subscriptions of a topic that are not named stay
// too, without one.
func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	topic, err := c.topicName(e.Topic)
	if err != nil {
		return err
	}
	if e.Subscription != "" {
		name, err := c.subscriptionName(e.Subscription)
		if err != nil {
			return err
		}
		s, err := c.subs.GetSubscription(ctx, &pb.GetSubscriptionRequest{Subscription: name})
		if err == nil && s.Labels[labelEnsured] != "" {
			err = c.subs.DeleteSubscription(ctx, &pb.DeleteSubscriptionRequest{Subscription: name})
		}
		if err != nil && !errors.Is(kindOf(err), broker.ErrNotFound) {
			return failure(ctx, err, "delete subscription %s", name)
		}
	}
	topics := []string{topic}
	if e.DeadLetter != "" {
		dead, err := c.topicName(e.DeadLetter)
		if err != nil {
			return err
		}
		topics = append(topics, dead)
	}
	for _, name := range topics {
		t, err := c.topics.GetTopic(ctx, &pb.GetTopicRequest{Topic: name})
		if err == nil && t.Labels[labelEnsured] != "" {
			err = c.topics.DeleteTopic(ctx, &pb.DeleteTopicRequest{Topic: name})
		}
		if err != nil && !errors.Is(kindOf(err), broker.ErrNotFound) {
			return failure(ctx, err, "delete topic %s", name)
		}
	}
	return nil
}
