package rabbitmq

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// giveUp is how long a Receive whose context has ended waits for the broker's
	// answer to its cancel, to return what has arrived instead of giving it back.
	giveUp = 100 * time.Millisecond

	// keepFor is how long what comes after that waits for the next Receive. To give it
	// back costs an attempt before 4.3 (RMQ-F-15), and calls whose contexts are shorter
	// than two round trips would wear a message out that nobody has seen.
	keepFor = 200 * time.Millisecond

	// renewBound is how long one try to have a channel again may take. It isn't what
	// bounds a call: its context does.
	renewBound = 20 * time.Second
)

// receiver is the driver.Receiver.
type receiver struct {
	c     *conn
	queue string
	wish  broker.Entity // what Ensure was told, if it was
	lease time.Duration

	// token is held by whoever calls on the channel: the protocol has one call
	// at a time there. It is passed on to the goroutine of a Receive.
	token chan struct{}
	cur   *channel // under token
	count int      // of consumers, for their tags; under token
	size  int      // of the last haul, to make room for the next; under token
	late  error    // for the next Receive; under token
	kept  *kept    // the same
	stand *standing

	closing chan struct{}
	life    context.Context // ends with closing
	end     context.CancelFunc
	mu      sync.Mutex
	last    *channel // cur, for those without token
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	if !validQueue(subscription) {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "subscription %q: want 1 to %d bytes, not amq.", subscription, maxField-retrySuffix)
	}
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver %s: StartFrom: a queue has no positions", subscription)
	}
	wish, _ := c.wish(subscription)
	r := &receiver{c: c, queue: subscription, wish: wish, lease: c.consumerTimeout,
		token: make(chan struct{}, 1), closing: make(chan struct{})}
	r.life, r.end = context.WithCancel(context.Background())
	ch, err := r.ready(ctx)
	if err != nil {
		r.end()
		return nil, failure(ctx, err, "open receiver %s", subscription)
	}
	switch {
	case wish.Lease > 0:
		r.lease = wish.Lease
	case c.kind == Classic && ch.s.atLeast(4, 3):
		r.lease = 0 // they have none there (RMQ-F-13)
	}
	return r, nil
}

// prefetch is how many messages the standing consumer of this receiver holds; 0
// if it has none. Order needs one that holds a single message: with each cancel
// the broker makes another consumer the active one, though this one still holds
// messages (RMQ-F-21), and what is given back comes after those prefetched
// (RMQ-F-19).
func (r *receiver) prefetch() int {
	if r.wish.Ordered {
		return 1
	}
	return r.c.window
}

// ready returns a channel that lives, for a queue that exists. The caller holds
// the token, or is alone.
func (r *receiver) ready(ctx context.Context) (*channel, error) {
	if c := r.cur; c != nil && c.alive() {
		return c, nil
	}
	s, err := r.c.consume.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.exists(ctx); err != nil {
		return nil, err
	}
	c, err := await(ctx, s.line, func() (*channel, error) {
		ch, err := s.conn.Channel()
		if err != nil {
			return nil, err
		}
		return newChannel(s, ch), nil
	}, func(c *channel) { _ = c.ch.Close() })
	if err != nil {
		return nil, err
	}
	r.cur, r.stand = c, nil
	r.mu.Lock()
	r.last = c
	r.mu.Unlock()
	return c, nil
}

// renewed is ready for a call of Receive, with the standing consumer if there is to be
// one. That takes several round trips: if ctx ends before, they go on in a goroutine
// that has the token then, or calls with shorter contexts would never get there. passed
// reports that.
func (r *receiver) renewed(ctx context.Context) (c *channel, passed bool, err error) {
	if c := r.cur; c != nil && c.alive() {
		return c, false, nil
	}
	type renewal struct {
		c   *channel
		err error
	}
	renewals := make(chan renewal)
	left := make(chan struct{})
	begun := r.c.consume.tasks.Go(func() {
		work, cancel := context.WithTimeout(r.life, renewBound)
		defer cancel()
		c, err := r.ready(work)
		if n := r.prefetch(); err == nil && n > 0 {
			_, err = r.consume(work, c, n)
		}
		select {
		case renewals <- renewal{c, err}:
		case <-left:
			if err != nil && !again(err) {
				r.late = broker.Errorf(kindOf(err), err, "receive from %s", r.queue)
			}
			<-r.token
		}
	})
	if !begun {
		return nil, false, r.closed()
	}
	select {
	case n := <-renewals:
		return n.c, false, n.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-r.closing:
		err = r.closed()
	}
	close(left)
	return nil, true, err
}

// exists checks that the queue is there. What Ensure made through this connection
// is made again.
func (r *receiver) exists(ctx context.Context) error {
	err := r.c.admin(ctx, func(_ *session, ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(r.queue, true, false, false, false, nil)
		return err
	})
	if err == nil || !errors.Is(kindOf(err), broker.ErrNotFound) {
		return err
	}
	if e, ours := r.c.wish(r.queue); ours {
		return r.c.Ensure(ctx, e)
	}
	return err
}

// Receive asks the broker for up to most messages: as many as it prefetches for a
// consumer that is cancelled once the first of them came and what was with it.
// Its round trips know no context, so they run in a goroutine of their own, which
// the receiver waits for: the next call comes behind it.
func (r *receiver) Receive(ctx context.Context, most int, out *driver.Batch) error {
	select {
	case r.token <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.closing:
		return r.closed()
	}
	if err := r.late; err != nil {
		r.late = nil
		<-r.token
		return err
	}
	if k := r.kept; k != nil {
		if n := r.handKept(k, most, out); n > 0 {
			<-r.token
			return nil
		}
	}
	failures := 0
	for {
		c, passed, err := r.renewed(ctx)
		if passed {
			return err
		}
		if err == nil {
			c.sweep(r.c.now())
			if n := r.prefetch(); n > 0 {
				err = r.takeStanding(ctx, c, n, most, out)
			} else if passed, err = r.take(ctx, c, most, out); passed {
				return err // the token went with the goroutine
			}
		}
		switch {
		case out.Len() > 0:
			if err != nil && ctx.Err() == nil && !again(err) {
				r.late = err
			}
			err = nil
		case err == nil, ctx.Err() != nil:
		case closed(r.closing):
			err = r.closed()
		case again(err):
			failures++
			r.pause(ctx, failures) // if ctx ends or Close comes, the next turn finds out
			continue
		default:
			err = broker.Errorf(kindOf(err), err, "receive from %s", r.queue)
		}
		<-r.token
		if err == nil && out.Len() == 0 || ctx.Err() != nil && err != nil {
			err = context.Cause(ctx)
		}
		return err
	}
}

func (r *receiver) closed() error {
	return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.queue)
}

// again reports whether an error heals by a new channel. The node closes a
// channel for a delivery that outlived its consumer timeout, and cancels the
// consumers of a queue that moves or goes.
func again(err error) bool {
	kind := kindOf(err)
	return errors.Is(err, errChannelOver) || kind == broker.ErrUnavailable && !refusedByNode(err)
}

// pause waits a little longer after each failure in a row.
func (r *receiver) pause(ctx context.Context, failures int) {
	if failures == 1 {
		return
	}
	t := time.NewTimer(min(10*time.Millisecond<<min(failures, 6), 500*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-r.closing:
	}
}

// haul is what one turn of consume and cancel brought.
type haul struct {
	items []held
	since time.Time // the earliest that the broker can have handed them over
	err   error
}

// take makes one turn. passed reports that the caller waits no longer and the
// token has gone to the goroutine that ends the turn.
func (r *receiver) take(ctx context.Context, c *channel, most int, out *driver.Batch) (passed bool, err error) {
	hauls := make(chan haul)
	left := make(chan struct{})
	begun := r.c.consume.tasks.Go(func() {
		h := r.turn(ctx, c, most)
		select {
		case hauls <- h:
		case <-left:
			r.keep(&kept{c: c, h: h})
			<-r.token
		}
	})
	if !begun {
		return false, r.closed()
	}
	select {
	case h := <-hauls:
		return false, r.hand(c, h, out)
	case <-ctx.Done():
	case <-r.closing:
	}
	t := time.NewTimer(giveUp)
	defer t.Stop()
	select {
	case h := <-hauls:
		if ctx.Err() == nil { // closing: nobody wants them
			c.giveBack(h.items)
			return false, r.closed()
		}
		return false, r.hand(c, h, out)
	case <-t.C:
	}
	close(left)
	if ctx.Err() == nil {
		return true, r.closed()
	}
	return true, context.Cause(ctx)
}

// kept is a haul that came when its Receive had left.
type kept struct {
	c     *channel
	h     haul
	timer *time.Timer
}

// keep keeps a haul for the next Receive, for a while. The caller holds the token.
func (r *receiver) keep(k *kept) {
	switch {
	case len(k.h.items) == 0:
	case closed(r.closing):
		k.c.giveBack(k.h.items)
	default:
		r.kept = k
		k.timer = time.AfterFunc(keepFor, func() {
			select {
			case r.token <- struct{}{}:
			case <-r.closing: // Close gives it back
				return
			}
			if r.kept == k {
				r.giveKept()
			}
			<-r.token
		})
	}
}

// giveKept gives back what is kept. The caller holds the token.
func (r *receiver) giveKept() {
	if k := r.kept; k != nil {
		k.timer.Stop()
		r.kept = nil
		k.c.giveBack(k.h.items) // an ended channel's are the broker's already
	}
}

// handKept puts what is kept into the batch, at most so many, and returns their number.
// The caller holds the token.
func (r *receiver) handKept(k *kept, most int, out *driver.Batch) int {
	k.timer.Stop()
	r.kept = nil
	n := min(most, len(k.h.items))
	rest := k.h
	rest.items = k.h.items[n:]
	k.h.items = k.h.items[:n:n]
	if err := r.hand(k.c, k.h, out); err != nil {
		return out.Len() // its channel is gone: the call goes on with another one
	}
	r.keep(&kept{c: k.c, h: rest})
	return n
}

// turn is qos, consume, wait, cancel. It ends when the broker has answered the
// cancel: before the answer all comes that the queue had for the consumer, and
// after it nothing. So the cancel goes out with the first message, and nobody
// waits for a rest that isn't there.
func (r *receiver) turn(ctx context.Context, c *channel, most int) (h haul) {
	most = min(most, 65535)
	if c.qos != most {
		if err := c.ch.Qos(most, 0, false); err != nil {
			h.err = c.broken(err)
			return h
		}
		c.qos = most
	}
	r.count++
	tag := "onceline-" + strconv.Itoa(r.count)
	begin := time.Now()
	in, err := c.ch.Consume(r.queue, tag, false, false, false, false, nil)
	if err != nil {
		h.err = c.broken(err)
		return h
	}
	trip := time.Since(begin)
	over := false
	select {
	case d, open := <-in:
		if over = !open; !over {
			h.since = r.c.now().Add(-trip)
			h.items = append(make([]held, 0, min(most, max(r.size, 8))), held{d, c})
		}
	case <-ctx.Done():
	case <-r.closing:
	}
	if over { // by the broker: the queue or the channel has gone
		h.err = c.over()
		return h
	}
	if err := c.ch.Cancel(tag, false); err != nil {
		_ = c.ch.Close() // or the deliveries might never end; an error means that it is closed
		h.err = c.broken(err)
	}
	for d := range in { // ends with the cancel's answer, or the channel
		if h.since.IsZero() {
			h.since = r.c.now().Add(-trip)
		}
		h.items = append(h.items, held{d, c})
	}
	r.size = len(h.items)
	return h
}

// errChannelOver is the end of a channel, or of a consumer by the broker.
var errChannelOver = errors.New("the consumer has ended")

// broken is the error of a call on a channel. A channel that has ended is
// replaced, and whether the queue is there still is found out then; a refusal that
// would come again is not.
func (c *channel) broken(err error) error {
	var reply *amqp.Error
	if errors.As(err, &reply) {
		switch reply.Code {
		case amqp.AccessRefused, amqp.NotAllowed, amqp.ResourceLocked, amqp.NotImplemented:
			return err
		}
	}
	if c.alive() {
		return err
	}
	return errors.Join(errChannelOver, err)
}

// over is why deliveries ended without a cancel of ours.
func (c *channel) over() error {
	if c.alive() {
		// The broker has cancelled the consumer. Whether the queue is there still
		// is found out by a new channel.
		_ = c.ch.Close() // an error means that it is closed
	}
	<-c.ended
	return errors.Join(errChannelOver, c.cause)
}

// hand puts a haul into the batch.
func (r *receiver) hand(c *channel, h haul, out *driver.Batch) error {
	if len(h.items) == 0 {
		return h.err
	}
	s := &slab{items: h.items}
	if r.lease > 0 {
		s.lease = h.since.Add(r.lease)
	}
	if !c.keep(s) {
		return errors.Join(errChannelOver, h.err) // they are the broker's again
	}
	out.Grow(out.Len() + len(h.items))
	for i := range h.items {
		r.add(&s.items[i], s.lease, out)
	}
	return h.err
}

func (r *receiver) add(x *held, lease time.Time, out *driver.Batch) {
	d, token := out.Add()
	decode(&d.Message, &x.d)
	d.Attempt = attemptOf(&x.d)
	if r.c.kind == Quorum && d.Attempt.Trust == broker.None && !x.d.Redelivered {
		d.Attempt.Trust = broker.Exact // the first delivery has no count
	}
	d.Lease = lease
	token.Epoch, token.Tag, token.Ref = x.ch.epoch, x.d.DeliveryTag, x
}

func (r *receiver) As(target any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := target.(**amqp.Channel); ok && r.last != nil {
		*t = r.last.ch
		return true
	}
	return false
}

// AsDelivery sets target to the *amqp091.Delivery.
func (r *receiver) AsDelivery(t *driver.Token, target any) bool {
	x, ok := t.Ref.(*held)
	if p, want := target.(**amqp.Delivery); ok && want {
		*p = &x.d
		return true
	}
	return false
}
