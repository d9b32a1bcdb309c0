package rabbitmq

import (
	"encoding/binary"
	"slices"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// consumer is a subscription of a channel to a queue.
type consumer struct {
	ch        *channel
	q         *queue
	tag       string
	noAck     bool
	exclusive bool
	prefetch  int
	priority  int
	timeout   int64 // of deliveries, in ms; 0 is never
	inflight  int
	late      int  // deliveries that were taken back by timeout and not settled yet
	removed   bool // from the queue
	suspended bool // its connection is ending
}

// ready says whether the consumer can take a message.
func (c *consumer) ready() bool {
	ch := c.ch
	if c.suspended || c.late > 0 || ch.c.out.isFull() {
		return false
	}
	return c.noAck || (c.prefetch == 0 || c.inflight < c.prefetch) && (ch.global == 0 || ch.inflight < ch.global)
}

// deliver sends a message to the consumer.
func (c *consumer) deliver(it item) {
	ch := c.ch
	tag := ch.nextTag
	ch.nextTag++
	if !c.noAck {
		ch.unacked.push(pending{tag: tag, item: it, q: c.q, c: c, due: c.due()})
		c.inflight++
		ch.inflight++
	}
	if ch.c.s.faults.Armed() != nil && ch.loseHandout(amqp.BasicDeliver, c.q, it.message) {
		return
	}
	props := it.outgoing(c.q, false)
	ch.c.send(func(b []byte) []byte {
		start := len(b)
		b = amqp.BeginFrame(b, amqp.FrameMethod, ch.id)
		b = binary.BigEndian.AppendUint32(b, uint32(amqp.BasicDeliver))
		b = amqp.AppendShort(b, c.tag)
		b = binary.BigEndian.AppendUint64(b, tag)
		b = appendBool(b, it.redelivered)
		b = amqp.AppendShort(b, it.exchange)
		b = amqp.AppendShort(b, it.key)
		b = amqp.EndFrame(b, start)
		return amqp.AppendContent(b, ch.id, props, it.body, ch.frameMax())
	})
}

// frameMax is the limit of a frame that is sent.
func (ch *channel) frameMax() int {
	if ch.c.frameMax == 0 {
		return 1 << 30
	}
	return ch.c.frameMax
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// notifyCancel tells the client that its consumer has ended, if it said that it
// understands that.
func (c *consumer) notifyCancel() {
	if c.ch.closed || !c.ch.c.canCancel {
		return
	}
	c.ch.send(amqp.BasicCancel, func(b []byte) []byte {
		return append(amqp.AppendShort(b, c.tag), 1)
	})
}

// forget removes a consumer from the channel.
func (ch *channel) forget(c *consumer) {
	delete(ch.consumers, c.tag)
	ch.order = slices.DeleteFunc(ch.order, func(o *consumer) bool { return o == c })
}

func (ch *channel) qos(d *amqp.Decoder) *exception {
	size, count, global := d.Uint32(), int(d.Uint16()), d.Bit()
	if d.Err() != nil {
		return nil
	}
	if size != 0 {
		return refuse(amqp.NotImplemented, "prefetch_size!=0 (%d)", size)
	}
	if global {
		ch.global = count
	} else {
		ch.prefetch = count
		ch.global = 0
	}
	ch.reply(amqp.BasicQosOk)
	ch.pump()
	return nil
}

func (ch *channel) consume(d *amqp.Decoder) *exception {
	d.Uint16()
	name, tag := string(d.Short()), string(d.Short())
	_, noAck, exclusive, noWait := d.Bit(), d.Bit(), d.Bit(), d.Bit()
	args := d.Table()
	if d.Err() != nil {
		return nil
	}
	if _, taken := ch.consumers[tag]; taken {
		return refuse(amqp.NotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	if name == replyTo {
		return ch.consumeReplies(tag, noAck, noWait)
	}
	q, e := ch.lookup(name)
	if e != nil {
		return e
	}
	if tag == "" {
		tag = ch.c.s.newName("amq.ctag-")
	}
	c := &consumer{ch: ch, q: q, tag: tag, noAck: noAck, exclusive: exclusive, prefetch: ch.prefetch}
	if e := c.readArgs(args); e != nil {
		return e
	}
	switch {
	case q.quorum && ch.global > 0:
		return refuse(amqp.NotImplemented, "%s does not support global qos", q.text())
	case q.quorum: // has no exclusive consumers, and takes them all the same
	case exclusive && len(q.consumers) > 0, slices.ContainsFunc(q.consumers, func(o *consumer) bool { return o.exclusive }):
		return refuse(amqp.AccessRefused, "%s in exclusive use", q.text())
	}
	ch.consumers[tag] = c
	ch.order = append(ch.order, c)
	if !noWait {
		ch.send(amqp.BasicConsumeOk, func(b []byte) []byte { return amqp.AppendShort(b, tag) })
	}
	q.addConsumer(c)
	q.touch()
	q.pump()
	return nil
}

func (c *consumer) readArgs(args amqp.Table) *exception {
	c.timeout = c.q.consumerTimeout
	for _, f := range args {
		if f.Name != "x-priority" && f.Name != "x-consumer-timeout" {
			continue
		}
		n, ok := amqp.Int(f.Value)
		if !ok {
			return refuse(amqp.PreconditionFailed, "invalid arg '%s' for %s: \"expected integer, got %s\"", f.Name, c.q.text(), typeName(f.Value))
		}
		if f.Name == "x-priority" {
			c.priority = int(n)
			continue
		}
		if n < 0 {
			return refuse(amqp.PreconditionFailed, "invalid arg '%s' for %s: {value_negative,%d}", f.Name, c.q.text(), n)
		}
		c.timeout = n
	}
	return nil
}

func (ch *channel) cancel(d *amqp.Decoder) *exception {
	tag, noWait := string(d.Short()), d.Bit()
	if d.Err() != nil {
		return nil
	}
	c := ch.consumers[tag]
	if c != nil {
		ch.forget(c)
		c.q.removeConsumer(c)
	}
	if !noWait {
		ch.send(amqp.BasicCancelOk, func(b []byte) []byte { return amqp.AppendShort(b, tag) })
	}
	if c != nil {
		c.q.consumerGone()
	}
	return nil
}

func (ch *channel) get(d *amqp.Decoder) *exception {
	d.Uint16()
	name, noAck := string(d.Short()), d.Bit()
	if d.Err() != nil {
		return nil
	}
	q, e := ch.lookup(name)
	if e != nil {
		return e
	}
	if q.quorum && q.singleActive {
		return refuse(amqp.ResourceLocked, "cannot obtain access to locked %s. basic.get operations are not supported by quorum queues with single active consumer", q.text())
	}
	q.touch()
	q.dropExpired()
	if q.count == 0 {
		q.settleDown()
		ch.send(amqp.BasicGetEmpty, func(b []byte) []byte { return append(b, 0) })
		return nil
	}
	it := q.take()
	q.settleDown()
	tag := ch.nextTag
	ch.nextTag++
	if !noAck {
		ch.unacked.push(pending{tag: tag, item: it, q: q, due: ch.getDue(q)})
		q.watchLease(ch.getDue(q))
	}
	if ch.c.s.faults.Armed() != nil && ch.loseHandout(amqp.BasicGetOk, q, it.message) {
		return nil
	}
	ch.send(amqp.BasicGetOk, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint64(b, tag)
		b = appendBool(b, it.redelivered)
		b = amqp.AppendShort(b, it.exchange)
		b = amqp.AppendShort(b, it.key)
		return binary.BigEndian.AppendUint32(b, uint32(q.count))
	})
	props := it.outgoing(q, true)
	ch.c.send(func(b []byte) []byte { return amqp.AppendContent(b, ch.id, props, it.body, ch.frameMax()) })
	return nil
}
