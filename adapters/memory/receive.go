package memory

import (
	"context"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// receiver is a driver.Receiver.
type receiver struct {
	c    *conn
	name string
	done chan struct{} // closed by shut
	wake chan struct{} // holds a signal from the moment the receiver was taken out of its waiters

	// Guarded by the broker's lock.
	sub    *subscription
	epoch  *driver.Epoch // of the deliveries given out from now on
	wait   node[*receiver]
	held   list[*item]
	closed bool
}

func (r *receiver) As(target any) bool { return r.c.b.as(target) }

// AsDelivery sets nothing: there is no SDK.
func (r *receiver) AsDelivery(*driver.Token, any) bool { return false }

// Receive hands over what is ready, or waits in line with the other receivers of
// the subscription. Handing over is one step under the broker's lock, so that
// nothing can be on its way when ctx ends.
func (r *receiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	if err := r.request(ctx); err != nil {
		return err
	}
	for {
		n, err := r.pull(max, out)
		if n > 0 || err != nil {
			return err
		}
		// Once woken it pulls, whatever became of ctx: the signal was for a
		// message, and nobody else got one for it.
		select {
		case <-r.wake:
		case <-ctx.Done():
			r.stepOut(max)
			return context.Cause(ctx)
		case <-r.done:
			r.stepOut(0)
			return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
		}
	}
}

// request brings the request of a Receive to the broker, past the faults.
func (r *receiver) request(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		i := r.c.b.faults.strike(Receive, request, r.name, topicOf(r.name))
		if i == nil {
			return nil
		}
		if arrived, err := r.struck(ctx, i); arrived || err != nil {
			return err
		}
	}
}

// pull takes what is ready. If there is nothing it puts r among the waiters.
func (r *receiver) pull(max int, out *driver.Batch) (int, error) {
	b := r.c.b
	b.mu.Lock()
	if b.closed || r.closed {
		r.sub.signal() // in case r was woken and takes nothing
		b.mu.Unlock()
		return 0, broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
	now := b.begin()
	if r.sub.deleted {
		s := b.subs[r.name]
		if s == nil {
			b.mu.Unlock()
			return 0, broker.Errorf(broker.ErrNotFound, nil, "receive from subscription %s", r.name)
		}
		r.sub = s
	}
	var grants []grant
	for {
		grants = r.sub.take(r, max, now)
		if len(grants) == 0 {
			r.sub.waiters.push(&r.wait)
			break
		}
		if b.broken.prefetch {
			r.sub.take(r, 5, now)
		}
		i := b.faults.strike(Receive, response, r.name, r.sub.topic.name)
		if i == nil {
			break
		}
		// The broker has handed them over, and they never arrive.
		i.apply(true)
	}
	r.fill(out, grants)
	b.arm(now)
	b.mu.Unlock()
	return len(grants), nil
}

// fill writes the deliveries. Body and headers are the consumer's own: it may
// change them, and the message may have to be delivered again.
func (r *receiver) fill(out *driver.Batch, grants []grant) {
	if len(grants) == 0 {
		return
	}
	bodies, headers := newRooms()
	for i := range grants {
		m := &grants[i].item.cell.msg
		bodies.left += len(m.Body)
		headers.left += len(m.Headers)
	}
	out.Grow(len(grants))
	for i := range grants {
		g := &grants[i]
		d, t := out.Add()
		d.Message = g.item.cell.msg
		d.Body, d.Headers = bodies.copy(d.Body), headers.copy(d.Headers)
		d.Position.Offset = g.item.cell.offset
		if !r.c.b.broken.leaseTold {
			d.Lease = time.Unix(0, g.at)
		}
		d.Attempt = r.c.b.broken.attempt(g.attempt)
		t.Epoch, t.Tag, t.Ref = r.epoch, g.number, g
		if r.c.b.broken.ackOnDelivery {
			g.settled = true
			r.sub.finish(g.item)
		}
	}
}

// stepOut takes r out of the waiters. If it was just woken, for something that it
// won't take, the next one is.
func (r *receiver) stepOut(ghosts int) {
	b := r.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.wait.in == nil {
		<-r.wake
	}
	r.wait.leave()
	if b.broken.cancelGiveBack && !r.sub.deleted {
		r.sub.ghosts += ghosts
	}
	r.sub.signal()
}

// struck is what a fault does to the request of a Receive. One that has not
// arrived, without an error, has to be sent anew.
func (r *receiver) struck(ctx context.Context, i *Injection) (arrived bool, err error) {
	switch i.fault.Kind {
	case LoseRequest, Delay, Cut:
		wait := i.fault.Delay
		switch i.fault.Kind {
		case LoseRequest:
			// A client limits a pull to a quarter of the lease and then sends
			// the next.
			wait = r.pullTime()
		case Cut:
			r.c.cutNow()
			wait = reconnectTime
		}
		t := time.NewTimer(wait)
		defer t.Stop()
		link := r.c.connected()
		select {
		case <-t.C:
			if i.fault.Kind == Delay {
				i.apply(true)
				return true, nil
			}
			return false, nil
		case <-link.gone:
			return false, nil // the next request goes over the next connection
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-r.done:
			return false, broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
		}
	}
	return false, i.answer("receive from %s", r.name)
}

// reconnectTime is the pause before the next connection, so that a fault which
// cuts each one makes no busy loop.
const reconnectTime = 10 * time.Millisecond

func (r *receiver) pullTime() time.Duration {
	r.c.b.mu.Lock()
	defer r.c.b.mu.Unlock()
	return max(time.Duration(r.sub.lease)/4, time.Millisecond)
}

// Close gives back what the receiver holds, to be delivered again at once. A
// delivery given back was an attempt: after the last one that MaxDeliveries
// admits it is dead-lettered.
func (r *receiver) Close(context.Context) error {
	b := r.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.begin()
	r.shut(now)
	delete(r.c.receivers, r)
	b.arm(now)
	return nil
}

func (r *receiver) shut(now int64) {
	if r.closed {
		return
	}
	r.closed = true
	close(r.done)
	r.epoch.End()
	if r.c.b.closed {
		return
	}
	for r.held.n > 0 {
		it := r.held.head.of
		if r.c.b.broken.closeGiveBack {
			it.link.leave()
			continue
		}
		it.sub.release(it, 0, now)
	}
}
