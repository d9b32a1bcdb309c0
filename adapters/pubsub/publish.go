package pubsub

import (
	"context"
	"errors"
	"sync"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	maxMessages = 1000       // of a publish request (PS-F-05)
	maxRequest  = 10_000_000 // bytes of one
	requestRoom = 1024       // for the topic's name and the like

	// attributeRoom is what a message's attributes can have at most, so that a
	// body of the limit is always taken.
	attributeRoom = 128 << 10

	// maxParallel is how many requests of one call are under way at a time: each
	// ordering key needs one of its own.
	maxParallel = 16
)

// publisher is the driver.Publisher.
type publisher struct {
	c       *conn
	topic   string // full name
	closing context.Context
	end     context.CancelFunc
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, _ broker.PublisherOptions) (driver.Publisher, error) {
	name, err := c.topicName(topic)
	if err != nil {
		return nil, err
	}
	_, err = c.topics.GetTopic(ctx, &pb.GetTopicRequest{Topic: name})
	// Who may publish need not have the right to look: then nothing can be told.
	if err != nil && !errors.Is(kindOf(err), broker.ErrUnauthorized) {
		return nil, failure(ctx, err, "open publisher of %s", name)
	}
	p := &publisher{c: c, topic: name}
	p.closing, p.end = context.WithCancel(context.Background())
	return p, nil
}

// Limits implements driver.Publisher. There is no window: the service knows no
// IDs of producers (PS-F-01).
func (p *publisher) Limits() broker.Limits {
	return broker.Limits{Body: maxRequest - attributeRoom - requestRoom, Headers: headerRoom}
}

func (p *publisher) As(target any) bool { return p.c.As(target) }

// Close ends the calls in flight: the driver waited for them as long as it may.
func (p *publisher) Close(context.Context) error {
	p.end()
	return nil
}

// Publish sends a request for each ordering key and for what has none, cut at
// the service's limits. The requests of one key follow one another, and those
// behind one that failed are not sent.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.closing, cancel)
	defer stop()
	slab := make([]pb.PubsubMessage, len(msgs))
	list := make([]*pb.PubsubMessage, len(msgs))
	var when stamp
	one, bad := true, false
	for i := range msgs {
		if err := outgoing(&slab[i], &msgs[i], &when); err != nil {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
			bad = true
			continue
		}
		list[i] = &slab[i]
		one = one && slab[i].OrderingKey == slab[0].OrderingKey
	}
	if one && !bad {
		p.sequence(ctx, list, receipts, nil)
		return
	}
	p.byKey(ctx, list, receipts)
}

// byKey publishes each key's messages apart.
func (p *publisher) byKey(ctx context.Context, list []*pb.PubsubMessage, receipts []broker.Receipt) {
	places := map[string][]int{}
	var keys []string
	for i, m := range list {
		if m == nil {
			continue
		}
		if _, seen := places[m.OrderingKey]; !seen {
			keys = append(keys, m.OrderingKey)
		}
		places[m.OrderingKey] = append(places[m.OrderingKey], i)
	}
	publish := func(key string) {
		at := places[key]
		some := make([]*pb.PubsubMessage, len(at))
		for k, i := range at {
			some[k] = list[i]
		}
		p.sequence(ctx, some, receipts, at)
	}
	if len(keys) == 1 {
		publish(keys[0])
		return
	}
	var wait sync.WaitGroup
	next := make(chan string)
	for range min(len(keys), maxParallel) {
		wait.Go(func() {
			for key := range next {
				publish(key)
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	wait.Wait()
}

// sequence publishes messages of one key, or of none, in as many requests as
// they need. at is the place of each one's receipt, nil for the same place.
func (p *publisher) sequence(ctx context.Context, list []*pb.PubsubMessage, receipts []broker.Receipt, at []int) {
	place := func(i int) *broker.Receipt {
		if at != nil {
			i = at[i]
		}
		return &receipts[i]
	}
	for from := 0; from < len(list); {
		to, size := from, requestRoom
		for to < len(list) && to-from < maxMessages {
			n := sizeOf(list[to])
			if size+n > maxRequest && to > from {
				break
			}
			size += n
			to++
		}
		ids, err := p.request(ctx, list[from:to], size)
		if err == nil && len(ids) != to-from {
			err = broker.Errorf(broker.ErrUnknownOutcome, nil, "publish to %s: %d message IDs for %d messages", p.topic, len(ids), to-from)
		}
		if err == nil {
			for i, id := range ids {
				*place(from + i) = broker.Receipt{Verdict: broker.Stored, Position: broker.Position{Token: id}}
			}
			from = to
			continue
		}
		verdict := broker.Verdict(broker.Refused)
		if errors.Is(err, broker.ErrUnknownOutcome) {
			verdict = broker.Unknown
		}
		for i := from; i < to; i++ {
			*place(i) = broker.Receipt{Verdict: verdict, Err: err}
		}
		from = to
		if list[0].OrderingKey == "" && ctx.Err() == nil {
			continue // no order to lose
		}
		if from < len(list) {
			why := errEarlierKey
			if list[0].OrderingKey == "" {
				why = context.Cause(ctx)
			}
			rest := broker.Errorf(broker.ErrUnavailable, why, "publish to %s: not sent", p.topic)
			for i := from; i < len(list); i++ {
				*place(i) = broker.Receipt{Verdict: broker.Refused, Err: rest}
			}
		}
		return
	}
}

// request is one RPC. Its error is ErrUnknownOutcome unless the messages are
// surely not stored: all of a request are, or none (PS-F-05).
func (p *publisher) request(ctx context.Context, list []*pb.PubsubMessage, size int) ([]string, error) {
	if size > maxRequest { // of a dead letter, or with validation off
		return nil, broker.Errorf(broker.ErrTooLarge, nil, "publish to %s: a request of %d bytes, over %d", p.topic, size, maxRequest)
	}
	way := newThrough()
	res, err := p.c.topics.Publish(ctx, &pb.PublishRequest{Topic: p.topic, Messages: list}, way.opts[:]...)
	sent := way.left()
	switch {
	case err == nil:
		return res.MessageIds, nil
	case p.closing.Err() != nil && !sent:
		return nil, broker.Errorf(broker.ErrClosed, nil, "publish to %s", p.topic)
	case refused(err):
		return nil, broker.Errorf(kindOf(err), err, "publish to %s", p.topic)
	case !sent:
		// No connection took the request.
		return nil, failure(ctx, err, "publish to %s: not sent", p.topic)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	return nil, broker.Errorf(broker.ErrUnknownOutcome, err, "publish to %s", p.topic)
}
