package localstack

import (
	"encoding/binary"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// rabbitConfirms follows the confirms of a channel. The client numbers its
// messages from 1 on, and so does the broker; once a message was kept from the
// broker their numbers differ.
type rabbitConfirms struct {
	sent    uint64                // messages of the client so far
	low     uint64                // all of its numbers before this one have been confirmed or dropped
	above   map[uint64]struct{}   // what has been, from low on
	dropped []uint64              // its numbers that the broker never saw, in order
	lost    map[uint64]rabbitLost // its numbers whose confirm is to be dropped
	holes   bool                  // some number is never confirmed: no confirm may cover it
}

// rabbitLost is a message whose confirm and return are to be dropped.
type rabbitLost struct {
	injection     *Injection
	exchange, key string
}

func newRabbitConfirms() *rabbitConfirms {
	return &rabbitConfirms{low: 1, above: map[uint64]struct{}{}, lost: map[uint64]rabbitLost{}}
}

// drop counts a message that the broker does not see, and returns its number.
func (c *rabbitConfirms) drop() uint64 {
	c.sent++
	c.dropped = append(c.dropped, c.sent)
	c.holes = true
	c.done(c.sent)
	return c.sent
}

// lose counts a message whose confirm is to be dropped.
func (c *rabbitConfirms) lose(l rabbitLost) {
	c.sent++
	c.holes = true
	c.lost[c.sent] = l
}

// client returns the client's number of the broker's.
func (c *rabbitConfirms) client(tag uint64) uint64 {
	for _, d := range c.dropped {
		if d <= tag {
			tag++
		}
	}
	return tag
}

func (c *rabbitConfirms) done(tag uint64) {
	if tag != c.low {
		c.above[tag] = struct{}{}
		return
	}
	for c.low++; len(c.above) > 0; c.low++ {
		if _, ok := c.above[c.low]; !ok {
			return
		}
		delete(c.above, c.low)
	}
}

// doneTo is done for all numbers up to a tag.
func (c *rabbitConfirms) doneTo(tag uint64) {
	for c.low <= tag {
		if len(c.above) == 0 {
			c.low = tag + 1
			return
		}
		c.done(c.low)
	}
}

// confirm takes a confirm of the broker into account. It returns the frames to
// send instead; same says that it can go on as it is. cut says that a fault ends
// the connection as well.
func (c *rabbitConfirms) confirm(channel uint16, m amqp.Method, args []byte) (instead []byte, same, cut bool) {
	d := amqp.NewDecoder(args)
	tag, multiple := c.client(d.Uint64()), d.Bit()
	if d.Err() != nil || tag > c.sent {
		return nil, true, false // not for us to judge
	}
	if !c.holes {
		if !multiple {
			c.done(tag)
			return nil, true, false
		}
		c.doneTo(tag)
		return nil, true, false
	}
	first := tag
	if multiple {
		first = c.low
	}
	for n := first; n <= tag; n++ {
		if _, was := c.above[n]; was || n < c.low {
			continue
		}
		c.done(n)
		if l, ok := c.lost[n]; ok {
			delete(c.lost, n)
			l.injection.Answered(m == amqp.BasicAck)
			cut = cut || l.injection.Fault().Cut
			continue
		}
		instead = append(instead, confirmFrame(channel, m, n)...)
	}
	return instead, false, cut
}

// confirmFrame makes a confirm of one message.
func confirmFrame(channel uint16, m amqp.Method, tag uint64) []byte {
	return methodFrame(channel, m, func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint64(b, tag), 0) // neither multiple nor requeue
	})
}

// returned says whether a returned message is one whose answers are to be dropped.
// A return names no number; it comes right before the confirm of its message.
func (c *rabbitConfirms) returned(args []byte) bool {
	if len(c.lost) == 0 {
		return false
	}
	d := amqp.NewDecoder(args)
	d.Uint16()
	d.Short() // the reason
	exchange, key := string(d.Short()), string(d.Short())
	for _, l := range c.lost {
		if l.exchange == exchange && l.key == key {
			return true
		}
	}
	return false
}

// refused tells the faults that wait that no confirm will come.
func (c *rabbitConfirms) refused() {
	for n, l := range c.lost {
		l.injection.Answered(false)
		delete(c.lost, n)
	}
}
