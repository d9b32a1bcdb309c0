package targets

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	pubsubadmin "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// purger empties an entity through the SDK's client behind a connection, or says with
// broker.ErrUnsupported that the broker has no way to that.
func purger(scheme string, i *conformance.Instance) func(ctx context.Context, e broker.Entity) error {
	purges := map[string]func(context.Context, *conformance.Instance, broker.Conn, broker.Entity) error{
		"nats": purgeNATS, "kafka": purgeKafka, "sqs": purgeSQS, "pubsub": purgePubSub, "rabbitmq": purgeRabbitMQ, "servicebus": purgeServiceBus,
	}
	purge := purges[scheme]
	if purge == nil {
		return nil
	}
	return func(ctx context.Context, e broker.Entity) (err error) {
		c, err := i.Open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
		return purge(ctx, i, c, e)
	}
}

// client is the SDK's client of type T behind a connection.
func client[T any](c broker.Conn) (T, error) {
	var t T
	if !c.As(&t) {
		return t, fmt.Errorf("the connection has no %T", t)
	}
	return t, nil
}

func purgeNATS(ctx context.Context, _ *conformance.Instance, c broker.Conn, e broker.Entity) error {
	js, err := client[jetstream.JetStream](c)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(e.Subscription, "/")
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// purgeKafka deletes all records, which is what Kafka has instead.
func purgeKafka(ctx context.Context, _ *conformance.Instance, c broker.Conn, e broker.Entity) error {
	cl, err := client[*kgo.Client](c)
	if err != nil {
		return err
	}
	admin := kadm.NewClient(cl)
	ends, err := admin.ListEndOffsets(ctx, e.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	deleted, err := admin.DeleteRecords(ctx, ends.Offsets())
	return errors.Join(err, deleted.Error())
}

func purgeSQS(ctx context.Context, _ *conformance.Instance, c broker.Conn, e broker.Entity) error {
	cl, err := client[*sqs.Client](c)
	if err != nil {
		return err
	}
	at, err := cl.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &e.Topic})
	if err != nil {
		return err
	}
	_, err = cl.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: at.QueueUrl})
	return err
}

// purgePubSub moves the subscription to now: what was published before counts as
// acked.
func purgePubSub(ctx context.Context, i *conformance.Instance, c broker.Conn, e broker.Entity) error {
	cl, err := client[*pubsubadmin.SubscriptionAdminClient](c)
	if err != nil {
		return err
	}
	project := localstack.Project
	if at, err := url.Parse(i.URL); err == nil && len(at.Path) > 1 {
		project = at.Path[1:]
	}
	now := timestamppb.Now()
	if i.Now != nil {
		now = timestamppb.New(i.Now())
	}
	_, err = cl.Seek(ctx, &pubsubpb.SeekRequest{
		Subscription: "projects/" + project + "/subscriptions/" + e.Subscription,
		Target:       &pubsubpb.SeekRequest_Time{Time: now},
	})
	return err
}

func purgeRabbitMQ(_ context.Context, i *conformance.Instance, c broker.Conn, e broker.Entity) error {
	if parameter(i.URL, "queue") == "stream" {
		return broker.Errorf(broker.ErrUnsupported, nil, "purge %s: a stream has no purge, and is emptied by its retention alone", e.Topic)
	}
	conn, err := client[*amqp091.Connection](c)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueuePurge(e.Subscription, false)
	return errors.Join(err, ch.Close())
}

// How long a purge of Service Bus waits for the first session of a queue, and for
// further ones, which it finds by waiting alone.
const (
	firstSession = 5 * time.Second
	nextSession  = 300 * time.Millisecond
)

// purgeServiceBus receives and deletes until a look finds nothing, which is how the
// vendor's tools purge where they don't use a request that the Go SDK hasn't.
func purgeServiceBus(ctx context.Context, i *conformance.Instance, c broker.Conn, e broker.Entity) error {
	cl, err := client[*azservicebus.Client](c)
	if err != nil {
		return err
	}
	if parameter(i.URL, "sessions") != "true" {
		r, err := cl.NewReceiverForQueue(e.Topic, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		if err != nil {
			return err
		}
		return errors.Join(deleteAll(ctx, r), r.Close(ctx))
	}
	for limit := firstSession; ; limit = nextSession {
		wait, cancel := context.WithTimeout(ctx, limit)
		r, err := cl.AcceptNextSessionForQueue(wait, e.Topic, &azservicebus.SessionReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		cancel()
		var none *azservicebus.Error
		switch {
		case errors.As(err, &none) && none.Code == azservicebus.CodeTimeout, errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil
		case err != nil:
			return err
		}
		if err := errors.Join(deleteAll(ctx, r), r.Close(ctx)); err != nil {
			return err
		}
	}
}

// deleteAll receives as long as there is something to be seen.
func deleteAll(ctx context.Context, r interface {
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}) error {
	for from := int64(0); ; {
		seen, err := r.PeekMessages(ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
		if err != nil || len(seen) == 0 {
			return err
		}
		if _, err := r.ReceiveMessages(ctx, 100, nil); err != nil {
			return err
		}
	}
}
