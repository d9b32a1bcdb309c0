package targets

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/onceline/onceline/adapters/pubsub"
	"github.com/onceline/onceline/adapters/rabbitmq"
	"github.com/onceline/onceline/adapters/servicebus"
	"github.com/onceline/onceline/adapters/sqs"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// rabbitLease is a consumer timeout that the suite can wish for. A connection that
// didn't ensure a queue learns of it from the URL.
const rabbitLease = 30 * time.Second

// What holds for a broker wherever it runs.

func sqsStandardTarget() conformance.Target {
	return conformance.Target{Name: "sqs-standard", Broker: "sqs", Boundary: sqs.BoundaryStandard(), Lease: 30 * time.Second}
}

func sqsFIFOTarget() conformance.Target {
	return conformance.Target{Name: "sqs-fifo", Broker: "sqs", Boundary: sqs.BoundaryFIFO(), Lease: 30 * time.Second, Window: 5 * time.Minute}
}

func pubsubTarget() conformance.Target {
	return conformance.Target{Name: "pubsub", Broker: "pubsub", Boundary: pubsub.Boundary(), Lease: 10 * time.Second}
}

func pubsubExactlyOnceTarget() conformance.Target {
	return conformance.Target{Name: "pubsub-exactly-once", Broker: "pubsub", Boundary: pubsub.BoundaryExactlyOnce(), Lease: 10 * time.Second}
}

func pubsubOrderedTarget() conformance.Target {
	t := pubsubExactlyOnceTarget()
	t.Name, t.Boundary, t.Key = "pubsub-exactly-once-ordered", pubsub.BoundaryExactlyOnceOrdered(), "one"
	return t
}

func serviceBusQueueTarget() conformance.Target {
	return conformance.Target{Name: "servicebus-queue", Broker: "servicebus", Boundary: servicebus.BoundaryQueue(), Lease: 30 * time.Second, Window: time.Minute}
}

func serviceBusSessionsTarget() conformance.Target {
	return conformance.Target{Name: "servicebus-sessions", Broker: "servicebus", Boundary: servicebus.BoundarySessions(), Lease: 30 * time.Second, Window: time.Minute}
}

func rabbitMQQuorumTarget() conformance.Target {
	return conformance.Target{Name: "rabbitmq-quorum", Broker: "rabbitmq", Boundary: rabbitmq.BoundaryQuorum(), Lease: rabbitLease, FaultsByQueue: true}
}

func rabbitMQClassicTarget() conformance.Target {
	return conformance.Target{Name: "rabbitmq-classic", Broker: "rabbitmq", Boundary: rabbitmq.BoundaryClassic(), Session: rabbitSession, FaultsByQueue: true}
}

func rabbitMQStreamTarget() conformance.Target {
	return conformance.Target{Name: "rabbitmq-stream", Broker: "rabbitmq", Boundary: rabbitmq.BoundaryStream(), Session: rabbitSession, Exclusive: true}
}

// SQSStandard is the model of Amazon SQS with standard queues.
func SQSStandard() conformance.Target {
	return clocked(sqsStandardTarget(),
		startModel(localstack.StartSQS), "", openSQS, oneName(""))
}

// SQSFIFO is the model of Amazon SQS with FIFO queues.
func SQSFIFO() conformance.Target {
	return clocked(sqsFIFOTarget(),
		startModel(localstack.StartSQS), "", openSQS, oneName(".fifo"))
}

// SQSFIFOGroups is the model of Amazon SQS with FIFO queues for high throughput,
// which compare IDs within a key.
func SQSFIFOGroups() conformance.Target {
	t := sqsFIFOTarget()
	t.Name, t.Boundary = "sqs-fifo-groups", sqs.BoundaryFIFOGroups()
	return clocked(t, startModel(localstack.StartSQS), "?high-throughput=true", openSQS, oneName(".fifo"))
}

// PubSub is the model of Google Pub/Sub with plain subscriptions.
func PubSub() conformance.Target {
	return clocked(pubsubTarget(),
		startModel(localstack.StartPubSub), "", openPubSub(false), oneName(""))
}

// PubSubExactlyOnce is the model of Google Pub/Sub with exactly-once subscriptions.
func PubSubExactlyOnce() conformance.Target {
	return clocked(pubsubExactlyOnceTarget(),
		startModel(localstack.StartPubSub), "?exactly-once=true", openPubSub(true), oneName(""))
}

// PubSubOrdered is the model of Google Pub/Sub with subscriptions that have both
// exactly-once delivery and order, where all messages have a key.
func PubSubOrdered() conformance.Target {
	return clocked(pubsubOrderedTarget(), startModel(localstack.StartPubSub), "?exactly-once=true", openPubSub(true), ordered)
}

// ServiceBusQueue is the model of Azure Service Bus with queues that detect
// duplicates.
func ServiceBusQueue() conformance.Target {
	return clocked(serviceBusQueueTarget(),
		startModel(localstack.StartServiceBus), "", openServiceBus, oneName(""))
}

// ServiceBusSessions is the model of Azure Service Bus with queues that have
// sessions and detect duplicates.
func ServiceBusSessions() conformance.Target {
	return clocked(serviceBusSessionsTarget(),
		startModel(localstack.StartServiceBus), "?sessions=true", openServiceBus, oneName(""))
}

// RabbitMQClassic is the model of RabbitMQ with classic queues. Their deliveries
// have no lease (RMQ-F-13); that a receiver is gone the broker learns by
// heartbeats, in real time.
func RabbitMQClassic() conformance.Target {
	return realTime(rabbitMQClassicTarget(),
		"?queue=classic&heartbeat=1s")
}

// RabbitMQQuorum is the model of RabbitMQ with quorum queues.
func RabbitMQQuorum() conformance.Target {
	return clocked(rabbitMQQuorumTarget(),
		startModel(localstack.StartRabbitMQ), "?queue=quorum&consumer-timeout="+rabbitLease.String(), openRabbitMQ, twoNames("/"))
}

// RabbitMQStream is the model of RabbitMQ's streams, which have no lease either.
func RabbitMQStream() conformance.Target {
	return realTime(rabbitMQStreamTarget(),
		"?queue=stream&heartbeat=1s&stream-port=PORT")
}

// rabbitSession is after how long a broker takes a silent connection with a
// heartbeat of a second for dead: two of them are missed.
const rabbitSession = 3 * time.Second

// realTime completes a target on the model of RabbitMQ whose time isn't moved. PORT
// in the query is the model's port, which both protocols share.
func realTime(t conformance.Target, query string) conformance.Target {
	t.Kind, t.Patience, t.Stores = report.KindEmulator, time.Second, Stores()
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := localstack.StartRabbitMQ(ctx)
		if err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(e.Address())
		if err != nil {
			return nil, err
		}
		i := network(e, strings.ReplaceAll(query, "PORT", port))
		i.Entity, i.Guarded = twoNames("/"), guardRabbitMQ(i)
		if !t.Exclusive { // a stream has room always, and drops its oldest
			i.Fill = fillRabbitMQ
		}
		return i, nil
	}
	t.Private = t.Start
	return t
}

// starter runs an emulator; opener opens a connection to it whose leases run by a
// clock.
type (
	starter func(ctx context.Context) (*localstack.Model, error)
	opener  func(ctx context.Context, url string, clock localstack.Clocked) (broker.Conn, error)
)

// startModel is a start without options.
func startModel[O any](start func(context.Context, ...O) (*localstack.Model, error)) starter {
	return func(ctx context.Context) (*localstack.Model, error) { return start(ctx) }
}

func openSQS(ctx context.Context, url string, clock localstack.Clocked) (broker.Conn, error) {
	return sqs.Dial(ctx, url, sqs.Clock(clock))
}

func openPubSub(exactlyOnce bool) opener {
	return func(ctx context.Context, _ string, e localstack.Clocked) (broker.Conn, error) {
		return pubsub.Dial(ctx, localstack.Project, pubsub.Endpoint(e.Address()), pubsub.ExactlyOnce(exactlyOnce), pubsub.Clock(e))
	}
}

func openServiceBus(ctx context.Context, url string, clock localstack.Clocked) (broker.Conn, error) {
	return servicebus.Dial(ctx, url, servicebus.Clock(clock))
}

func openRabbitMQ(ctx context.Context, url string, clock localstack.Clocked) (broker.Conn, error) {
	return rabbitmq.Dial(ctx, url, rabbitmq.Clock(clock))
}

// clocked completes a target on a model whose time the suite moves. Moving it
// concerns all, so each probe gets a model of its own: they start in milliseconds.
func clocked(t conformance.Target, start starter, query string, open opener, entity func(string) broker.Entity) conformance.Target {
	t.Kind, t.WishLease, t.Patience, t.Stores = report.KindEmulator, true, time.Second, Stores()
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := start(ctx)
		if err != nil {
			return nil, err
		}
		i := network(e, query)
		i.Open = func(ctx context.Context) (broker.Conn, error) { return open(ctx, i.URL, e) }
		i.Advance, i.Now, i.Entity = e.Advance, e.Now, entity
		i.Guarded = guardModel(t.Broker, query)
		if t.Broker == "rabbitmq" {
			i.Guarded, i.Fill = guardRabbitMQ(i), fillRabbitMQ
		}
		return i, nil
	}
	t.Private = t.Start
	return t
}

// oneName names an entity that is topic and subscription in one, with a suffix.
func oneName(suffix string) func(string) broker.Entity {
	return func(name string) broker.Entity {
		return broker.Entity{Topic: name + suffix, Subscription: name + suffix}
	}
}

// twoNames names a subscription by its topic's name twice.
func twoNames(between string) func(string) broker.Entity {
	return func(name string) broker.Entity {
		return broker.Entity{Topic: name, Subscription: name + between + name}
	}
}

// ordered names an entity that is topic and subscription in one and keeps the order
// of keys.
func ordered(name string) broker.Entity {
	return broker.Entity{Topic: name, Subscription: name, Ordered: true}
}
