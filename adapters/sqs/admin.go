package sqs

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
)

const (
	// tagMade marks the queues that Ensure made; its value is the queue's name.
	tagMade = "onceline-made"

	// maxReceives is the largest limit of deliveries that a redrive policy can
	// have (SQS-F-34).
	maxReceives = 1000

	// attributeRoom is what Ensure leaves for attributes beside a body of
	// MaxBody bytes.
	attributeRoom = 4096
	minMessage    = 1024 // bytes, of the limit of a queue (SQS-F-15)
)

// wish is what Ensure wants of one queue.
type wish struct {
	name          string
	fifo          bool
	group         bool // DeduplicationScope=messageGroup
	lease         int  // seconds
	maxMessage    int
	deadLetter    string // queue name
	maxDeliveries int
}

// Ensure makes the dead-letter queue and the queue, in this order. It can be
// called again after an error.
func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	w, err := c.wishOf(e)
	if err != nil {
		return err
	}
	arn := ""
	if w.deadLetter != "" {
		dead, err := c.ensure(ctx, wish{name: w.deadLetter, fifo: w.fifo, group: w.group}, "")
		if err != nil {
			return err
		}
		if arn = dead.ARN; arn == "" {
			return broker.Errorf(broker.ErrUnauthorized, nil, "ensure %s: the ARN of %s can't be read", e.Topic, w.deadLetter)
		}
	}
	_, err = c.ensure(ctx, w, arn)
	return err
}

// wishOf reads an entity. What a queue can't be is ErrUnsupported.
func (c *conn) wishOf(e broker.Entity) (w wish, err error) {
	if w, err = c.names(e); err != nil {
		return w, err
	}
	unsupported := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: "+format, append([]any{e.Topic}, args...)...)
	}
	switch {
	case e.Ordered && !w.fifo:
		return w, unsupported("a standard queue has no order: name it %s.fifo, or open the connection with fifo=true", e.Topic)
	case e.Window > 0 && !w.fifo:
		return w, unsupported("a standard queue has no dedup window: name it %s.fifo, or open the connection with fifo=true", e.Topic)
	case e.Window > 0 && e.Window != dedupWindow:
		return w, unsupported("a window of %s: a FIFO queue's is %s", e.Window, dedupWindow)
	case e.Partitions > 1:
		return w, unsupported("%d partitions: a queue has none", e.Partitions)
	case e.Lease%time.Second != 0 || e.Lease > maxLease:
		return w, unsupported("a lease of %s: want whole seconds, up to %s", e.Lease, maxLease)
	case e.MaxDeliveries > 0 && e.DeadLetter == "":
		return w, unsupported("a limit of %d deliveries without a dead-letter queue", e.MaxDeliveries)
	case e.MaxDeliveries > maxReceives:
		return w, unsupported("a limit of %d deliveries: the highest is %d", e.MaxDeliveries, maxReceives)
	}
	w.lease, w.maxDeliveries = int(e.Lease/time.Second), e.MaxDeliveries
	if e.MaxBody > 0 {
		// Any body of that many bytes: one that isn't text travels in base64.
		if w.maxMessage = max((e.MaxBody+2)/3*4+attributeRoom, minMessage); w.maxMessage > maxMessage {
			return w, unsupported("bodies of %d bytes: in base64 and with attributes a message would be over %d", e.MaxBody, maxMessage)
		}
	}
	return w, nil
}

// names reads an entity's names.
func (c *conn) names(e broker.Entity) (w wish, err error) {
	own := func(name string) (string, bool, error) {
		owner, queue, err := c.queueName(name)
		if err == nil && owner != "" {
			err = broker.Errorf(broker.ErrUnsupported, nil, "queue %s: a queue of another account can't be made or deleted", name)
		}
		return queue, len(queue) > len(fifoSuffix) && queue[len(queue)-len(fifoSuffix):] == fifoSuffix, err
	}
	if w.name, w.fifo, err = own(e.Topic); err != nil {
		return w, err
	}
	w.group = w.fifo && c.opts.highThroughput
	if e.Subscription != "" {
		sub, _, err := own(e.Subscription)
		if err != nil {
			return w, err
		}
		if sub != w.name {
			return w, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: subscription %s: a queue's topic and subscription are the queue itself", e.Topic, e.Subscription)
		}
	}
	if e.DeadLetter != "" {
		dead, fifo, err := own(e.DeadLetter)
		switch {
		case err != nil:
			return w, err
		case dead == w.name:
			return w, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: it can't be its own dead-letter queue", e.Topic)
		case fifo != w.fifo:
			return w, broker.Errorf(broker.ErrInvalid, nil, "ensure %s: dead-letter queue %s: one of the two is FIFO and the other isn't", e.Topic, e.DeadLetter)
		}
		w.deadLetter = dead
	}
	return w, nil
}

// ensure returns the queue, made if there is none. arn is that of its
// dead-letter queue.
func (c *conn) ensure(ctx context.Context, w wish, arn string) (*Queue, error) {
	made := false
	for try := 0; ; try++ {
		q, err := c.lookAt(ctx, "", w.name)
		if err == nil {
			return q, compare(q, w, arn, made)
		}
		if !errors.Is(err, broker.ErrNotFound) {
			return nil, err
		}
		_, err = c.client.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &w.name, Attributes: attributesOf(w, arn),
			Tags: map[string]string{tagMade: w.name}})
		if err != nil {
			err = failure(ctx, err, "ensure %s: create the queue", w.name)
			if try > 0 || !errors.Is(err, broker.ErrConflict) {
				return nil, err
			}
			continue // somebody else made it meanwhile
		}
		made = true
		if try > 1 {
			return nil, broker.Errorf(broker.ErrUnavailable, nil, "ensure %s: it was created and is not found", w.name)
		}
	}
}

func attributesOf(w wish, arn string) map[string]string {
	a := map[string]string{}
	set := func(name types.QueueAttributeName, value string) { a[string(name)] = value }
	if w.fifo {
		set(types.QueueAttributeNameFifoQueue, "true")
	}
	if w.group {
		set(types.QueueAttributeNameDeduplicationScope, "messageGroup")
		set(types.QueueAttributeNameFifoThroughputLimit, "perMessageGroupId")
	}
	if w.lease > 0 {
		set(types.QueueAttributeNameVisibilityTimeout, strconv.Itoa(w.lease))
	}
	if w.maxMessage > 0 {
		set(types.QueueAttributeNameMaximumMessageSize, strconv.Itoa(w.maxMessage))
	}
	if arn != "" {
		most := w.maxDeliveries
		if most == 0 {
			most = maxReceives // a policy must have one
		}
		set(types.QueueAttributeNameRedrivePolicy, writeRedrive(arn, most))
	}
	return a
}

// compare holds a queue against the wishes. One that was made just now and differs
// all the same is no conflict: the service, which then isn't AWS's own, took a wish
// that it doesn't meet.
func compare(q *Queue, w wish, arn string, made bool) error {
	differs := func(what string, has, wished any) error {
		if made {
			return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: the queue was made with %s %v, wished %v", w.name, what, has, wished)
		}
		return broker.Errorf(broker.ErrConflict, nil, "ensure %s: the queue has %s %v, wished %v", w.name, what, has, wished)
	}
	lease := time.Duration(w.lease) * time.Second
	switch {
	case q.ARN == "":
		return broker.Errorf(broker.ErrUnauthorized, nil, "ensure %s: what the queue is can't be read", w.name)
	case w.lease > 0 && q.Lease != lease:
		return differs("a lease of", q.Lease, lease)
	case w.maxMessage > 0 && q.MaxMessage != w.maxMessage:
		return differs("a message limit (of base64 and attributes) of", q.MaxMessage, w.maxMessage)
	case w.group && !q.GroupScope:
		return differs("the dedup scope", "queue", "messageGroup")
	case arn != "" && q.DeadLetter != arn:
		return differs("the dead-letter queue", strconv.Quote(q.DeadLetter), strconv.Quote(arn))
	case w.maxDeliveries > 0 && q.MaxDeliveries != w.maxDeliveries:
		return differs("a limit of deliveries of", q.MaxDeliveries, w.maxDeliveries)
	}
	return nil
}

// Delete removes the queue and its dead-letter queue, each only if Ensure made
// it. The service admits no new queue of the name for a minute.
func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	w, err := c.names(e)
	if err != nil {
		return err
	}
	for _, name := range []string{w.name, w.deadLetter} {
		if name == "" {
			continue
		}
		if err := c.deleteQueue(ctx, name); err != nil && !errors.Is(err, broker.ErrNotFound) {
			return err
		}
	}
	return nil
}

func (c *conn) deleteQueue(ctx context.Context, name string) error {
	found, err := c.client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: aws.String(name)})
	if err != nil {
		return failure(ctx, err, "delete %s", name)
	}
	tags, err := c.client.ListQueueTags(ctx, &awssqs.ListQueueTagsInput{QueueUrl: found.QueueUrl})
	if err != nil {
		return failure(ctx, err, "delete %s: its tags", name)
	}
	if tags.Tags[tagMade] != name {
		return nil
	}
	if _, err := c.client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: found.QueueUrl}); err != nil {
		return failure(ctx, err, "delete %s", name)
	}
	return nil
}
