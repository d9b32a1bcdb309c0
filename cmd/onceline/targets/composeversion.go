package targets

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
)

// versionWait bounds what a version is waited for: a run can do without.
const versionWait = 5 * time.Second

// foundVersions asks a broker that runs elsewhere what it is, as far as its protocol
// tells. c is a connection to it. SQS, Pub/Sub and Service Bus don't tell.
func foundVersions(ctx context.Context, product, raw string, c broker.Conn) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	version := ""
	switch product {
	case "nats":
		if nc := (*natsgo.Conn)(nil); c.As(&nc) {
			version = nc.ConnectedServerVersion()
		}
	case "kafka":
		if client := (*kgo.Client)(nil); c.As(&client) {
			version = kafkaVersion(ctx, client)
		}
	case "rabbitmq":
		version = rabbitMQVersion(ctx, raw, c)
	}
	if version == "" {
		return nil
	}
	return map[string]string{product: version}
}

var kafkaGuess = regexp.MustCompile(`^v(\d+\.\d+)$`)

// kafkaVersion is what the versions of the requests that Kafka takes give away: the
// release without its patch.
func kafkaVersion(ctx context.Context, client *kgo.Client) string {
	all, err := kadm.NewClient(client).ApiVersions(ctx)
	if err != nil {
		return ""
	}
	for _, one := range all.Sorted() {
		if m := kafkaGuess.FindStringSubmatch(one.VersionGuess()); one.Err == nil && m != nil {
			return m[1]
		}
	}
	return ""
}

// rabbitMQVersion reads what the server says in AMQP's greeting. A connection for
// streams has none, so another is made.
func rabbitMQVersion(ctx context.Context, raw string, c broker.Conn) string {
	var conn *amqp091.Connection
	if !c.As(&conn) {
		queues, err := broker.Open(ctx, queuesURL(raw))
		if err != nil {
			return ""
		}
		defer queues.Close(ctx)
		if !queues.As(&conn) {
			return ""
		}
	}
	version, _ := conn.Properties["version"].(string)
	return version
}

// queuesURL is a URL for RabbitMQ's streams turned into one for its queues.
func queuesURL(raw string) string {
	base, query, _ := strings.Cut(raw, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return raw
	}
	values.Set("queue", "quorum")
	values.Del("stream-port")
	return base + "?" + values.Encode()
}
