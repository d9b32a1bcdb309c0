package rabbitmq

import (
	"encoding/binary"
	"strings"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// lookup finds the queue that a request names; "" is the one that the channel
// declared last.
func (ch *channel) lookup(name string) (*queue, *exception) {
	if name == "" {
		if name = ch.lastQueue; name == "" {
			return nil, refuse(amqp.NotFound, "no previously declared queue")
		}
	}
	q := ch.c.vhost.queues[name]
	if q == nil {
		return nil, refuseNotFound("queue", name, ch.c.vhost.name)
	}
	return q, q.exclusiveAccess(ch.c)
}

// exclusiveAccess refuses a connection that isn't the owner of an exclusive queue.
func (q *queue) exclusiveAccess(c *conn) *exception {
	if q.owner == nil || q.owner == c {
		return nil
	}
	return refuseLocked(q)
}

func refuseLocked(q *queue) *exception {
	return refuse(amqp.ResourceLocked, "cannot obtain exclusive access to locked %s. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.", q.text())
}

func (ch *channel) queueDeclare(d *amqp.Decoder) *exception {
	d.Uint16()
	name := stripCRLF(d.Short())
	passive, durable, exclusive, autoDelete, noWait := d.Bit(), d.Bit(), d.Bit(), d.Bit(), d.Bit()
	args := d.Table()
	if d.Err() != nil {
		return nil
	}
	var q *queue
	var e *exception
	if isReplyName(name) {
		q, e = ch.declareReplies(name)
	} else if passive {
		if q = ch.c.vhost.queues[name]; q == nil {
			return refuseNotFound("queue", name, ch.c.vhost.name)
		}
		q.pump() // what has expired by now isn't counted, whenever its timer comes
		e = q.exclusiveAccess(ch.c)
	} else {
		// Exclusive queues are never durable, whatever the client says.
		want := &queue{v: ch.c.vhost, name: name, durable: durable && !exclusive, autoDelete: autoDelete, args: args}
		if exclusive {
			want.owner = ch.c
		}
		q, e = ch.declare(want, durable)
	}
	if e != nil {
		return e
	}
	ch.lastQueue = q.name
	if !noWait {
		ch.send(amqp.QueueDeclareOk, func(b []byte) []byte {
			b = amqp.AppendShort(b, q.name)
			b = binary.BigEndian.AppendUint32(b, uint32(q.count))
			return binary.BigEndian.AppendUint32(b, uint32(len(q.consumers)))
		})
	}
	return nil
}

// declare finds the queue that want describes, or makes it.
func (ch *channel) declare(want *queue, durable bool) (*queue, *exception) {
	kind, _ := want.args.Get("x-queue-type")
	want.quorum = kind == "quorum"
	s := ch.c.s
	switch {
	case want.name == "" && want.quorum:
		return nil, refuse(amqp.PreconditionFailed, "Cannot declare a server-named queue for type rabbit_quorum_queue")
	case want.name == "":
		want.name = s.newName("amq.gen-")
	case strings.HasPrefix(want.name, "amq."):
		if want.v.queues[want.name] == nil {
			return nil, refuse(amqp.AccessRefused, "queue name '%s' contains reserved prefix 'amq.*'", want.name)
		}
	}
	if old := want.v.queues[want.name]; old != nil {
		if old.owner != want.owner {
			return nil, refuseLocked(old)
		}
		old.pump()
		old.touch()
		return old, old.equivalent(want)
	}
	if e := want.check(s, kind, durable); e != nil {
		return nil, e
	}
	want.v.queues[want.name] = want
	want.v.topology++
	if want.owner != nil {
		want.owner.exclusive[want] = struct{}{}
	}
	want.touch()
	return want, nil
}

// check refuses what no queue can be.
func (q *queue) check(s *Server, kind any, durable bool) *exception {
	if kind, ok := kind.(string); ok && kind == "stream" {
		return refuse(amqp.NotImplemented, "streams are reached by the stream protocol alone here, not by AMQP 0-9-1")
	}
	if kind != nil && kind != "quorum" && kind != "classic" {
		return refuse(amqp.PreconditionFailed, "invalid arg 'x-queue-type' for %s: \"unsupported queue type '%v'\"", q.text(), kind)
	}
	if e := q.readArgs(s); e != nil {
		return e
	}
	if q.quorum {
		switch {
		case q.autoDelete:
			return refuse(amqp.PreconditionFailed, "invalid property 'auto-delete' for %s", q.text())
		case q.owner != nil:
			return refuse(amqp.PreconditionFailed, "invalid property 'exclusive-owner' for %s", q.text())
		case !q.durable:
			return refuse(amqp.PreconditionFailed, "invalid property 'non-durable' for %s", q.text())
		}
	}
	if !q.durable && q.owner == nil && !*s.transient {
		return refuse(amqp.InternalError, "Feature `transient_nonexcl_queues` is deprecated.\nBy default, this feature is not permitted anymore.\nThe feature will be removed from a future major RabbitMQ version, regardless of the configuration; actual version to be determined.")
	}
	return nil
}

func (ch *channel) queueBind(d *amqp.Decoder) *exception {
	d.Uint16()
	name, from, key := stripCRLF(d.Short()), stripCRLF(d.Short()), string(d.Short())
	noWait := d.Bit()
	args := d.Table()
	if d.Err() != nil {
		return nil
	}
	if e := ch.bindQueue(name, from, key, args, true); e != nil {
		return e
	}
	if !noWait {
		ch.reply(amqp.QueueBindOk)
	}
	return nil
}

func (ch *channel) queueUnbind(d *amqp.Decoder) *exception {
	d.Uint16()
	name, from, key := stripCRLF(d.Short()), stripCRLF(d.Short()), string(d.Short())
	args := d.Table()
	if d.Err() != nil {
		return nil
	}
	if e := ch.bindQueue(name, from, key, args, false); e != nil {
		return e
	}
	ch.reply(amqp.QueueUnbindOk)
	return nil
}

func (ch *channel) bindQueue(name, from, key string, args amqp.Table, add bool) *exception {
	if name == "" {
		if ch.lastQueue == "" {
			return refuse(amqp.NotFound, "no previously declared queue")
		}
		name = ch.lastQueue
		if key == "" {
			key = name
		}
	}
	if from == "" {
		return refuseDefaultExchange()
	}
	if isReplyName(name) && ch.c.s.release == V4 {
		return refuse(amqp.AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	}
	b := newBinding(key, args)
	b.queue = ch.c.vhost.queues[name]
	if b.queue != nil {
		if e := b.queue.exclusiveAccess(ch.c); e != nil {
			return e
		}
	}
	return ch.bind(ch.c.vhost.exchanges[from], b, add, from, "queue", name, b.queue != nil)
}

func (ch *channel) queuePurge(d *amqp.Decoder) *exception {
	d.Uint16()
	name, noWait := string(d.Short()), d.Bit()
	if d.Err() != nil {
		return nil
	}
	q, e := ch.lookup(name)
	if e != nil {
		return e
	}
	q.dropExpired()
	n := q.purge()
	if !noWait {
		ch.send(amqp.QueuePurgeOk, func(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) })
	}
	return nil
}

func (ch *channel) queueDelete(d *amqp.Decoder) *exception {
	d.Uint16()
	name := stripCRLF(d.Short())
	ifUnused, ifEmpty, noWait := d.Bit(), d.Bit(), d.Bit()
	if d.Err() != nil {
		return nil
	}
	n := 0
	if name == "" || ch.c.vhost.queues[name] != nil { // to delete what isn't there is no error
		q, e := ch.lookup(name)
		if e != nil {
			return e
		}
		switch {
		case q.quorum && ifUnused:
			return refuseDeleteIf(q, "unused")
		case q.quorum && ifEmpty:
			return refuseDeleteIf(q, "empty")
		case ifUnused && len(q.consumers) > 0:
			return refuse(amqp.PreconditionFailed, "%s in use", q.text())
		case ifEmpty && q.count > 0:
			return refuse(amqp.PreconditionFailed, "%s not empty", q.text())
		}
		n = q.count
		q.delete()
	}
	if !noWait {
		ch.send(amqp.QueueDeleteOk, func(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) })
	}
	return nil
}

func refuseDeleteIf(q *queue, flag string) *exception {
	return refuse(amqp.NotImplemented, "cannot delete %s. queue.delete operations with if-%s flag set are not supported by quorum queues", q.text(), flag)
}
