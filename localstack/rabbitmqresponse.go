package localstack

import (
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// responses passes the broker's frames on to the client until either ends. It is
// pump, but that it may put frames in the place of others, and that what it has
// looked at is written before anybody else may write to the client.
func (r *rabbitLink) responses() {
	buf := make([]byte, pumpBuffer)
	var other []byte // what goes on instead of a chunk that is changed
	for have := 0; ; {
		n, err := r.server.Read(buf[have:])
		have += n
		r.answering.Lock()
		r.mu.Lock()
		pos, changed, ends, what := 0, false, false, forward
		for pos < have && what != dropAndCut {
			f, size := rabbitFrame(buf[pos:have])
			if size <= 0 {
				ends = size < 0
				break
			}
			var instead []byte
			instead, what = r.response(f)
			if (what != forward || instead != nil) && !changed {
				other, changed = append(other[:0], buf[:pos]...), true
			}
			if changed && what == forward {
				other = append(other, buf[pos:pos+size]...)
			}
			other = append(other, instead...)
			pos += size
		}
		r.mu.Unlock()
		out := buf[:pos]
		if changed {
			out = other
		}
		if ends { // not the protocol: what came is passed on as it is
			out = append(out[:len(out):len(out)], buf[pos:have]...)
		}
		ok := r.toClient.write(out)
		r.answering.Unlock()
		if changed {
			other = other[:0]
		}
		if what == dropAndCut {
			r.cut()
			return
		}
		if !ok || ends || err != nil {
			return
		}
		have = copy(buf, buf[pos:have])
		if have == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// response decides on a frame of the broker, and returns what of ours goes on
// behind it, or in its place where it does not go on itself; mu is held.
func (r *rabbitLink) response(f amqp.Frame) (ours []byte, what fate) {
	m := method(f)
	if m == 0 {
		ch := r.channels[f.Channel]
		if ch == nil {
			return nil, forward
		}
		what = ch.coming.next(f)
		if !ch.coming.open {
			ours, ch.behind = ch.behind, nil
		}
		return ours, what
	}
	ch, args := r.channel(f.Channel), f.Payload[4:]
	if ch.brokerCloses {
		return nil, r.lastWords(ch, f, m)
	}
	if ch.lost != nil && (answers(m, ch.lostFor) || m == amqp.ChannelClose || m == amqp.ConnectionClose) {
		lost := ch.lost
		ch.lost = nil
		r.learn(ch, m, args)
		lost.Answered(answers(m, ch.lostFor))
		if m == amqp.BasicGetOk {
			ch.coming.begin(drop)
		}
		return nil, afterDrop(lost)
	}
	switch m {
	case amqp.BasicAck, amqp.BasicNack:
		if ch.confirms == nil {
			return nil, forward
		}
		instead, same, cut := ch.confirms.confirm(f.Channel, m, args)
		switch {
		case cut:
			return instead, dropAndCut
		case same:
			return nil, forward
		}
		return instead, drop
	case amqp.BasicReturn:
		what = forward
		if ch.confirms != nil && ch.confirms.returned(args) {
			what = drop
		}
		ch.coming.begin(what)
		return nil, what
	case amqp.BasicDeliver, amqp.BasicGetOk:
		what = r.handout(ch, m, args)
		ch.coming.begin(what)
		return nil, what
	case amqp.ChannelClose:
		ch.refused()
	case amqp.ConnectionClose:
		for _, ch := range r.channels {
			ch.refused()
		}
	}
	r.learn(ch, m, args)
	return nil, forward
}

// refused tells the faults that wait for an answer that none will come.
func (ch *rabbitChannel) refused() {
	if ch.confirms != nil {
		ch.confirms.refused()
	}
	if ch.lost != nil {
		ch.lost.Answered(false)
		ch.lost = nil
	}
}

// lastWords decides on what the broker says on a channel that we have asked it to
// close: the client hears nothing of it.
func (r *rabbitLink) lastWords(ch *rabbitChannel, f amqp.Frame, m amqp.Method) fate {
	switch m {
	case amqp.ChannelCloseOk:
		ch.brokerCloses = false
		ch.refused()
	case amqp.ChannelClose: // it had the same thought; it waits for an answer
		answer := methodFrame(f.Channel, amqp.ChannelCloseOk, nil)
		r.wg.Go(func() { r.toServer.write(answer) }) // not while mu is held
	case amqp.BasicAck, amqp.BasicNack:
		if ch.confirms != nil {
			ch.confirms.confirm(f.Channel, m, f.Payload[4:])
		}
	case amqp.BasicDeliver, amqp.BasicGetOk, amqp.BasicReturn:
		ch.coming.begin(drop)
	}
	return drop
}

// handout decides on a message for the client.
func (r *rabbitLink) handout(ch *rabbitChannel, m amqp.Method, args []byte) fate {
	d := amqp.NewDecoder(args)
	var queue string
	if m == amqp.BasicDeliver {
		queue = ch.consumers[string(d.Short())]
	} else if len(ch.gets) > 0 {
		queue, ch.gets = ch.gets[0], ch.gets[1:]
	}
	ch.delivered(d.Uint64(), queue)
	if r.faults.Armed() == nil {
		return forward
	}
	d.Uint8() // redelivered
	exchange, key := string(d.Short()), string(d.Short())
	i := r.faults.StrikeHandout(m.String(), func(name string) bool {
		return name == queue || name == exchange || name == key
	})
	if i == nil {
		return forward
	}
	i.Answered(true)
	return afterDrop(i)
}

// learn keeps what the broker's answers tell; mu is held.
func (r *rabbitLink) learn(ch *rabbitChannel, m amqp.Method, args []byte) {
	d := amqp.NewDecoder(args)
	switch m {
	case amqp.QueueDeclareOk:
		ch.queue = string(d.Short())
	case amqp.BasicConsumeOk:
		tag := string(d.Short())
		if _, named := ch.consumers[tag]; !named && len(ch.unnamed) > 0 {
			ch.consumers[tag], ch.unnamed = ch.unnamed[0], ch.unnamed[1:]
		}
	case amqp.BasicGetEmpty:
		if len(ch.gets) > 0 {
			ch.gets = ch.gets[1:]
		}
	}
}
