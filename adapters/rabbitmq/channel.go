package rabbitmq

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// channel is one life of a receiver's channel. Delivery tags are its own
// (RMQ-F-11), so handles end with it.
type channel struct {
	s     *session
	ch    *amqp.Channel
	epoch *driver.Epoch
	qos   int
	// stands is set once a standing consumer is on the channel. One that the
	// broker cancels has lost some of what it holds (RMQ-F-13): the channel ends.
	stands atomic.Bool
	ended  chan struct{} // closed when the channel is; the epoch has ended before
	cause  error         // why; good after ended

	// mu is held while settles are written: an ack for all up to a tag must not
	// overtake the nack of one of them.
	mu     sync.Mutex
	tags   tags
	held   []*slab               // that may have something unsettled
	timers map[*held]*time.Timer // nacks that wait here
}

// held is one delivery in the application's hands. It lies in the slab of the
// Receive that made it.
type held struct {
	d  amqp.Delivery
	ch *channel
}

// slab is what one Receive handed out.
type slab struct {
	items []held
	lease time.Time // zero: none
}

func newChannel(s *session, ch *amqp.Channel) *channel {
	c := &channel{s: s, ch: ch, epoch: new(driver.Epoch), ended: make(chan struct{})}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	cancels := ch.NotifyCancel(make(chan string, 4))
	watch := func() {
		defer close(c.ended)
		for range cancels { // until the channel ends
			if c.stands.Load() {
				c.epoch.End()
				_ = ch.Close() // an error means that it has ended
			}
		}
		e := <-closes
		c.epoch.End()
		c.cause = errSessionOver
		if e != nil {
			c.cause = broker.Errorf(kindOf(e), e, "rabbitmq: channel")
		}
		c.mu.Lock()
		for _, t := range c.timers {
			t.Stop() // the broker has the messages back
		}
		c.timers = nil
		c.held = nil
		c.mu.Unlock()
	}
	if !s.line.tasks.Go(watch) { // the line is closed behind a call that is late
		_ = ch.Close()
		watch()
	}
	return c
}

func (c *channel) alive() bool { return !c.ch.IsClosed() }

// keep remembers what a Receive hands out. It reports false if the channel has
// ended meanwhile.
func (c *channel) keep(s *slab) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch.Ended() {
		return false
	}
	c.held = append(c.held, s)
	return true
}

// settled returns when the queue has taken the settles that were sent before.
func (c *channel) settled(queue string) error {
	_, err := c.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return err
}

// sweep gives back what has outlived its lease: its handles are refused, and the
// node, which looks once in a while, would close the whole channel for it. It
// also forgets slabs of which nothing is left.
func (c *channel) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(s *slab) bool {
		over := !s.lease.IsZero() && !now.Before(s.lease)
		left := false
		for i := range s.items {
			tag := s.items[i].d.DeliveryTag
			switch {
			case c.tags.settled(tag):
			case over && c.tags.mark(tag):
				// An error means that the channel is gone, and so is the lease.
				_ = c.ch.Nack(tag, false, true)
			default:
				left = true
			}
		}
		return !left
	})
}

// giveBack returns deliveries that nobody gets, without counting them as failed
// where the broker makes that difference (RMQ-F-15).
func (c *channel) giveBack(ds []held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.wire.cork()
	for i := range ds {
		if tag := ds[i].d.DeliveryTag; c.tags.mark(tag) {
			if c.ch.Nack(tag, false, true) != nil {
				break // the channel is gone, and they are back with it
			}
		}
	}
	_ = c.s.wire.uncork() // the same
}

// lost reports whether an SDK error of a settle means that nothing was sent.
func lost(err error) bool { return errors.Is(err, amqp.ErrClosed) }

// tags knows which delivery tags of a channel are settled. They are handed out
// in sequence from 1.
type tags struct {
	first uint64   // the lowest tag that words covers, less the bits below
	words []uint64 // a bit is set for each settled tag from first on
	low   uint64   // all tags up to it are settled
}

// settled reports whether a tag is.
func (t *tags) settled(tag uint64) bool {
	if tag <= t.low {
		return true
	}
	w, bit := t.place(tag)
	return w < uint64(len(t.words)) && t.words[w]&bit != 0
}

func (t *tags) place(tag uint64) (word, bit uint64) {
	n := tag - 1 - t.first
	return n / 64, 1 << (n % 64)
}

// mark settles a tag and reports whether it wasn't.
func (t *tags) mark(tag uint64) bool {
	if t.settled(tag) {
		return false
	}
	w, bit := t.place(tag)
	for uint64(len(t.words)) <= w {
		t.words = append(t.words, 0)
	}
	t.words[w] |= bit
	for {
		w, bit := t.place(t.low + 1)
		if w >= uint64(len(t.words)) || t.words[w]&bit == 0 {
			break
		}
		t.low++
	}
	// Whole words of settled tags are dropped.
	if done := (t.low - t.first) / 64; done >= 16 || done == uint64(len(t.words)) && done > 0 {
		t.words = append(t.words[:0], t.words[done:]...)
		t.first += done * 64
	}
	return true
}
