package targets

import (
	"context"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/localstack/servicebus"
	"github.com/onceline/onceline/localstack/sqs"
)

// What the brokers that ask for credentials know, and what a stranger shows them.
const (
	knownName, knownSecret = "suite", "known"
	wrongSecret            = "wrong"
)

// stranger is what conformance.Instance.Stranger calls.
type stranger = func(context.Context) (*conformance.Instance, error)

// refusing starts a broker of its own, for the shared one asks for no credentials.
// url makes the URL that a stranger uses from the broker's address.
func refusing[E localstack.Emulator](start func(context.Context) (E, error), url func(address string) string) stranger {
	return func(ctx context.Context) (*conformance.Instance, error) {
		e, err := start(ctx)
		if err != nil {
			return nil, err
		}
		return &conformance.Instance{
			Open:  func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, url(e.Address())) },
			Close: e.Close,
		}, nil
	}
}

// guarded adds the stranger to an instance.
func guarded(i *conformance.Instance, s stranger) *conformance.Instance {
	i.Stranger = s
	return i
}

func natsStranger() stranger {
	return refusing(func(ctx context.Context) (*localstack.NATS, error) {
		return localstack.StartNATS(ctx, localstack.NATSUser(knownName, knownSecret))
	}, func(address string) string { return "nats://" + knownName + ":" + wrongSecret + "@" + address })
}

func kafkaStranger(query string) stranger {
	return refusing(func(ctx context.Context) (*localstack.Kafka, error) {
		return localstack.StartKafka(ctx, localstack.KafkaUser(knownName, knownSecret))
	}, func(address string) string {
		return join("kafka://"+knownName+":"+wrongSecret+"@"+address+"/"+query, "?sasl=scram-sha-256")
	})
}

func sqsStranger(query string) stranger {
	return refusing(func(ctx context.Context) (*localstack.Model, error) {
		return localstack.StartSQS(ctx, sqs.RequireAccessKey(knownName))
	}, func(address string) string { return "sqs://stranger:" + wrongSecret + "@" + address + "/" + query })
}

func serviceBusStranger(query string) stranger {
	return refusing(func(ctx context.Context) (*localstack.Model, error) {
		return localstack.StartServiceBus(ctx, servicebus.SharedAccessKey(knownName, knownSecret))
	}, func(address string) string {
		return "servicebus://" + knownName + ":" + wrongSecret + "@" + address + query
	})
}

// modelStranger is the stranger to the model of a broker; nil for one that asks for
// no credentials.
func modelStranger(product, query string) stranger {
	switch product {
	case "sqs":
		return sqsStranger(query)
	case "servicebus":
		return serviceBusStranger(query)
	}
	return nil
}

// rabbitStranger comes to the very node that a URL without credentials names: RabbitMQ
// always asks for some, and those are the guest's.
func rabbitStranger(url string) stranger {
	return func(context.Context) (*conformance.Instance, error) {
		wrong := strings.Replace(url, "://", "://guest:"+wrongSecret+"@", 1)
		return &conformance.Instance{Open: func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, wrong) }}, nil
	}
}
