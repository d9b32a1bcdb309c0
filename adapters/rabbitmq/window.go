package rabbitmq

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker/driver"
)

// standing is the consumer of a receiver with a window, or with order: it stays,
// and what comes waits here.
type standing struct {
	tag   string
	mu    sync.Mutex
	items []held
	since []time.Time // when each came
	over  bool
	more  chan struct{} // holds a token when there is something new
	ended chan struct{}
}

// fill takes what the SDK hands over until the consumer ends.
func (st *standing) fill(c *channel, in <-chan amqp.Delivery, now func() time.Time) {
	defer close(st.ended)
	for d := range in {
		at := now()
		st.mu.Lock()
		st.items, st.since = append(st.items, held{d, c}), append(st.since, at)
		st.mu.Unlock()
		st.wake()
	}
	st.mu.Lock()
	st.over = true
	st.mu.Unlock()
	st.wake()
}

func (st *standing) wake() {
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// takeStanding takes what the standing consumer has, or waits for the first.
func (r *receiver) takeStanding(ctx context.Context, c *channel, prefetch, most int, out *driver.Batch) error {
	st, err := r.consume(ctx, c, prefetch)
	if err != nil {
		return err
	}
	for {
		h, over := st.take(most)
		if len(h.items) > 0 {
			return r.hand(c, h, out)
		}
		if over {
			// The channel isn't used again, whether or not ctx lasts until it is closed: a
			// consumer that the broker has cancelled may have its tag still.
			r.stand, r.cur = nil, nil
			_, err := await(ctx, c.s.line, func() (struct{}, error) { return struct{}{}, c.over() }, nil)
			return err
		}
		select {
		case <-st.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.closing:
			return r.closed()
		}
	}
}

func (st *standing) take(most int) (h haul, over bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := min(most, len(st.items))
	if n == 0 {
		return h, st.over
	}
	h.items, h.since = st.items[:n:n], st.since[0]
	if n == len(st.items) {
		st.items, st.since = make([]held, 0, n), st.since[:0]
	} else {
		st.items, st.since = st.items[n:], st.since[n:]
	}
	return h, false
}

// consume starts the standing consumer if there is none on this channel.
func (r *receiver) consume(ctx context.Context, c *channel, prefetch int) (*standing, error) {
	if r.stand != nil {
		return r.stand, nil
	}
	st := &standing{tag: "onceline", more: make(chan struct{}, 1), ended: make(chan struct{})}
	in, err := await(ctx, c.s.line, func() (<-chan amqp.Delivery, error) {
		c.stands.Store(true)
		if err := c.ch.Qos(prefetch, 0, false); err != nil {
			return nil, err
		}
		return c.ch.Consume(r.queue, st.tag, false, false, false, false, nil)
	}, func(in <-chan amqp.Delivery) {
		_ = c.ch.Close() // what comes goes back
	})
	if err != nil {
		if ctx.Err() != nil {
			// The call may still be under way: the channel isn't free for another.
			r.cur = nil
			return nil, err
		}
		return nil, c.broken(err)
	}
	if !c.s.line.tasks.Go(func() { st.fill(c, in, r.c.now) }) {
		_ = c.ch.Close()
		return nil, errLineClosed
	}
	r.stand = st
	return st, nil
}
