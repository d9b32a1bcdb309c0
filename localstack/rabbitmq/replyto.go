package rabbitmq

import (
	"strings"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// replyTo is the name by which a client consumes answers to its requests without
// a queue of its own, and with which it marks those requests. Each channel that
// does so has a name of its own for others to answer to, which is gone with its
// consumer (RMQ-F-35).
const replyTo = "amq.rabbitmq.reply-to"

// consumeReplies makes the channel's consumer of answers: of a queue that no
// client can declare, and that ends with it.
func (ch *channel) consumeReplies(tag string, noAck, noWait bool) *exception {
	switch {
	case !noAck:
		return refuse(amqp.PreconditionFailed, "reply consumer cannot acknowledge")
	case ch.replies != nil && !ch.replies.deleted:
		return refuse(amqp.PreconditionFailed, "reply consumer already set")
	}
	s := ch.c.s
	if tag == "" {
		tag = s.newName("amq.ctag-")
	}
	q := &queue{v: ch.c.vhost, name: s.newName(replyTo + "."), autoDelete: true, reply: true}
	if e := q.readArgs(s); e != nil {
		return e
	}
	q.v.queues[q.name] = q
	q.v.topology++
	ch.replies = q
	c := &consumer{ch: ch, q: q, tag: tag, noAck: true}
	ch.consumers[tag] = c
	ch.order = append(ch.order, c)
	if !noWait {
		ch.send(amqp.BasicConsumeOk, func(b []byte) []byte { return amqp.AppendShort(b, tag) })
	}
	q.addConsumer(c)
	return nil
}

// nameReplies puts the channel's own name for answers into a request.
func (ch *channel) nameReplies(m *message, p *amqp.Properties) *exception {
	if string(p.ReplyTo) != replyTo {
		return nil
	}
	if ch.replies == nil || ch.replies.deleted {
		return refuse(amqp.PreconditionFailed, "fast reply consumer does not exist")
	}
	p.ReplyTo = []byte(ch.replies.name)
	m.props = p.Append(nil)
	return nil
}

// declareReplies answers a declaration of a name for answers, which is passive
// whatever it says.
func (ch *channel) declareReplies(name string) (*queue, *exception) {
	if q := ch.c.vhost.queues[name]; q != nil {
		return q, nil
	}
	return nil, refuseNotFound("queue", name, ch.c.vhost.name)
}

func isReplyName(name string) bool { return strings.HasPrefix(name, replyTo) }
