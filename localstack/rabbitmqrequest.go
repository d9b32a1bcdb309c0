package localstack

import (
	"fmt"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// request decides on the next frame of the client.
func (r *rabbitLink) request(b []byte) (int, fate) {
	if !r.greeted {
		if len(b) < len(amqp.Protocol) {
			return 0, forward
		}
		r.greeted = true
		return len(amqp.Protocol), forward
	}
	f, size := rabbitFrame(b)
	if size <= 0 {
		return size, forward
	}
	if r.last { // of a delayed message, before the end
		r.toServer.write(b[:size])
		return size, dropAndCut
	}
	m := method(f)
	r.mu.Lock()
	if m == 0 {
		what := forward
		if ch := r.channels[f.Channel]; ch != nil {
			what = ch.sending.next(f)
			switch {
			case ch.clientCloses:
				what = drop
			case what == dropAndCut && ch.sending.open:
				what = forward
			case what == dropAndCut:
				r.last, what = true, flushFirst
			}
		}
		r.mu.Unlock()
		return size, what
	}
	defer r.mu.Unlock()
	ch := r.channel(f.Channel)
	if m == amqp.ChannelOpen {
		// A channel that is closed by us on both sides is open again when the
		// broker says so.
		ch.refused()
		*ch = rabbitChannel{consumers: map[string]string{}, brokerCloses: ch.brokerCloses}
	}
	if ch.clientCloses {
		return size, r.whileClosing(ch, f, m)
	}
	if r.held == nil && r.trace.on() {
		r.trace.line(fmt.Sprintf("%s channel=%d %q", m, f.Channel, r.entities(ch, m, f.Payload[4:])))
	}
	return size, r.strike(ch, f, m, b[:size])
}

// whileClosing decides on a method of a channel that the client is to close.
func (r *rabbitLink) whileClosing(ch *rabbitChannel, f amqp.Frame, m amqp.Method) fate {
	switch m {
	case amqp.ChannelCloseOk:
		ch.clientCloses = false
	case amqp.ChannelClose: // it had the same thought
		answer := methodFrame(f.Channel, amqp.ChannelCloseOk, nil)
		r.mu.Unlock()
		r.say(f.Channel, answer)
		r.mu.Lock()
	}
	return drop
}

// strike lets the armed faults have a request, whose method is m; mu is held.
func (r *rabbitLink) strike(ch *rabbitChannel, f amqp.Frame, m amqp.Method, frame []byte) fate {
	args := f.Payload[4:]
	inj := r.held
	if inj == nil && r.faults.Armed() != nil {
		inj = r.claim(ch, m, args)
	}
	if inj == nil {
		r.note(ch, m, args)
		return forward
	}
	kind := inj.Fault().Kind
	switch {
	case r.held == nil && (kind == Delay || kind == Error):
		// First what was sent before this request.
		r.held = inj
		return flushFirst
	case kind == Cut:
		return dropAndCut
	}
	r.held = nil
	switch kind {
	case LoseResponse:
		if m == amqp.BasicPublish {
			_, exchange, key := publishArgs(args)
			ch.confirms.lose(rabbitLost{inj, exchange, key})
			return forward
		}
		ch.lost, ch.lostFor = inj, m
		r.note(ch, m, args)
		return forward
	case LoseRequest:
		if m == amqp.BasicPublish {
			if ch.confirms != nil {
				ch.confirms.drop()
			}
			ch.sending.begin(drop)
		}
		return afterDrop(inj)
	case Error:
		return r.refuse(ch, f.Channel, m, inj)
	}
	return r.release(ch, m, args, inj, frame)
}

// claim finds the fault that concerns a request.
func (r *rabbitLink) claim(ch *rabbitChannel, m amqp.Method, args []byte) *Injection {
	api, ops := m.String(), rabbitOps(m)
	concerns := func(name string) bool { return r.concerns(ch, m, args, name) }
	if hasAnswer(ch, m, args) {
		return r.faults.Strike(ops, api, concerns)
	}
	// Without an answer there is none to lose.
	for _, i := range r.faults.Armed() {
		f := i.Fault()
		if f.Kind == LoseResponse || f.API != "" && f.API != api || f.Match != "" && !concerns(f.Match) {
			continue
		}
		if (f.Op.Covers(ops) || f.API != "" && f.Op == Any) && i.Take() {
			return i
		}
	}
	return nil
}

// release sends a delayed request on when its time has come; mu is held, but not
// while it waits.
func (r *rabbitLink) release(ch *rabbitChannel, m amqp.Method, args []byte, inj *Injection, frame []byte) fate {
	r.mu.Unlock()
	defer r.mu.Lock()
	t := time.NewTimer(inj.Fault().Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.done:
		return dropAndCut
	}
	r.mu.Lock()
	r.note(ch, m, args)
	cut := inj.Fault().Cut
	if cut && m == amqp.BasicPublish {
		ch.sending.begin(dropAndCut)
		cut = false
	}
	r.mu.Unlock()
	inj.Answered(true) // before the response can arrive
	r.toServer.write(frame)
	if cut {
		return dropAndCut
	}
	return drop
}

// refuse answers a request with an error; mu is held. What the client sent before
// has been passed on.
func (r *rabbitLink) refuse(ch *rabbitChannel, id uint16, m amqp.Method, inj *Injection) fate {
	code := inj.Fault().Code
	if m == amqp.BasicPublish {
		ch.sending.begin(drop)
		if ch.confirms != nil && code == 0 {
			answer := confirmFrame(id, amqp.BasicNack, ch.confirms.drop())
			r.mu.Unlock()
			r.say(id, answer)
			r.mu.Lock()
			return afterDrop(inj)
		}
	}
	if code == 0 {
		code = amqp.InternalError
	}
	hard := id == 0 || !amqp.Soft(code)
	if !hard {
		ch.clientCloses, ch.brokerCloses = true, true
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	if hard {
		r.say(id, closing(0, code, m))
		return dropAndCut
	}
	r.toServer.write(closing(id, amqp.ReplySuccess, 0))
	r.say(id, closing(id, code, m))
	return afterDrop(inj)
}

// say sends the client a frame of our own, behind the message that the broker is
// sending on that channel.
func (r *rabbitLink) say(id uint16, frame []byte) {
	r.answering.Lock()
	defer r.answering.Unlock()
	r.mu.Lock()
	if ch := r.channels[id]; ch != nil && ch.coming.open && ch.coming.what == forward {
		ch.behind = append(ch.behind, frame...)
		frame = nil
	}
	r.mu.Unlock()
	r.toClient.write(frame)
}

// note keeps what later frames will not tell; mu is held.
func (r *rabbitLink) note(ch *rabbitChannel, m amqp.Method, args []byte) {
	d := amqp.NewDecoder(args)
	switch m {
	case amqp.BasicPublish:
		if ch.confirms != nil {
			ch.confirms.sent++
		}
	case amqp.ConfirmSelect:
		if ch.confirms == nil {
			ch.confirms = newRabbitConfirms()
		}
	case amqp.QueueDeclare:
		d.Uint16()
		if name := string(d.Short()); name != "" {
			ch.queue = name
		}
	case amqp.QueueBind:
		d.Uint16()
		queue, exchange := ch.named(d.Short()), string(d.Short())
		r.bind(exchange, queue)
	case amqp.QueueUnbind:
		d.Uint16()
		queue, exchange := ch.named(d.Short()), string(d.Short())
		r.unbind(exchange, queue)
	case amqp.BasicConsume:
		d.Uint16()
		queue, tag := ch.named(d.Short()), string(d.Short())
		if tag == "" {
			ch.unnamed = append(ch.unnamed, queue)
		} else {
			ch.consumers[tag] = queue
		}
	case amqp.BasicGet:
		d.Uint16()
		ch.gets = append(ch.gets, ch.named(d.Short()))
	}
}

// named returns the queue of a request, which by an empty name means the last one
// that the channel has declared.
func (ch *rabbitChannel) named(queue []byte) string {
	if len(queue) == 0 {
		return ch.queue
	}
	return string(queue)
}

// rabbitOps says which classes of operations a request belongs to, as in package
// localstack/rabbitmq.
func rabbitOps(m amqp.Method) fault.Ops {
	switch m {
	case amqp.BasicPublish:
		return Publish.Ops()
	case amqp.BasicConsume, amqp.BasicGet:
		return Receive.Ops()
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject:
		return Settle.Ops()
	case amqp.TxCommit:
		return Publish.Ops() | Settle.Ops()
	case amqp.ExchangeDeclare, amqp.ExchangeDelete, amqp.ExchangeBind, amqp.ExchangeUnbind,
		amqp.QueueDeclare, amqp.QueueBind, amqp.QueueUnbind, amqp.QueuePurge, amqp.QueueDelete:
		return Admin.Ops()
	}
	return 0
}
