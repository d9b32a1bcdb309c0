package main

import "github.com/onceline/onceline/localstack"

// endpoint is how to connect to a broker that up runs.
type endpoint struct {
	Broker  string     `json:"broker"`
	Real    bool       `json:"real"`    // the vendor's own server, not a model
	URL     string     `json:"url"`     // for this toolkit
	Address string     `json:"address"` // host:port
	Env     []variable `json:"env"`
}

// variable is an environment variable that the vendor's SDK reads, or where it
// reads none, the one that programs commonly do.
type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func endpointOf(e localstack.Emulator) endpoint {
	return endpoint{Broker: e.Name(), Real: e.Real(), URL: e.URL(), Address: e.Address(), Env: environment(e.Name(), e.Address())}
}

func environment(name, address string) []variable {
	switch name {
	case localstack.SQSName:
		return []variable{{"AWS_ENDPOINT_URL_SQS", "http://" + address}, {"AWS_REGION", "us-east-1"},
			{"AWS_ACCESS_KEY_ID", "local"}, {"AWS_SECRET_ACCESS_KEY", "local"}}
	case localstack.PubSubName:
		return []variable{{"PUBSUB_EMULATOR_HOST", address}, {"PUBSUB_PROJECT_ID", localstack.Project}}
	case localstack.ServiceBusName:
		return []variable{{"SERVICEBUS_CONNECTION_STRING", "Endpoint=sb://" + address +
			";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"}}
	case localstack.RabbitMQName:
		return []variable{{"AMQP_URL", "amqp://guest:guest@" + address + "/"},
			{"RABBITMQ_STREAM_URL", "rabbitmq-stream://guest:guest@" + address + "/"}}
	case localstack.NATSName:
		return []variable{{"NATS_URL", "nats://" + address}}
	case localstack.KafkaName:
		return []variable{{"KAFKA_BOOTSTRAP_SERVERS", address}}
	}
	return nil
}
