package stream

import (
	"fmt"
	"slices"
)

// subscription is one that a connection has.
type subscription struct {
	conn   *conn
	id     uint8
	stream *stream
	name   string
	group  *group // nil: not a single active consumer
	start  spec
	active bool // gets chunks
	next   uint64
	credit int
}

func (c *conn) decodeSubscribe(f *frame) act {
	id, name := f.c.u8(), f.c.str()
	start, credit := f.c.spec(), f.c.u16()
	var props map[string]string
	if len(f.c.b) > 0 {
		props = f.c.props()
	}
	f.stream, f.what = name, props["name"]
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		sac := props["single-active-consumer"] == "true" && c.server.since(3, 11)
		code := uint16(codeOK)
		switch {
		case s == nil:
			code = codeNoStream
		case c.subs[id] != nil:
			code = codeSubscriptionExists
		case start.kind == specNone, sac && props["name"] == "", len(props["name"]) > maxName:
			code = codePrecondition
		}
		c.answer(f, code, nil)
		if code != codeOK {
			return false
		}
		sub := &subscription{conn: c, id: id, stream: s, name: props["name"], start: start, credit: int(credit)}
		c.subs[id] = sub
		c.order = append(c.order, sub)
		if sac {
			c.server.join(sub)
		} else {
			sub.begin(start)
		}
		return true
	}
}

// begin lets chunks go to the subscription.
func (sub *subscription) begin(p spec) {
	sub.next = sub.stream.find(p)
	sub.active = true
	sub.stream.subs[sub] = struct{}{}
	sub.conn.wake()
}

func (c *conn) decodeUnsubscribe(f *frame) act {
	id := f.c.u8()
	return func() bool {
		if c.subs[id] == nil {
			c.answer(f, codeNoSubscription, nil)
			return false
		}
		c.server.unsubscribe(c, id)
		c.answer(f, codeOK, nil)
		return true
	}
}

// unsubscribe takes a subscription away and lets the next of its group have its
// turn.
func (s *Server) unsubscribe(c *conn, id uint8) {
	sub := c.subs[id]
	delete(c.subs, id)
	c.order = slices.DeleteFunc(c.order, func(o *subscription) bool { return o == sub })
	delete(sub.stream.subs, sub)
	for corr, o := range c.updates {
		if o == sub {
			delete(c.updates, corr)
		}
	}
	if sub.group != nil {
		s.leave(sub)
	}
}

func (c *conn) decodeCredit(f *frame) act {
	whole := f.c
	id, credit := f.c.u8(), f.c.u16()
	if f.c.bad {
		return nil
	}
	f.c = whole // for fail
	c.server.mu.Lock()
	if sub := c.subs[id]; sub != nil {
		f.stream = sub.stream.key.name
	}
	c.server.mu.Unlock()
	return func() bool {
		sub := c.subs[id]
		code := uint16(codeNoSubscription)
		if sub != nil {
			sub.credit = min(sub.credit+int(credit), 1<<20)
			if sub.active {
				return true
			}
			// One that isn't active keeps the credit, with an error (RMS-F-16).
			code = codePrecondition
		}
		c.send(cmdCredit|responseBit, func(b []byte) []byte { return append(put16(b, code), id) })
		return sub != nil
	}
}

// deliver appends chunks for the subscriptions that have credit, and reports
// whether there are more. The server's lock is held.
func (c *conn) deliver(out *[]byte) (more bool) {
	if c.closing {
		return false
	}
	limit := len(*out) + maxFlight
	for again := true; again; {
		again = false
		for _, sub := range c.order {
			if !sub.active || sub.credit == 0 {
				continue
			}
			ch := sub.stream.from(sub.next)
			if ch == nil {
				continue
			}
			if len(*out) > limit {
				return true
			}
			sub.credit--
			sub.next = ch.first + uint64(ch.records)
			i := c.server.faults.StrikeHandout(names[cmdDeliver], func(match string) bool { return match == sub.stream.key.name })
			if i != nil {
				i.Answered(true)
				c.closing = true // the writer cuts, behind what is before
				return false
			}
			*out = c.putChunk(*out, sub, ch)
			if trace := c.server.opts.tracer(); trace != nil {
				trace(fmt.Sprintf("%s %s %d records from %d", names[cmdDeliver], sub.stream.key.name, ch.records, ch.first))
			}
			again = true
		}
	}
	return false
}

func (c *conn) putChunk(b []byte, sub *subscription, ch *chunk) []byte {
	at := len(b)
	b = begin(b, cmdDeliver)
	b = append(b, sub.id)
	if c.deliverV2 {
		b[at+7] = 2
		last, _ := sub.stream.last()
		b = put64(b[:at+9], last)
	}
	b = append(b, 0x50, 0) // magic and version, kind
	b = put16(b, ch.entries)
	b = put32(b, ch.records)
	b = put64(b, uint64(ch.time))
	b = put64(b, 1) // epoch
	b = put64(b, ch.first)
	b = put32(b, ch.crc)
	b = put32(b, uint32(len(ch.data)))
	b = put32(b, 0) // trailer
	b = put32(b, 0) // reserved
	return end(append(b, ch.data...), at)
}

func (c *conn) decodeStoreOffset(f *frame) act {
	ref, name, offset := f.c.str(), f.c.str(), f.c.u64()
	f.stream, f.what = name, fmt.Sprintf("%s %d", ref, offset)
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		if s == nil || len(ref) > maxName {
			return false
		}
		s.track(c.server.clock.Now(), ref, offset)
		return true
	}
}

func (c *conn) decodeQueryOffset(f *frame) act {
	ref, name := f.c.str(), f.c.str()
	f.stream, f.what = name, ref
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		code, offset := uint16(codeOK), uint64(0)
		if s == nil {
			code = codeNoStream
		} else if at, known := s.offsets[ref]; known {
			offset = at
		} else {
			code = codeNoOffset
		}
		c.answer(f, code, func(b []byte) []byte { return put64(b, offset) })
		return code == codeOK || code == codeNoOffset
	}
}
