package targets

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// fillNATS limits the stream to one message and makes it refuse what is over that.
func fillNATS(ctx context.Context, c broker.Conn, e broker.Entity) error {
	var js jetstream.JetStream
	if !c.As(&js) {
		return fmt.Errorf("%w: no handle of JetStream", broker.ErrUnsupported)
	}
	name, _, _ := strings.Cut(e.Subscription, "/")
	s, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = 1, jetstream.DiscardNew
	_, err = js.UpdateStream(ctx, cfg)
	return err
}

// fillRabbitMQ binds another queue to the topic's exchange, which has room for one
// message and refuses the next. It goes with c.
func fillRabbitMQ(_ context.Context, c broker.Conn, e broker.Entity) error {
	var conn *amqp091.Connection
	if !c.As(&conn) {
		return fmt.Errorf("%w: no handle of the connection", broker.ErrUnsupported)
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	if err != nil {
		return err
	}
	return ch.QueueBind(q.Name, "", e.Topic, false, nil)
}
