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
	wrongName, wrongSecret = "stranger", "wrong"
)

// guards is what conformance.Instance.Guarded calls.
type guards = func(context.Context) (friend, stranger *conformance.Instance, err error)

// guarded adds it to an instance.
func guarded(i *conformance.Instance, g guards) *conformance.Instance {
	i.Guarded = g
	return i
}

// opens is an instance of which there is no more than a URL.
func opens(url string) *conformance.Instance {
	return &conformance.Instance{Open: func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, url) }}
}

// own starts a broker of its own, for the shared one asks for no credentials. url
// makes a URL from the broker's address and a name and secret.
func own[E localstack.Emulator](start func(context.Context) (E, error), url func(address, name, secret string) string, wrong string) guards {
	return func(ctx context.Context) (friend, stranger *conformance.Instance, err error) {
		e, err := start(ctx)
		if err != nil {
			return nil, nil, err
		}
		friend = opens(url(e.Address(), knownName, knownSecret))
		friend.Close = e.Close
		return friend, opens(url(e.Address(), wrong, wrongSecret)), nil
	}
}

func guardNATS() guards {
	return own(func(ctx context.Context) (*localstack.NATS, error) {
		return localstack.StartNATS(ctx, localstack.NATSUser(knownName, knownSecret))
	}, func(address, name, secret string) string { return "nats://" + name + ":" + secret + "@" + address }, knownName)
}

func guardKafka(query string) guards {
	return own(func(ctx context.Context) (*localstack.Kafka, error) {
		return localstack.StartKafka(ctx, localstack.KafkaUser(knownName, knownSecret))
	}, func(address, name, secret string) string {
		return join("kafka://"+name+":"+secret+"@"+address+"/"+query, "?sasl=scram-sha-256")
	}, knownName)
}

// guardModel is for the models of services; nil for one that asks for no credentials.
// That of SQS looks at the access key alone, and not at what is signed with it.
func guardModel(product, query string) guards {
	switch product {
	case "sqs":
		return own(func(ctx context.Context) (*localstack.Model, error) {
			return localstack.StartSQS(ctx, sqs.RequireAccessKey(knownName))
		}, func(address, name, secret string) string {
			return "sqs://" + name + ":" + secret + "@" + address + "/" + query
		}, wrongName)
	case "servicebus":
		return own(func(ctx context.Context) (*localstack.Model, error) {
			return localstack.StartServiceBus(ctx, servicebus.SharedAccessKey(knownName, knownSecret))
		}, func(address, name, secret string) string {
			return "servicebus://" + name + ":" + secret + "@" + address + query
		}, knownName)
	}
	return nil
}

// guardRabbitMQ shows wrong credentials to the very node that a URL without any names:
// RabbitMQ always asks for some, and those are the guest's.
func guardRabbitMQ(i *conformance.Instance) guards {
	return func(context.Context) (friend, stranger *conformance.Instance, err error) {
		return &conformance.Instance{Open: i.Open}, opens(strings.Replace(i.URL, "://", "://guest:"+wrongSecret+"@", 1)), nil
	}
}
