package rabbitmq

import "github.com/onceline/onceline/localstack/rabbitmq/amqp"

// Restart ends all connections, and goes on with what a broker finds again when
// it starts: durable exchanges and bindings, durable queues, and in those the
// messages that were published as persistent; a quorum queue keeps all of its
// messages. Exclusive queues and what isn't durable are gone. Deliveries that were
// not settled are in their queues again, with their redelivered flag.
//
// With kill it is as by a crash: connections end without a word, and a classic
// queue loses the messages that their publisher was never told to be safe
// (RMQ-F-03), and marks all that it finds as redelivered, as it can't know which of
// them it had handed out. Otherwise each connection is told that it is closed.
//
// Listeners go on, and Restart returns when all connections have ended.
func (s *Server) Restart(kill bool) {
	var ending []*conn
	s.enter(func() {
		for c := range s.conns {
			ending = append(ending, c)
			c.suspend()
		}
		for _, c := range ending {
			c.restart(kill)
		}
		for _, v := range s.vhosts {
			v.restart(kill)
		}
	})
	for _, c := range ending {
		<-c.gone
	}
}

// suspend keeps the connection's consumers from getting any more.
func (c *conn) suspend() {
	for _, ch := range c.channels {
		ch.suspend()
	}
}

func (c *conn) restart(kill bool) {
	if kill || c.state != running {
		c.cut()
		return
	}
	c.failWithin(refuse(amqp.ConnectionForced, "broker forced connection closure with reason 'shutdown'"), lastWords)
}

func (v *vhost) restart(kill bool) {
	for _, q := range v.sortedQueues() {
		if !q.durable {
			q.delete()
			continue
		}
		if !q.quorum {
			q.recover(kill)
		}
		q.full = false
		q.touch()
	}
	for _, x := range v.sortedExchanges() {
		if !x.durable {
			x.delete()
		}
	}
}

// recover keeps what a classic queue finds again.
func (q *queue) recover(kill bool) {
	q.count, q.bytes, q.filled = 0, 0, 0
	for i := range q.levels {
		old := q.levels[i]
		q.levels[i].clear()
		for j := range old.n {
			it := *old.at(j)
			if !it.persistent || kill && !it.confirmed {
				continue
			}
			it.redelivered = it.redelivered || kill
			q.levels[i].pushBack(it)
			q.filled |= 1 << i
			q.count++
			q.bytes += it.size()
		}
	}
	q.armExpiry()
}
