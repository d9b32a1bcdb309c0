package rabbitmq

import (
	"fmt"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// tracing says whether anybody wants a trace.
func (s *Server) tracing() bool {
	return s.trace != nil && (s.traceWhen == nil || s.traceWhen())
}

// tracef writes a line of the trace.
func (c *conn) tracef(format string, args ...any) {
	c.s.trace(fmt.Sprintf("%s ", c.nc.RemoteAddr()) + fmt.Sprintf(format, args...))
}

// traceMethod writes the line of a request that carries no message.
func (ch *channel) traceMethod(m amqp.Method, d amqp.Decoder) {
	name := m.String()
	if name == "" {
		name = fmt.Sprintf("method %d.%d", m.Class(), m.Number())
	}
	switch m {
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject:
		ch.c.tracef("%s channel=%d tag=%d", name, ch.id, d.Uint64())
	default:
		if names := ch.entities(m, d); len(names) > 0 {
			ch.c.tracef("%s channel=%d %q", name, ch.id, names)
			return
		}
		ch.c.tracef("%s channel=%d", name, ch.id)
	}
}

// entities are the names of queues and exchanges in a request.
func (ch *channel) entities(m amqp.Method, d amqp.Decoder) []string {
	switch m {
	case amqp.ExchangeDeclare, amqp.ExchangeDelete, amqp.QueueDeclare, amqp.QueuePurge, amqp.QueueDelete, amqp.BasicConsume, amqp.BasicGet:
		d.Uint16()
		return []string{string(d.Short())}
	case amqp.QueueBind, amqp.QueueUnbind, amqp.ExchangeBind, amqp.ExchangeUnbind:
		d.Uint16()
		return []string{string(d.Short()), string(d.Short()), string(d.Short())}
	case amqp.BasicCancel:
		if c := ch.consumers[string(d.Short())]; c != nil {
			return []string{c.q.name}
		}
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject:
		tag := d.Uint64()
		if i := ch.unacked.find(tag); i >= 0 {
			p := &ch.unacked.list[i]
			if p.back { // the queue has the message again
				return []string{p.q.name}
			}
			return []string{p.q.name, p.item.message.exchange} // as of the delivery
		}
	}
	return nil
}
