package rabbitmq

import (
	"context"

	"github.com/onceline/onceline/broker"
)

// Close gives back what is held, by closing the channel. A call on the channel
// comes first and is waited for: on quorum queues of old versions, acks that were
// sent just before a channel closes can get lost.
func (r *receiver) Close(ctx context.Context) error {
	close(r.closing)
	r.end()
	select {
	case r.token <- struct{}{}:
	case <-ctx.Done():
		// A call is stuck; the connection's end will end it.
		r.mu.Lock()
		c := r.last
		r.mu.Unlock()
		if c != nil {
			c.epoch.End()
		}
		return broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "close receiver of %s", r.queue)
	}
	defer func() { <-r.token }()
	r.giveKept()
	c := r.cur
	if c == nil {
		return nil
	}
	defer c.epoch.End()
	if !c.alive() {
		return nil
	}
	_, err := await(ctx, c.s.line, func() (struct{}, error) { return struct{}{}, r.leave(c) }, nil)
	if err != nil && c.alive() { // one that the broker has closed meanwhile holds nothing either
		return broker.Errorf(broker.ErrUnavailable, err, "close receiver of %s", r.queue)
	}
	return nil
}

func (r *receiver) leave(c *channel) error {
	if r.stand != nil {
		if err := c.ch.Cancel(r.stand.tag, false); err != nil {
			return err
		}
	}
	if err := c.settled(r.queue); err != nil {
		return err
	}
	return c.ch.Close()
}
