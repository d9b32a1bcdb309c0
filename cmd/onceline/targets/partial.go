package targets

import (
	"context"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
)

// noBound is why no subscription of a broker's topic can refuse a message by itself.
var noBound = map[string]string{
	"memory":     "a subscription has room as long as the process has",
	"nats":       "limits are the stream's, and a consumer is a place in it",
	"kafka":      "groups read one log, which is written once",
	"sqs":        "a queue is topic and subscription in one",
	"pubsub":     "a subscription keeps what isn't acked for its retention, however much that is",
	"servicebus": "the size is limited of a queue, or of a topic with all of its subscriptions",
}

// fullSubscription is what conformance.Instance.FullSubscription calls.
type fullSubscription = func(context.Context, broker.Conn, broker.Entity) (string, error)

// subscriberWithoutRoom makes subscriptions that refuse, or says with
// broker.ErrUnsupported that the broker has none that can. Nil for a broker of which
// that isn't known.
func subscriberWithoutRoom(product string, i *conformance.Instance) fullSubscription {
	if product == "rabbitmq" {
		return func(ctx context.Context, c broker.Conn, e broker.Entity) (string, error) {
			return queueWithoutRoom(parameter(i.URL, "queue"), c, e)
		}
	}
	why, known := noBound[product]
	if !known {
		return nil
	}
	return func(_ context.Context, _ broker.Conn, e broker.Entity) (string, error) {
		return "", broker.Errorf(broker.ErrUnsupported, nil, "subscribe to %s: %s", e.Topic, why)
	}
}

// queueWithoutRoom binds a queue of the same kind to the topic's exchange, which has
// room for one message and refuses what comes then. A quorum queue notices a little
// late that it is full (RMQ-F-27).
func queueWithoutRoom(kind string, c broker.Conn, e broker.Entity) (name string, err error) {
	switch kind {
	case "stream":
		return "", broker.Errorf(broker.ErrUnsupported, nil, "subscribe to %s: the readers of a stream share its log", e.Topic)
	case "":
		kind = "quorum" // the adapter's default
	}
	conn, err := client[*amqp091.Connection](c)
	if err != nil {
		return "", err
	}
	ch, err := conn.Channel()
	if err != nil {
		return "", err
	}
	defer func() {
		if closed := ch.Close(); err == nil {
			err = closed
		}
	}()
	name = e.Subscription + "-full"
	args := amqp091.Table{"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"}
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		return "", err
	}
	return name, ch.QueueBind(name, "", e.Topic, false, nil)
}
