package rabbitmq

import "github.com/onceline/onceline/localstack/rabbitmq/amqp"

// settlement is what becomes of a delivery.
type settlement uint8

const (
	acked    settlement = iota
	discard             // rejected for good: to the dead-letter exchange
	returned            // given back as not to blame: a basic.nack, a recover
	failed              // given back as a failed delivery: a basic.reject, a lost channel
)

func (ch *channel) ack(d *amqp.Decoder) *exception {
	tag, multiple := d.Uint64(), d.Bit()
	return ch.settle(d, tag, multiple, acked)
}

func (ch *channel) nack(d *amqp.Decoder) *exception {
	tag, multiple, requeue := d.Uint64(), d.Bit(), d.Bit()
	how := discard
	if requeue {
		how = returned
	}
	return ch.settle(d, tag, multiple, how)
}

func (ch *channel) reject(d *amqp.Decoder) *exception {
	tag, requeue := d.Uint64(), d.Bit()
	how := discard
	if requeue {
		how = failed
		if ch.c.s.release == V3 {
			how = returned
		}
	}
	return ch.settle(d, tag, false, how)
}

// settle settles one delivery, or all up to it. A tag that is unknown ends the
// channel (RMQ-F-10).
func (ch *channel) settle(d *amqp.Decoder, tag uint64, multiple bool, how settlement) *exception {
	if d.Err() != nil {
		return nil
	}
	s := ch.c.s
	taken, ok := ch.unacked.take(tag, multiple, s.scratch[:0])
	if !ok {
		return refuse(amqp.PreconditionFailed, "unknown delivery tag %d", tag)
	}
	if ch.tx != nil {
		ch.tx.settled = append(ch.tx.settled, settlements{how, append([]pending(nil), taken...)})
	} else {
		s.scratch = nil // a dead letter's way must not come back here
		ch.apply(taken, how)
		s.scratch = taken[:0]
	}
	clear(taken)
	return nil
}

// apply carries settlements out, and goes on with the queues that they concern.
func (ch *channel) apply(list []pending, how settlement) {
	var last *queue
	for i := range list {
		p := &list[i]
		if last != nil && p.q != last {
			last.settledSome(how)
		}
		last = p.q
		ch.release(p)
		if !p.back && !p.q.deleted {
			p.q.settled(p.item, how)
		}
	}
	if last != nil {
		last.settledSome(how)
	}
	if ch.global > 0 {
		ch.pump()
	}
}

// settledSome goes on after settlements. What came back counts for the queue's
// limit: a classic queue sees to that first, a quorum queue when its consumers
// have had what they can take.
func (q *queue) settledSome(how settlement) {
	back := how == returned || how == failed
	if back && !q.quorum {
		q.overflowed()
	}
	q.pump()
	if back && q.quorum {
		q.overflowed()
	}
}

// release gives the delivery's place in the prefetch windows free.
func (ch *channel) release(p *pending) {
	switch {
	case p.c == nil:
	case p.back:
		if p.c.late--; p.c.late == 0 {
			p.q.activate()
		}
	default:
		p.c.inflight--
		ch.inflight--
	}
}

// settled does with one message what its settlement says.
func (q *queue) settled(it item, how settlement) {
	switch how {
	case acked:
		q.activate()
	case discard:
		q.deadLetter(it, rejected)
	case failed:
		q.requeue(it, true)
	default:
		q.giveBack(it)
	}
}

// giveBack makes a message ready again that its consumer doesn't want. A quorum
// queue without a delivery limit appends it as if it was new, at the end.
func (q *queue) giveBack(it item) {
	old := q.v.s.release == V3
	if !q.quorum || q.deliveryLimit >= 0 {
		q.requeue(it, old)
		return
	}
	it.redelivered = true
	it.acquired++
	if old {
		it.deliveries++
	}
	m := *it.message
	m.hasPriority = false // it is at the default now
	it.message = &m
	q.push(it)
}

// requeue gives a message back. In a quorum queue it has then been acquired once
// more, and, if count says so, failed once more; over the limit it is a dead
// letter (RMQ-F-14, RMQ-F-15).
func (q *queue) requeue(it item, count bool) {
	it.redelivered = true
	if q.quorum {
		it.acquired++
		if count {
			it.deliveries++
		}
		if q.deliveryLimit >= 0 && int64(it.deliveries) > q.deliveryLimit {
			q.deadLetter(it, deliveryLimit)
			return
		}
	}
	q.putBack(it)
}

// requeueAll gives back all that the channel holds.
func (ch *channel) requeueAll(how settlement) {
	taken, _ := ch.unacked.take(0, true, nil)
	ch.apply(taken, how)
}

func (ch *channel) recover(m amqp.Method, d *amqp.Decoder) *exception {
	if requeue := d.Bit(); d.Err() == nil && !requeue {
		return refuse(amqp.NotImplemented, "requeue=false")
	}
	ch.requeueAll(returned)
	if m == amqp.BasicRecover {
		ch.reply(amqp.BasicRecoverOk)
	}
	return nil
}
