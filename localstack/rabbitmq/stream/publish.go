package stream

import (
	"encoding/binary"
	"fmt"
)

// publisher is one that a connection has declared.
type publisher struct {
	stream *stream
	ref    string
}

func (c *conn) decodeDeclare(f *frame) act {
	id, ref, name := f.c.u8(), f.c.str(), f.c.str()
	f.stream, f.what = name, ref
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		code := uint16(codeOK)
		switch {
		case len(ref) > maxName || c.publishers[id] != nil || c.declared(name, ref):
			code = codePrecondition
		case s == nil:
			code = codeNoStream
		default:
			c.publishers[id] = &publisher{stream: s, ref: ref}
		}
		c.answer(f, code, nil)
		return code == codeOK
	}
}

// declared reports whether the connection has a publisher of that reference.
func (c *conn) declared(name, ref string) bool {
	for _, p := range c.publishers {
		if ref != "" && p.ref == ref && p.stream.key.name == name {
			return true
		}
	}
	return false
}

func (c *conn) decodeDeletePublisher(f *frame) act {
	id := f.c.u8()
	return func() bool {
		if c.publishers[id] == nil {
			c.answer(f, codeNoPublisher, nil)
			return false
		}
		delete(c.publishers, id)
		c.answer(f, codeOK, nil)
		return true
	}
}

func (c *conn) decodeSequence(f *frame) act {
	ref, name := f.c.str(), f.c.str()
	f.stream, f.what = name, ref
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		code, id := uint16(codeOK), uint64(0)
		if s == nil {
			code = codeNoStream
		} else {
			id = s.sequences[ref].id
		}
		c.answer(f, code, func(b []byte) []byte { return put64(b, id) })
		return code == codeOK
	}
}

// entry is one of a Publish frame: a message, or a batch of several in one.
type entry struct {
	id      uint64
	records uint32
	data    []byte // as in a chunk, in the frame's buffer
}

// publishFrame reads a Publish frame from its beginning.
func publishFrame(f *frame) (publisher uint8, entries []entry) {
	c := &f.c
	publisher = c.u8()
	n := c.u32()
	entries = make([]entry, 0, min(int(n), len(c.b)/12))
	for ; n > 0 && !c.bad; n-- {
		e := entry{id: c.u64(), records: 1}
		if f.version >= 2 {
			c.raw() // the filter's value
		}
		from := c.b
		size := 0
		if len(from) > 0 && from[0]&0x80 != 0 {
			c.u8()
			e.records = uint32(c.u16())
			c.u32() // uncompressed
			c.bytes()
			if e.records == 0 {
				c.bad = true
			}
		} else {
			c.bytes()
		}
		if !c.bad {
			size = len(from) - len(c.b)
			e.data = from[:size]
			entries = append(entries, e)
		}
	}
	return publisher, entries
}

func (c *conn) decodePublish(f *frame) act {
	whole := f.c
	id, entries := publishFrame(f)
	if f.c.bad || len(f.c.b) > 0 {
		f.c.bad = true
		return nil
	}
	f.c = whole // for fail
	c.server.mu.Lock()
	p := c.publishers[id]
	c.server.mu.Unlock()
	if p != nil {
		f.stream = p.stream.key.name
	}
	if len(entries) > 0 && c.server.opts.tracer() != nil {
		f.what = fmt.Sprintf("%d entries, IDs %d to %d", len(entries), entries[0].id, entries[len(entries)-1].id)
	}
	return func() bool { return c.publish(id, entries) }
}

// publish stores entries and confirms all of them, also those that it drops
// (RMS-F-02, RMS-F-03).
func (c *conn) publish(id uint8, entries []entry) bool {
	p := c.publishers[id]
	if p == nil {
		c.publishError(id, codeNoPublisher, entries)
		return false
	}
	s := p.stream
	now := c.server.clock.Now()
	fresh, size := 0, 0
	for i := range entries {
		if p.ref != "" {
			if s.duplicate(p.ref, entries[i].id) {
				continue
			}
			s.sequences[p.ref] = sequence{id: entries[i].id, chunk: s.next}
		}
		size += len(entries[i].data)
		entries[fresh], entries[i] = entries[i], entries[fresh]
		fresh++
	}
	// The swaps keep the order of the fresh ones, which are all before the others.
	for rest := entries[:fresh]; len(rest) > 0; {
		n := min(len(rest), maxEntries)
		data := make([]byte, 0, size)
		records := uint32(0)
		for i := range n {
			data = append(data, rest[i].data...)
			records += rest[i].records
		}
		s.append(now, n, records, data)
		rest, size = rest[n:], size-len(data)
	}
	c.send(cmdPublishConfirm, func(b []byte) []byte {
		b = put32(append(b, id), uint32(len(entries)))
		for i := range entries {
			b = put64(b, entries[i].id)
		}
		return b
	})
	return true
}

func (c *conn) publishError(id uint8, code uint16, entries []entry) {
	c.send(cmdPublishError, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(append(b, id), uint32(len(entries)))
		for i := range entries {
			b = put16(put64(b, entries[i].id), code)
		}
		return b
	})
}
