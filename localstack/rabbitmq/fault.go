package rabbitmq

import (
	"slices"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// classes says which classes of operations a request belongs to. What keeps a
// connection or a channel up belongs to none: it can be struck by its name alone.
func classes(m amqp.Method) fault.Ops {
	switch m {
	case amqp.BasicPublish:
		return fault.Publish.Ops()
	case amqp.BasicConsume, amqp.BasicGet:
		return fault.Receive.Ops()
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject:
		return fault.Settle.Ops()
	case amqp.TxCommit:
		return fault.Publish.Ops() | fault.Settle.Ops()
	case amqp.ExchangeDeclare, amqp.ExchangeDelete, amqp.ExchangeBind, amqp.ExchangeUnbind,
		amqp.QueueDeclare, amqp.QueueBind, amqp.QueueUnbind, amqp.QueuePurge, amqp.QueueDelete:
		return fault.Admin.Ops()
	}
	return 0
}

// answered says whether a request has an answer that could be lost.
func answered(m amqp.Method) bool {
	switch m {
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject, amqp.BasicRecoverAsync,
		amqp.ChannelCloseOk, amqp.ConnectionCloseOk, amqp.ConnectionTuneOk, amqp.ChannelFlowOk, amqp.BasicCancelOk:
		return false
	}
	return true
}

// methodUnderFault carries out a request that a fault may strike.
func (ch *channel) methodUnderFault(m amqp.Method, payload []byte) *exception {
	d := amqp.NewDecoder(payload)
	d.Uint32()
	names := ch.entities(m, d)
	inj := ch.c.strikeAnswerable(answered(m), classes(m), m.String(), func(name string) bool { return slices.Contains(names, name) })
	if inj == nil {
		return ch.method(m, payload)
	}
	payload = slices.Clone(payload)
	return ch.suffer(inj, m, func() *exception { return ch.method(m, payload) })
}

// strikeAnswerable leaves the loss of an answer to requests that have one.
func (c *conn) strikeAnswerable(hasAnswer bool, ops fault.Ops, api string, concerns func(string) bool) *fault.Injection {
	if hasAnswer {
		return c.s.faults.Strike(ops, api, concerns)
	}
	for _, i := range c.s.faults.Armed() {
		f := i.Fault()
		if f.Kind == fault.LoseResponse || f.API != "" && f.API != api || f.Match != "" && !concerns(f.Match) {
			continue
		}
		if (f.Op.Covers(ops) || f.API != "" && f.Op == fault.Any) && i.Take() {
			return i
		}
	}
	return nil
}

// suffer carries out what a fault does to a request of the channel.
func (ch *channel) suffer(inj *fault.Injection, m amqp.Method, apply func() *exception) *exception {
	f := inj.Fault()
	var e *exception
	switch f.Kind {
	case fault.LoseResponse:
		ch.muted = true
		lost := apply()
		if lost != nil { // the close is lost too
			ch.c.muted = true
			ch.fail(lost)
			ch.c.muted = false
		}
		ch.muted = false
		inj.Answered(lost == nil)
	case fault.Delay:
		ch.hold(inj, apply)
		return nil
	case fault.Cut:
		ch.c.cut()
		return nil
	case fault.Error:
		e = refuse(faultCode(f), "injected fault")
		e.method = m
	}
	if f.Cut {
		if e != nil {
			ch.fail(e)
		}
		ch.c.cutAfterWords()
		return nil
	}
	return e
}

// faultCode is the code of an injected error: by default that of a broker which
// has failed inside.
func faultCode(f fault.Fault) int {
	if f.Code != 0 {
		return f.Code
	}
	return amqp.InternalError
}

// cutAfterWords closes the connection when it has said what it had to say.
func (c *conn) cutAfterWords() {
	c.flushConfirms()
	c.teardown()
	c.state = ended
	c.out.shutdown()
}

// hold keeps a request and all that comes behind it on the channel until the
// fault's delay is over.
func (ch *channel) hold(inj *fault.Injection, apply func() *exception) {
	s := ch.c.s
	ch.held = true
	s.clock.AfterFunc(inj.Fault().Delay, func() {
		s.enter(func() {
			if ch.closed || ch.c.state == ended {
				return
			}
			ch.held = false
			e := apply()
			inj.Answered(true)
			if e != nil {
				ch.fail(e)
			}
			if inj.Fault().Cut {
				ch.c.cutAfterWords()
				return
			}
			for !ch.held && len(ch.behind) > 0 {
				f := ch.behind[0]
				ch.behind = ch.behind[1:]
				ch.frame(f)
			}
			ch.c.flushConfirms()
		})
	})
}

// publishUnderFault is accept for a message that a fault may strike.
func (ch *channel) publishUnderFault(m *message, mandatory, immediate bool, size uint64) *exception {
	var queues []*queue
	concerns := func(name string) bool {
		if name == m.exchange || name == m.key {
			return true
		}
		if x := ch.c.vhost.exchanges[m.exchange]; x != nil && queues == nil {
			queues = m.queues(x, []byte(m.key))
		}
		return slices.ContainsFunc(queues, func(q *queue) bool { return q.name == name })
	}
	api := amqp.BasicPublish.String()
	inj := ch.c.strikeAnswerable(ch.confirms.on, fault.Publish.Ops(), api, concerns)
	if inj == nil {
		return ch.accept(m, mandatory, immediate, size, nil)
	}
	f := inj.Fault()
	var e *exception
	switch f.Kind {
	case fault.LoseRequest:
		if ch.confirms.on { // the client has counted it
			ch.confirms.withhold(ch.confirms.next)
			ch.confirms.next++
		}
	case fault.LoseResponse:
		if e = ch.accept(m, mandatory, immediate, size, inj); e != nil {
			inj.Answered(false)
		}
	case fault.Error:
		if ch.confirms.on && f.Code == 0 {
			ch.confirm(ch.confirms.next, false)
			ch.confirms.next++
			break
		}
		e = refuse(faultCode(f), "injected fault")
	default:
		return ch.suffer(inj, amqp.BasicPublish, func() *exception { return ch.accept(m, mandatory, immediate, size, nil) })
	}
	if f.Cut {
		if e != nil && f.Kind == fault.Error {
			ch.fail(e)
		}
		ch.c.cutAfterWords()
		return nil
	}
	return e
}

// loseHandout says whether a message that is about to leave is lost on its way.
func (ch *channel) loseHandout(m amqp.Method, q *queue, msg *message) bool {
	inj := ch.c.s.faults.StrikeHandout(m.String(), func(name string) bool {
		return name == q.name || name == msg.exchange || name == msg.key
	})
	if inj == nil {
		return false
	}
	inj.Answered(true)
	if inj.Fault().Cut {
		ch.c.abort() // the reader gives back what the connection holds
	}
	return true
}

// suffer carries out what a fault does to a request of the connection itself, and
// is true when that was all.
func (c *conn) suffer(inj *fault.Injection, apply func()) {
	f := inj.Fault()
	switch f.Kind {
	case fault.LoseResponse:
		c.muted = true
		apply()
		c.muted = false
		inj.Answered(true)
	case fault.Delay:
		c.s.clock.AfterFunc(f.Delay, func() {
			c.s.enter(func() {
				if c.state != ended {
					apply()
					inj.Answered(true)
				}
				if f.Cut {
					c.cut()
				}
			})
		})
		return
	case fault.Cut:
		c.cut()
		return
	case fault.Error:
		if e := refuse(faultCode(f), "injected fault"); c.state < opening {
			c.sendClose(e)
			c.cutAfterWords()
		} else {
			c.fail(e)
		}
	}
	if f.Cut {
		c.cutAfterWords()
	}
}
