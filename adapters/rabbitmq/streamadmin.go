package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/onceline/onceline/broker"
)

// checkStream refuses what RabbitMQ can't have as a stream's name.
func checkStream(name string) error {
	if strings.TrimSpace(name) == "" || len(name) > 255 || strings.ContainsFunc(name, unicode.IsControl) {
		return broker.Errorf(broker.ErrInvalid, nil, "stream %q: want 1 to 255 bytes without control characters", name)
	}
	return nil
}

// Ensure is driver.Conn's. It creates streams with the broker's defaults and
// leaves one that exists as it is. What a stream can't keep, MaxDeliveries with
// DeadLetter and Ordered, holds for receivers of this connection.
func (c *streamConn) Ensure(ctx context.Context, e broker.Entity) error {
	refuse := func(why string) error {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: %s", e.Topic, why)
	}
	switch {
	case e.Window != 0:
		return refuse("a stream dedups by publishing ID, without a window (RMS-F-01)")
	case e.Lease != 0:
		return refuse("a stream has no lease")
	case e.Partitions > 1:
		return refuse("a stream is one log; super streams are not made here")
	case e.MaxBody != 0:
		return refuse("the broker's frame_max bounds a message, not the stream")
	case e.MaxDeliveries > 0 && e.DeadLetter == "":
		return refuse("max deliveries without a dead-letter stream: the stored offset can't pass a message that is kept")
	}
	if err := checkStream(e.Topic); err != nil {
		return err
	}
	if e.Subscription != "" {
		stream, _, err := splitStream(e.Subscription)
		if err != nil {
			return err
		}
		if stream != e.Topic {
			return broker.Errorf(broker.ErrInvalid, nil, "ensure %s: subscription %q is not of this stream", e.Topic, e.Subscription)
		}
	}
	for _, stream := range []string{e.Topic, e.DeadLetter} {
		if stream == "" {
			continue
		}
		if err := c.create(ctx, stream); err != nil {
			return err
		}
	}
	if e.Subscription != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wishes[e.Subscription] = streamWishes{maxDeliveries: e.MaxDeliveries, deadLetter: e.DeadLetter, ordered: e.Ordered}
	}
	return nil
}

// create makes a stream if it isn't there.
func (c *streamConn) create(ctx context.Context, stream string) error {
	switch err := c.lookUp(ctx, stream); {
	case err == nil:
		return nil
	case !errors.Is(err, broker.ErrNotFound):
		return err
	}
	_, err := c.ask(ctx, scCreate, func(b []byte) []byte {
		return putProps(putStr(b, stream), "queue-leader-locator", "least-leaders")
	})
	if err != nil && !errors.Is(err, codeStreamExists) {
		return broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "create stream %s", stream)
	}
	return nil
}

// Delete is driver.Conn's. A subscription is a stored offset in the stream, and
// goes with it; the stream is deleted where e names no subscription or its own.
func (c *streamConn) Delete(ctx context.Context, e broker.Entity) error {
	for _, stream := range []string{e.Topic, e.DeadLetter} {
		if stream == "" {
			continue
		}
		if err := checkStream(stream); err != nil {
			return err
		}
		_, err := c.ask(ctx, scDelete, func(b []byte) []byte { return putStr(b, stream) })
		if err != nil && !errors.Is(err, codeNoStream) {
			return broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "delete stream %s", stream)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.wishes, e.Subscription)
	return nil
}
