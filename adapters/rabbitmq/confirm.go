package rabbitmq

import (
	"context"
	"errors"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// fate is what became of one publish.
type fate uint8

const (
	unsent   fate = iota // surely didn't leave
	inFlight             // left, and has no answer
	stored               // confirmed, and not returned
	nacked               // basic.nack
	returned             // basic.return: no queue took it
	unfit                // never sent: the protocol can't hold it
)

// cargo is what a flight carries.
type cargo interface {
	// fill makes p message i and says where it goes. An error means that the
	// protocol can't hold it. p may hold an earlier message.
	fill(i int, p *amqp.Publishing) (exchange, key string, err error)
	field(i int) string // its message-id
	size(i int) int     // of its body
	keyed(i int) bool   // it must not overtake one before it
}

// flight is the publishes of one call, on one channel.
type flight struct {
	cargo
	n int

	fates []fate
	marks []*amqp.DeferredConfirmation
	errs  []error // of unfit ones; nil if there are none
	from  int     // messages before this one went by an earlier channel
	sent  int     // messages before this one left, or may have, or are unfit
	done  int     // messages before this one hold no room in the window
	stop  error   // why the rest didn't leave
	gave  error   // why answers are missing, of the first that are
}

func (f *flight) reset(c cargo, n int) {
	*f = flight{cargo: c, n: n, fates: slices.Grow(f.fates[:0], n)[:n], marks: slices.Grow(f.marks[:0], n)[:n]}
	clear(f.fates)
	clear(f.marks)
}

// keysLeft reports whether a message that has not left has a key.
func (f *flight) keysLeft() bool {
	for i := f.sent; i < f.n; i++ {
		if f.keyed(i) {
			return true
		}
	}
	return false
}

// confirmer is a channel in confirm mode, as long as it lives. What was sent on
// it and has no answer when it ends is Unknown, though the SDK says nack
// (RMQ-F-08).
type confirmer struct {
	s  *session
	ch *amqp.Channel

	mu      sync.Mutex
	flights []*flight // in the order of their start; guarded by mu

	barrier chan struct{} // taken by heed between two returns
	ended   chan struct{} // closed when heed has returned
	cause   error         // why the channel ended; good after ended
}

func newConfirmer(s *session, ch *amqp.Channel) *confirmer {
	c := &confirmer{s: s, ch: ch, barrier: make(chan struct{}), ended: make(chan struct{})}
	returns := ch.NotifyReturn(make(chan amqp.Return))
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	if heed := func() { c.heed(returns, closes) }; !s.line.tasks.Go(heed) {
		_ = ch.Close()
		heed()
	}
	return c
}

// heed marks what the broker returns. A return comes before the confirm of its
// message (RMQ-F-04), and the SDK hands it over before it reads on; so whoever
// got a confirm and then passes the barrier finds the mark.
func (c *confirmer) heed(returns <-chan amqp.Return, closes <-chan *amqp.Error) {
	defer close(c.ended)
	for {
		select {
		case r, open := <-returns:
			if !open {
				c.cause = errSessionOver
				if e := <-closes; e != nil {
					c.cause = broker.Errorf(kindOf(e), e, "rabbitmq: channel")
				}
				return
			}
			c.mark(&r)
		case c.barrier <- struct{}{}:
		}
	}
}

// mark finds the message that a return is of. A return carries no tag, so it is
// known by its ID; of several with one ID in flight the first is meant, for the
// broker returns in the order of publishing. Its confirm, which comes later, may
// have been read by now.
func (c *confirmer) mark(r *amqp.Return) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flights {
		for i := f.from; i < f.sent; i++ {
			if f.fates[i] == inFlight && f.field(i) == r.MessageId {
				f.fates[i] = returned
				return
			}
		}
	}
}

// pass waits until every return is marked that came before now.
func (c *confirmer) pass() {
	select {
	case <-c.barrier:
	case <-c.ended:
	}
}

func (c *confirmer) enter(f *flight) {
	c.mu.Lock()
	c.flights = append(c.flights, f)
	c.mu.Unlock()
}

func (c *confirmer) leave(f *flight) {
	c.mu.Lock()
	c.flights = slices.DeleteFunc(c.flights, func(x *flight) bool { return x == f })
	c.mu.Unlock()
}

// alive reports whether the channel can still be used.
func (c *confirmer) alive() bool { return !c.ch.IsClosed() }

// chunk is how many messages are sent between two looks at the context.
const chunk = 128

// send sends the next n messages. An error ends the flight.
func (c *confirmer) send(f *flight, n int) (err error) {
	from, to := f.sent, f.sent+n
	// An answer may come while the rest of the chunk is still on its way.
	c.mu.Lock()
	for i := from; i < to; i++ {
		f.fates[i] = inFlight
	}
	f.sent = to
	c.mu.Unlock()
	c.s.wire.cork()
	defer func() {
		if e := c.s.wire.uncork(); e != nil && err == nil {
			err = e
		}
	}()
	var p amqp.Publishing
	for i := from; i < to; i++ {
		exchange, key, bad := f.fill(i, &p)
		if bad != nil {
			c.unfit(f, i, bad)
			continue
		}
		mark, err := c.ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
		if err != nil {
			left := i + 1
			if errors.Is(err, amqp.ErrClosed) {
				left = i // it was closed before the message was whole
			}
			c.mu.Lock()
			clear(f.fates[left:to])
			f.sent = left
			c.mu.Unlock()
			return err
		}
		c.mu.Lock()
		f.marks[i] = mark
		c.mu.Unlock()
	}
	return nil
}

func (c *confirmer) unfit(f *flight, i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.fates[i] = unfit
	if f.errs == nil {
		f.errs = make([]error, f.n)
	}
	f.errs[i] = err
}

// wait waits for the answers to messages [f.done, to). An error is why it gave
// up.
func (c *confirmer) wait(ctx context.Context, f *flight, to int, closing <-chan struct{}) error {
	for i := f.done; i < to; i++ {
		m := f.marks[i]
		if m == nil {
			continue
		}
		select {
		case <-m.Done():
			continue
		default:
		}
		select {
		case <-m.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-closing:
			return broker.ErrClosed
		}
	}
	return nil
}

// conclude reads the answers. gave is why the caller didn't wait for all. Of a
// channel that has ended acks alone count. It returns the node's limit of a
// message's size, if that ended the channel.
func (c *confirmer) conclude(f *flight, gave error) (limit int) {
	c.pass()
	c.leave(f)
	if !c.alive() {
		<-c.ended // heed ends with the channel
		gave = c.cause
		limit = sizeLimit(c.cause)
	}
	for i := f.from; i < f.sent; i++ {
		m := f.marks[i]
		switch answered := m != nil && closed(m.Done()); {
		case f.fates[i] != inFlight:
		case answered && m.Acked():
			f.fates[i] = stored
		case answered && c.alive():
			f.fates[i] = nacked
		case limit > 0 && f.size(i) > limit:
			c.unfit(f, i, broker.Errorf(broker.ErrTooLarge, c.cause, "publish %q", f.field(i)))
		case f.gave == nil && gave == nil:
			f.gave = errSessionOver // just now
		case f.gave == nil:
			f.gave = gave
		}
	}
	return limit
}
