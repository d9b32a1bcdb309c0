package crashes

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// start starts another consumer, and waits until it is ready.
func (r *run) start(ctx context.Context) (*consumer, error) {
	c, err := r.launch(false)
	if err != nil {
		return nil, err
	}
	if _, err = r.until(ctx, func(e event) bool { return e.from == c && e.Event == ready }); err != nil {
		return nil, fmt.Errorf("%s doesn't start: %w", c.name, err)
	}
	return c, nil
}

// launch starts another consumer. single is one that takes one message at a time. Its
// clock is a day ahead of that of the one before it.
func (r *run) launch(single bool) (*consumer, error) {
	spec := consumerSpec{Store: r.Store, Address: r.db.address, Cell: r.name, Broker: r.link.url, Topic: r.link.entity.Topic,
		Subscription: r.link.entity.Subscription, Batch: 4, Day: len(r.consumers)}
	if r.store.kind == positionKind {
		spec.Batch = 8
	}
	if single {
		spec.Batch = 1
	}
	c, err := startConsumer(fmt.Sprint("consumer ", len(r.consumers)+1), spec, r.events)
	if err != nil {
		return nil, err
	}
	r.consumers = append(r.consumers, c)
	return c, nil
}

// retire lets a consumer end by itself.
func (r *run) retire(ctx context.Context, c *consumer) error {
	c.leave()
	for !r.gone[c] {
		if _, err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killed kills a consumer and takes in what it had said before.
func (r *run) killed(ctx context.Context, c *consumer) error {
	c.kill()
	r.gone[c] = true // that it ends is no news
	for {
		e, err := r.next(ctx)
		if err != nil {
			return err
		}
		if e.from == c && e.Event == ended {
			break
		}
	}
	return r.look(ctx)
}

// look finds what one that can't tell has applied by a stored position: it doesn't come
// to who goes on from there.
func (r *run) look(ctx context.Context) error {
	if r.store.kind != positionKind {
		return nil
	}
	effects, err := r.db.own.effects(ctx, r.name)
	for id := range effects {
		r.acked[id] = true
	}
	return err
}

// drain waits until all that was handled has been acked, or nothing comes any more of
// what isn't: some acks got no answer, or their consumer was killed before it could tell
// of it. What a wrong store blocks comes for ever.
func (r *run) drain(ctx context.Context) error {
	last := time.Now()
	for {
		open := false
		for id := range r.handled {
			open = open || !r.acked[id]
		}
		if !open {
			return nil
		}
		e, err := r.nextBefore(ctx, last.Add(2*brokerLease))
		switch {
		case errors.Is(err, errQuiet):
			return nil
		case err != nil:
			return err
		case e.Event == handled && e.Parked:
			if err := r.decide(ctx); err != nil {
				return err
			}
		case r.isBlocked(e): // it may have been handled once, by one that was killed behind that
			r.blocked(e.ID)
		}
		if e.Event != note && !r.acked[e.ID] {
			last = time.Now()
		}
	}
}

// end makes sure that nothing is left.
func (r *run) end() error {
	for _, c := range r.consumers {
		c.kill()
	}
	for _, c := range r.consumers {
		for open := true; open; {
			select {
			case <-c.done:
				open = false
			case <-r.events:
			}
		}
	}
	if r.link == nil {
		return nil
	}
	return r.link.close()
}
