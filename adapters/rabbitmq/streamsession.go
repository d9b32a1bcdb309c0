package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// consumerUpdate is the broker's word that the receiver's turn begins or ends.
type consumerUpdate struct {
	id     uint32 // to be answered
	active bool
}

// run holds a session with the broker until the receiver is closed.
func (r *streamReceiver) run() {
	defer close(r.done)
	var wait streamBackoff
	said := ""
	for r.life.Err() == nil {
		begun := time.Now()
		err := r.session()
		r.endPart()
		if r.life.Err() != nil {
			return
		}
		if time.Since(begun) > time.Second { // it worked for a while
			wait, said = streamBackoff{}, ""
		}
		if why := err.Error(); why != said {
			said = why
			r.conn.log.Warn("rabbitmq: no connection for the receiver", "subscription", r.name, "err", err)
		}
		if lasting(err) {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
			r.signal()
		}
		_ = wait.sleep(r.life)
	}
}

// session subscribes and serves the broker's calls until the link is lost.
func (r *streamReceiver) session() error {
	l, err := r.conn.linkFor(r.life, r.stream, r)
	if err != nil {
		return err
	}
	defer func() {
		r.mu.Lock()
		bye := r.bye
		r.mu.Unlock()
		l.close(bye)
		for len(r.updates) > 0 {
			<-r.updates // of the old link
		}
	}()
	start, err := r.begin(l)
	if err != nil {
		return err
	}
	turns := l.since(3, 11)
	props := []string{"name", r.ref}
	if turns {
		props = append(props, "single-active-consumer", "true")
	}
	if _, err = l.call(r.life, scSubscribe, nil, func(b []byte) []byte {
		b = putStr(append(b, subscriptionID), r.stream)
		return putProps(put16(putSpec(b, start), 0), props...)
	}); err != nil {
		return err
	}
	if !turns {
		r.warnOfOthers()
		r.beginPart(l, start)
	}
	for {
		select {
		case u := <-r.updates:
			if err := r.turn(l, u); err != nil {
				return err
			}
		case <-l.dead:
			return l.why()
		case <-r.life.Done():
			return context.Cause(r.life)
		}
	}
}

// warnOfOthers says once that other receivers of the name would share nothing with
// this one.
func (r *streamReceiver) warnOfOthers() {
	if r.warned {
		return
	}
	r.warned = true
	r.conn.log.Warn("rabbitmq: before RabbitMQ 3.11 receivers of a stream take no turns: a second one of this subscription gets every message too",
		"subscription", r.name)
}

// turn answers the broker's call.
func (r *streamReceiver) turn(l *streamLink, u consumerUpdate) error {
	spec := func(b []byte) []byte { return put16(b, 0) } // none
	if u.active {
		// The one before may have stored an offset since we asked.
		start, err := r.begin(l)
		if err != nil {
			return err
		}
		r.beginPart(l, start)
		spec = func(b []byte) []byte { return putSpec(b, start) }
	} else {
		r.endPart()
	}
	return l.send(r.life, putFrame(nil, scConsumerUpdate|scResponse, func(b []byte) []byte {
		return spec(put16(put32(b, u.id), uint16(codeOK)))
	}))
}

// begin asks for the stored offset and returns where to begin.
func (r *streamReceiver) begin(l *streamLink) (start uint64, err error) {
	start, err = r.query(r.life, l, nil)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.stored = start
	r.sessions++
	close(r.news)
	r.news = make(chan struct{})
	r.err = nil
	r.mu.Unlock()
	if r.from != nil {
		if at, ok := r.from(r.stream); ok {
			start = at.Offset
		}
	}
	return start, nil
}

// query asks for the stored offset, behind the frames before, and returns the
// one after it: the first that isn't settled.
func (r *streamReceiver) query(ctx context.Context, l *streamLink, before []byte) (uint64, error) {
	c, err := l.call(ctx, scQueryOffset, before, func(b []byte) []byte { return putStr(putStr(b, r.ref), r.stream) })
	if errors.Is(err, codeNoOffset) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	last := c.u64()
	if c.bad {
		return 0, errFrame
	}
	return last + 1, nil
}

// beginPart makes the receiver's turn begin.
func (r *streamReceiver) beginPart(l *streamLink, start uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part = &streamPart{link: l, start: start, committed: r.stored, session: r.sessions}
	r.credit = 0
	r.signal()
}

// endPart ends it: what is not settled by now is given back.
func (r *streamReceiver) endPart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.part
	if p == nil {
		return
	}
	r.part = nil
	p.ended = true
	for _, e := range p.queue {
		// One that is settled may still be asked about; the others are somebody
		// else's now.
		if !e.settled {
			e.epoch.End()
		}
	}
	r.waiting -= p.waiting
	r.ready, r.urgent, r.delayed = streamQueue{}, streamQueue{}, nil
	r.signal()
}

// frame takes what the broker says, as streamHandler.
func (r *streamReceiver) frame(l *streamLink, key uint16, body []byte) error {
	c := streamCursor{b: body}
	switch key {
	case scDeliver:
		return r.deliver(l, c)
	case scConsumerUpdate:
		u := consumerUpdate{id: c.u32()}
		c.u8()
		u.active = c.u8() == 1
		select {
		case r.updates <- u:
		default:
			return fmt.Errorf("%w: too many consumer updates", errFrame)
		}
	case scCredit | scResponse:
		// While it isn't our turn the broker keeps the credit and says so.
		if code := streamCode(c.u16()); code == codeNoSubscription {
			return code
		}
	case scMetadataUpdate:
		code := streamCode(c.u16())
		if c.str() == r.stream {
			return code // another leader, or none
		}
	}
	if c.bad {
		return errFrame
	}
	return nil
}

// deliver takes a chunk.
func (r *streamReceiver) deliver(l *streamLink, c streamCursor) error {
	c.u8() // the subscription
	c.u8() // magic and version
	kind := c.u8()
	c.u16() // entries
	records := int(c.u32())
	c.u64() // time
	c.u64() // epoch
	first := c.u64()
	sum := c.u32()
	size := int(c.u32())
	c.u64() // trailer and what is reserved
	data := c.take(size)
	if c.bad {
		return errFrame
	}
	if kind != 0 {
		return nil
	}
	if crc32.ChecksumIEEE(data) != sum {
		return fmt.Errorf("%w: the chunk at %d has a bad checksum", errFrame, first)
	}
	p := &chunkReader{next: first}
	if err := p.read(data, records, false); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	part := r.part
	if part == nil || part.link != l {
		return nil // after our turn
	}
	r.credit = max(r.credit-1, 0)
	r.perChunk = max(1, (min(r.perChunk, 8*records)+records)/2)
	entries := p.entries
	for len(entries) > 0 && entries[0].offset < part.start {
		entries = entries[1:] // the chunk begins before where we do
	}
	part.grow(len(entries))
	r.ready.grow(len(entries))
	for i := range entries {
		e := &entries[i]
		e.part = part
		part.queue = append(part.queue, e)
		r.ready.push(e)
	}
	r.signal()
	return nil
}
