package rabbitmq

import (
	"encoding/binary"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// stage is how much of a publish has come.
type stage uint8

const (
	idle       stage = iota
	wantHeader       // the method is here
	wantBody         // the header too
)

// publish is a message that is coming in, frame by frame. Its strings are kept for
// the next one, which mostly has the same.
type publish struct {
	stage     stage
	exchange  string
	key       string
	mandatory bool
	immediate bool
	size      uint64 // of the body, as it was announced
	got       uint64 // of it so far
	props     int    // bytes of data that are properties
	data      []byte // properties, then the body
	head      []byte // properties before the first part of the body is here
}

// maxAnnounced is the size of a body over which RabbitMQ doesn't even read it.
const maxAnnounced = 512 * mib

func (ch *channel) beginPublish(d *amqp.Decoder) *exception {
	p := &ch.publish
	fields := d.Rest()
	d.Uint16()
	exchange, key := d.Short(), d.Short()
	mandatory, immediate := d.Bit(), d.Bit()
	if d.Err() != nil {
		e := undecodable(fields, d.Err())
		e.method = amqp.BasicPublish
		return e
	}
	if string(exchange) != p.exchange {
		p.exchange = string(exchange)
	}
	if string(key) != p.key {
		p.key = string(key)
	}
	p.mandatory, p.immediate = mandatory, immediate
	p.stage = wantHeader
	return nil
}

func (ch *channel) headerFrame(payload []byte) *exception {
	p := &ch.publish
	if p.stage != wantHeader {
		if p.stage == wantBody {
			return refuse(amqp.UnexpectedFrame, "expected content body, got non content body frame instead")
		}
		return refuse(amqp.UnexpectedFrame, "expected method frame, got non method frame instead")
	}
	d := amqp.NewDecoder(payload)
	class, weight, size := d.Uint16(), d.Uint16(), d.Uint64()
	switch {
	case d.Err() != nil || weight != 0:
		return refuse(amqp.UnexpectedFrame, "expected content header for class 60, got non content header frame instead")
	case class != amqp.ClassBasic:
		return refuse(amqp.UnexpectedFrame, "expected content header for class 60, got one for class %d instead", class)
	case size > maxAnnounced:
		e := refuse(amqp.FrameErrorCode, "content body size %d exceeds maximum allowed size %d", size, maxAnnounced)
		e.method = amqp.BasicPublish
		return e
	}
	p.size, p.got, p.data = size, 0, nil
	p.stage = wantBody
	if size == 0 {
		p.data, p.props = append([]byte(nil), d.Rest()...), len(d.Rest())
		return ch.published()
	}
	p.head = append(p.head[:0], d.Rest()...)
	return nil
}

// bodyFrame takes a part of the body. The memory for it grows with what has come,
// not with what was announced, and what is over the limit is only counted.
func (ch *channel) bodyFrame(payload []byte) *exception {
	p := &ch.publish
	switch {
	case p.stage == wantHeader:
		return refuse(amqp.UnexpectedFrame, "expected content header for class 60, got non content header frame instead")
	case p.stage == idle:
		return refuse(amqp.UnexpectedFrame, "expected method frame, got non method frame instead")
	case uint64(len(payload)) > p.size-p.got:
		e := refuse(amqp.FrameErrorCode, "content body frame exceeds remaining content size")
		e.method = amqp.BasicPublish
		return e
	}
	if p.data == nil {
		p.data = make([]byte, 0, len(p.head)+len(payload))
		p.data = append(p.data, p.head...)
		p.props = len(p.head)
	}
	p.got += uint64(len(payload))
	if p.size <= uint64(ch.c.s.maxMessage) {
		p.data = append(p.data, payload...)
	}
	if p.got < p.size {
		return nil
	}
	return ch.published()
}

// published handles a message that is whole.
func (ch *channel) published() *exception {
	p := &ch.publish
	p.stage = idle
	m := &message{exchange: p.exchange, key: p.key, props: p.data[:p.props:p.props], body: p.data[p.props:]}
	p.data = nil
	if ch.c.s.tracing() {
		ch.c.tracef("basic.publish channel=%d exchange=%q key=%q bytes=%d", ch.id, m.exchange, m.key, p.size)
	}
	var e *exception
	if ch.c.s.faults.Armed() != nil {
		e = ch.publishUnderFault(m, p.mandatory, p.immediate, p.size)
	} else {
		e = ch.accept(m, p.mandatory, p.immediate, p.size, nil)
	}
	if e != nil && e.code != amqp.InternalError {
		e.method = amqp.BasicPublish
	}
	return e
}

// accept checks a message, routes it, and says what became of it. With lost the
// answer is dropped.
func (ch *channel) accept(m *message, mandatory, immediate bool, size uint64, lost *fault.Injection) *exception {
	if limit := uint64(ch.c.s.maxMessage); size > limit {
		return refuse(amqp.PreconditionFailed, "message size %d is larger than configured max size %d", size, limit)
	}
	if immediate {
		return refuse(amqp.NotImplemented, "immediate=true")
	}
	x := ch.c.vhost.exchanges[m.exchange]
	if x == nil {
		return refuseNotFound("exchange", m.exchange, ch.c.vhost.name)
	}
	if x.internal {
		return refuse(amqp.AccessRefused, "cannot publish to internal exchange '%s' in vhost '%s'", x.name, x.v.name)
	}
	p, e := m.readProperties()
	if e == nil {
		e = ch.nameReplies(m, &p)
	}
	if e == nil {
		e = m.readRoutes(&p)
	}
	if e == nil && p.Flags&amqp.HasUserID != 0 && string(p.UserID) != ch.c.user {
		e = refuse(amqp.PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", p.UserID, ch.c.user)
	}
	if e != nil {
		return e
	}
	if ch.tx != nil {
		ch.tx.published = append(ch.tx.published, outgoing{m, x, mandatory})
		return nil
	}
	var seq uint64
	if ch.confirms.on {
		seq = ch.confirms.next
		ch.confirms.next++
	}
	ok := ch.route(m, x, mandatory && lost == nil, ch.confirms.on)
	switch {
	case lost != nil:
		ch.confirms.withhold(seq)
		lost.Answered(ok)
	case seq != 0:
		ch.confirm(seq, ok)
	}
	return nil
}

// route gives a message to the queues that it reaches, and is false when one of
// them refused it (RMQ-F-05). What reaches none is returned, if mandatory, and is
// confirmed all the same (RMQ-F-04).
func (ch *channel) route(m *message, x *exchange, mandatory, confirmed bool) bool {
	queues := m.queues(x, []byte(m.key))
	if len(queues) == 0 && mandatory {
		ch.returnMessage(m)
	}
	ok := true
	for _, q := range queues {
		ok = q.enqueue(m, confirmed) && ok
	}
	return ok
}

func (ch *channel) returnMessage(m *message) {
	ch.send(amqp.BasicReturn, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, amqp.NoRoute)
		b = amqp.AppendShort(b, amqp.CodeName(amqp.NoRoute))
		b = amqp.AppendShort(b, m.exchange)
		return amqp.AppendShort(b, m.key)
	})
	ch.c.send(func(b []byte) []byte { return amqp.AppendContent(b, ch.id, m.props, m.body, ch.frameMax()) })
}

// enqueue adds a message, and is false when the queue is full and refuses it.
func (q *queue) enqueue(m *message, confirmed bool) bool {
	if q.refuses(m) {
		return false
	}
	it := item{message: m, expires: q.expiresAt(m), confirmed: confirmed}
	if q.count == 0 && it.expires != 0 { // even a TTL of 0 is long enough for a consumer that waits
		if c := q.next(); c != nil {
			q.seq++
			it.seq = q.seq
			c.deliver(it)
			return true
		}
	}
	q.push(it)
	q.pump()
	q.overflowed()
	return true
}
