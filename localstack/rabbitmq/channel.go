package rabbitmq

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// channel is one session within a connection. The server's lock guards it.
type channel struct {
	c      *conn
	id     uint16
	opened bool
	closed bool // close was sent or answered: all but close-ok is ignored

	consumers map[string]*consumer
	order     []*consumer // as they were added
	nextTag   uint64
	unacked   unacked
	prefetch  int // of consumers to come; 0 is no limit
	global    int // of the channel; 0 is no limit
	inflight  int // unacked deliveries to consumers
	lastQueue string
	replies   *queue // of answers to this channel's requests

	publish  publish
	confirms confirms
	tx       *transaction

	muted  bool         // answers are lost, by a fault
	held   bool         // a fault holds the channel's requests back
	behind []amqp.Frame // what came meanwhile

	ticking *clock.Timer // of V3's consumer timeout
}

// newChannel opens a channel by its first frame.
func (c *conn) newChannel(f amqp.Frame) *channel {
	d := amqp.NewDecoder(f.Payload)
	m := amqp.Method(d.Uint32())
	if f.Type != amqp.FrameMethod || m != amqp.ChannelOpen {
		e := refuse(amqp.ChannelError, "expected 'channel.open'")
		e.method = m
		c.fail(e)
		return nil
	}
	if c.channelMax > 0 && len(c.channels) >= c.channelMax {
		c.fail(refuse(amqp.NotAllowed, "number of channels opened (%d) has reached the negotiated channel_max (%d)", len(c.channels), c.channelMax))
		return nil
	}
	ch := &channel{c: c, id: f.Channel, consumers: map[string]*consumer{}, nextTag: 1}
	ch.confirms.next = 1
	c.channels[f.Channel] = ch
	return ch
}

// sorted returns the connection's channels by their numbers, so that what it
// gives back has one order.
func (c *conn) sorted() []*channel {
	ids := slices.Sorted(maps.Keys(c.channels))
	list := make([]*channel, len(ids))
	for i, id := range ids {
		list[i] = c.channels[id]
	}
	return list
}

// frame handles one frame of the channel, or keeps it behind what is held back.
func (ch *channel) frame(f amqp.Frame) {
	if ch.held {
		f.Payload = slices.Clone(f.Payload)
		ch.behind = append(ch.behind, f)
		return
	}
	if ch.closed {
		ch.afterClose(f)
		return
	}
	var e *exception
	switch f.Type {
	case amqp.FrameMethod:
		e = ch.methodFrame(f.Payload)
	case amqp.FrameHeader:
		e = ch.headerFrame(f.Payload)
	case amqp.FrameBody:
		e = ch.bodyFrame(f.Payload)
	}
	if e != nil && e.code == amqp.UnexpectedFrame && ch.publish.stage != idle {
		e.method = amqp.BasicPublish
	}
	if e != nil {
		ch.fail(e)
	}
}

// afterClose ignores what was sent before the client knew of the close.
func (ch *channel) afterClose(f amqp.Frame) {
	if f.Type != amqp.FrameMethod {
		return
	}
	d := amqp.NewDecoder(f.Payload)
	switch amqp.Method(d.Uint32()) {
	case amqp.ChannelCloseOk:
		delete(ch.c.channels, ch.id)
	case amqp.ChannelClose:
		ch.reply(amqp.ChannelCloseOk)
	}
}

func (ch *channel) methodFrame(payload []byte) *exception {
	d := amqp.NewDecoder(payload)
	m := amqp.Method(d.Uint32())
	if ch.publish.stage != idle {
		return refuse(amqp.UnexpectedFrame, "expected content header for class 60, got non content header frame instead")
	}
	if m == amqp.BasicPublish { // its fault strikes when all of it is here
		return ch.beginPublish(&d)
	}
	if ch.c.s.tracing() {
		ch.traceMethod(m, d)
	}
	if ch.c.s.faults.Armed() != nil {
		return ch.methodUnderFault(m, payload)
	}
	return ch.method(m, payload)
}

// method carries out a request.
func (ch *channel) method(m amqp.Method, payload []byte) *exception {
	d := amqp.NewDecoder(payload)
	d.Uint32()
	fields := d.Rest()
	e := ch.dispatch(m, &d)
	if d.Err() != nil {
		e = undecodable(fields, d.Err())
	}
	if e != nil && e.method == 0 {
		e.method = m
	}
	return e
}

func (ch *channel) dispatch(m amqp.Method, d *amqp.Decoder) *exception {
	switch m {
	case amqp.ChannelOpen:
		return ch.open()
	case amqp.ChannelClose:
		ch.flushConfirms()
		ch.teardown()
		delete(ch.c.channels, ch.id)
		ch.reply(amqp.ChannelCloseOk)
	case amqp.ChannelCloseOk, amqp.ChannelFlowOk, amqp.BasicCancelOk:
	case amqp.ChannelFlow:
		return ch.flow(d)
	case amqp.AccessRequest:
		ch.send(amqp.AccessRequestOk, func(b []byte) []byte { return append(b, 0, 1) })
	case amqp.ExchangeDeclare:
		return ch.exchangeDeclare(d)
	case amqp.ExchangeDelete:
		return ch.exchangeDelete(d)
	case amqp.ExchangeBind:
		return ch.exchangeBind(d, true)
	case amqp.ExchangeUnbind:
		return ch.exchangeBind(d, false)
	case amqp.QueueDeclare:
		return ch.queueDeclare(d)
	case amqp.QueueBind:
		return ch.queueBind(d)
	case amqp.QueueUnbind:
		return ch.queueUnbind(d)
	case amqp.QueuePurge:
		return ch.queuePurge(d)
	case amqp.QueueDelete:
		return ch.queueDelete(d)
	case amqp.BasicQos:
		return ch.qos(d)
	case amqp.BasicConsume:
		return ch.consume(d)
	case amqp.BasicCancel:
		return ch.cancel(d)
	case amqp.BasicGet:
		return ch.get(d)
	case amqp.BasicAck:
		return ch.ack(d)
	case amqp.BasicNack:
		return ch.nack(d)
	case amqp.BasicReject:
		return ch.reject(d)
	case amqp.BasicRecover, amqp.BasicRecoverAsync:
		return ch.recover(m, d)
	case amqp.ConfirmSelect:
		return ch.confirmSelect(d)
	case amqp.TxSelect, amqp.TxCommit, amqp.TxRollback:
		return ch.txMethod(m)
	default:
		return &exception{} // RabbitMQ hangs up on who speaks another language
	}
	return nil
}

func (ch *channel) open() *exception {
	if ch.opened {
		return refuse(amqp.ChannelError, "second 'channel.open' seen")
	}
	ch.opened = true
	ch.startTicking()
	ch.send(amqp.ChannelOpenOk, func(b []byte) []byte { return append(b, 0, 0, 0, 0) })
	return nil
}

func (ch *channel) flow(d *amqp.Decoder) *exception {
	if !d.Bit() && d.Err() == nil {
		return refuse(amqp.NotImplemented, "active=false")
	}
	ch.send(amqp.ChannelFlowOk, func(b []byte) []byte { return append(b, 1) })
	return nil
}

// send sends a method whose fields fields appends.
func (ch *channel) send(m amqp.Method, fields func(b []byte) []byte) {
	if !ch.muted {
		ch.c.method(ch.id, m, fields)
	}
}

// reply sends a method without fields.
func (ch *channel) reply(m amqp.Method) { ch.send(m, nil) }

// fail ends the channel, or the connection where the code says so.
func (ch *channel) fail(e *exception) {
	if ch.closed {
		return
	}
	if !amqp.Soft(e.code) {
		ch.c.fail(e)
		return
	}
	ch.flushConfirms()
	ch.send(amqp.ChannelClose, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, uint16(e.code))
		b = amqp.AppendShort(b, e.text)
		return binary.BigEndian.AppendUint32(b, uint32(e.method))
	})
	ch.teardown()
}

// teardown gives back what the channel holds: its consumers first, so that none
// of them gets its own deliveries again, then its unsettled deliveries, in their
// order (RMQ-F-12). It may be called more than once.
func (ch *channel) teardown() {
	if ch.closed {
		return
	}
	ch.closed = true
	ch.publish = publish{}
	if ch.tx != nil {
		ch.rollback()
	}
	ch.behind = nil
	if ch.ticking != nil {
		ch.ticking.Stop()
	}
	consumers := ch.order
	ch.detach()
	ch.requeueAll(failed)
	for _, c := range consumers {
		c.q.consumerGone()
	}
}

// suspend keeps the channel's consumers from getting any more.
func (ch *channel) suspend() {
	for _, c := range ch.order {
		c.suspended = true
	}
}

// detach takes the channel's consumers from their queues.
func (ch *channel) detach() {
	for _, c := range ch.order {
		c.q.removeConsumer(c)
	}
	ch.order, ch.consumers = nil, nil
}

// pump hands messages to all consumers of the channel that can take some.
func (ch *channel) pump() {
	for i := 0; i < len(ch.order); i++ {
		ch.order[i].q.pump()
	}
}
