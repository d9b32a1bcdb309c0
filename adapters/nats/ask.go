package nats

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

const (
	// askAgain is how long an answer to a look-up is waited for before it is asked
	// again. For a stream or consumer without a leader, as after the restart of a
	// cluster, no server answers, and the question isn't kept for the leader to come
	// (NATS-F-44).
	askAgain = time.Second

	// askTime bounds all of it where the context has no deadline, as the SDK does.
	askTime = 5 * time.Second
)

// ask looks something up, which changes nothing and so can be done again, until it
// is answered or ctx ends.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, askTime, broker.Errorf(broker.ErrUnavailable, nil, "no answer within %s", askTime))
		defer cancel()
	}
	for {
		try, cancel := context.WithTimeout(ctx, askAgain)
		answer, err := question(try)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return answer, err
		}
	}
}

// streamOf returns the name of the stream that captures a topic.
func (c *conn) streamOf(ctx context.Context, topic string) (string, error) {
	return ask(ctx, func(ctx context.Context) (string, error) { return c.js.StreamNameBySubject(ctx, topic) })
}

// lookUpStream returns the settings of a stream.
func (c *conn) lookUpStream(ctx context.Context, name string) (jetstream.StreamConfig, error) {
	s, err := ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, name) })
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	return s.CachedInfo().Config, nil
}

// lookUpConsumer returns the settings of a consumer.
func (c *conn) lookUpConsumer(ctx context.Context, stream, name string) (jetstream.ConsumerConfig, error) {
	k, err := c.lookAtConsumer(ctx, stream, name)
	if err != nil {
		return jetstream.ConsumerConfig{}, err
	}
	return k.Config, nil
}

// lookAtConsumer returns the settings of a consumer and where it is.
func (c *conn) lookAtConsumer(ctx context.Context, stream, name string) (*jetstream.ConsumerInfo, error) {
	k, err := ask(ctx, func(ctx context.Context) (jetstream.Consumer, error) { return c.js.Consumer(ctx, stream, name) })
	if err != nil {
		return nil, err
	}
	return k.CachedInfo(), nil
}
