package rabbitmq

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
)

// sentMessage is one that has an ID and no confirm, by ascending ID.
type sentMessage struct {
	id   uint64
	call *streamCall // nil: its caller gave up
	at   int
	out  bool   // on the present link
	key  string // of its orphan
}

// orphan is a message whose caller gave up before the broker's answer. A retry
// of it goes out under its ID, which makes the broker drop or store it, as is
// right; unless it is lost, and a higher ID may have gone out.
type orphan struct {
	id        uint64
	confirmed bool
	lost      bool // surely not in the log: a retry is a new message
}

// maxOrphans bounds what is remembered of messages without an answer. Beyond it
// the oldest is forgotten, and a retry of it is a new message.
const maxOrphans = 65536

// The states that land waits for.
type sendState uint8

const (
	answerAwaited sendState = iota
	callAnswered            // the leader's own
	frameDue                // something waits, and may go out
	nobodyWaits             // for what is out, and others wait for their turn
)

func (p *streamPublisher) state(c *streamCall) sendState {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.left == 0:
		return callAnswered
	case p.unsent() || p.isClear() && len(p.queue) > 0:
		return frameDue
	case p.isClear():
		return answerAwaited // all is in the log, the confirms are to come
	}
	for i := range p.sent {
		if s := &p.sent[i]; s.id > p.logged && s.call != nil {
			return answerAwaited
		}
	}
	return nobodyWaits
}

// isClear reports whether all that is out is in the log. p.mu is held.
func (p *streamPublisher) isClear() bool {
	return len(p.sent) == 0 || p.sent[len(p.sent)-1].id <= p.logged
}

func (p *streamPublisher) allLogged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isClear()
}

// unsent reports whether messages with an ID are to go out again on a new link.
func (p *streamPublisher) unsent() bool {
	for i := range p.sent {
		if !p.sent[i].out && p.sent[i].call != nil {
			return true
		}
	}
	return false
}

// compose makes the next frame, if one may go out: of what a lost link held, or
// of what waits. The frame is good until the next one.
func (p *streamPublisher) compose() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := publishFrame{b: append(p.buf[:0], make([]byte, publishHead)...), max: p.frameMax}
	for i := range p.sent {
		s := &p.sent[i]
		if s.out || s.call == nil {
			continue
		}
		it := &s.call.items[s.at]
		if !f.add(s.id, s.call.buf[it.from:it.to]) {
			break
		}
		s.out, it.rejected = true, false
	}
	if f.n == 0 && p.isClear() && len(p.queue) > 0 {
		// Old IDs first: they are lower.
		if len(p.gone) == 0 || p.composeAgain(&f) {
			p.composeNew(&f)
		}
		p.queue = slices.DeleteFunc(p.queue, func(c *streamCall) bool { return !c.hasUnsent() })
	}
	p.buf = f.b
	if f.n == 0 {
		return nil
	}
	return f.finish()
}

// composeAgain adds what was out under an earlier call, with the ID of then. All
// of it is in the log, for p.isClear. False: the frame is full.
func (p *streamPublisher) composeAgain(f *publishFrame) bool {
	for _, c := range p.queue {
		for i := c.unsent; i < len(c.items); i++ {
			it := &c.items[i]
			if it.answered || it.id != 0 {
				continue
			}
			k := orphanKey(&c.msgs[i])
			o := p.gone[k]
			switch {
			case o == nil:
				continue
			case o.lost:
			case o.confirmed:
				p.answer(c, i, broker.Receipt{Verdict: broker.Duplicate})
			case !f.add(o.id, c.buf[it.from:it.to]):
				return false
			default:
				it.id, it.again = o.id, true
				p.adopt(o.id, c, i)
			}
			delete(p.gone, k)
		}
	}
	return true
}

// composeNew adds new messages.
func (p *streamPublisher) composeNew(f *publishFrame) {
	for _, c := range p.queue {
		for c.hasUnsent() {
			it := &c.items[c.unsent]
			if !f.add(p.next, c.buf[it.from:it.to]) {
				return
			}
			it.id = p.next
			p.sent = append(p.sent, sentMessage{id: p.next, call: c, at: c.unsent, out: true})
			p.next++
		}
	}
}

// hasUnsent moves unsent on to the next item that is to go out as a new message.
func (c *streamCall) hasUnsent() bool {
	for c.unsent < len(c.items) && (c.items[c.unsent].answered || c.items[c.unsent].id != 0) {
		c.unsent++
	}
	return c.unsent < len(c.items)
}

// find is where an ID is, or would be, in sent.
func (p *streamPublisher) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(p.sent, id, func(s sentMessage, id uint64) int { return cmp.Compare(s.id, id) })
}

// adopt gives a message that was given up a caller again.
func (p *streamPublisher) adopt(id uint64, c *streamCall, at int) {
	s := sentMessage{id: id, call: c, at: at, out: true}
	if i, found := p.find(id); found {
		p.sent[i] = s
	} else {
		p.sent = slices.Insert(p.sent, i, s)
	}
}

// publishFrame is a Publish frame in the making.
type publishFrame struct {
	b   []byte
	n   int
	max int
}

// add appends a message; false if the frame is full.
func (f *publishFrame) add(id uint64, message []byte) bool {
	if len(f.b)+messageHead+len(message) > f.max {
		return false
	}
	f.b = append(put32(put64(f.b, id), uint32(len(message))), message...)
	f.n++
	return true
}

func (f *publishFrame) finish() []byte {
	binary.BigEndian.PutUint32(f.b, uint32(len(f.b)-4))
	binary.BigEndian.PutUint16(f.b[4:], scPublish)
	binary.BigEndian.PutUint16(f.b[6:], 1)
	f.b[8] = 0
	binary.BigEndian.PutUint32(f.b[9:], uint32(f.n))
	return f.b
}

// frame takes what the broker says, as streamHandler.
func (p *streamPublisher) frame(l *streamLink, key uint16, body []byte) error {
	c := streamCursor{b: body}
	switch key {
	case scPublishConfirm:
		c.u8()
		n := c.u32()
		p.mu.Lock()
		for ; n > 0 && !c.bad; n-- {
			p.confirmed(c.u64(), broker.Receipt{Verdict: broker.Stored})
		}
		p.trim()
		p.mu.Unlock()
	case scPublishError:
		c.u8()
		n := c.u32()
		var anew error
		p.mu.Lock()
		defer p.mu.Unlock()
		for ; n > 0 && !c.bad; n-- {
			id, code := c.u64(), streamCode(c.u16())
			if code != codeNoPublisher {
				p.confirmed(id, broker.Receipt{Verdict: broker.Refused, Err: code})
				continue
			}
			// It is to be declared anew, and the message to go out again.
			anew = code
			if i, found := p.find(id); found && p.sent[i].call != nil {
				p.sent[i].call.items[p.sent[i].at].rejected = true
			}
		}
		p.trim()
		if anew != nil {
			return anew
		}
	case scMetadataUpdate:
		code := streamCode(c.u16())
		if c.str() == p.stream {
			return code // another leader, or none
		}
	}
	if c.bad {
		return errFrame
	}
	select {
	case p.change <- struct{}{}:
	default:
	}
	return nil
}

// confirmed takes the answer to a message, which trim then takes out. p.mu is
// held.
func (p *streamPublisher) confirmed(id uint64, r broker.Receipt) {
	i, found := p.find(id)
	if !found {
		return
	}
	s := &p.sent[i]
	switch {
	case s.call != nil:
		m := &s.call.msgs[s.at]
		if r.Verdict == broker.Refused {
			r.Err = broker.Errorf(streamKind(r.Err, broker.ErrRefused), r.Err, "publish %q to %s", m.ID, p.stream)
		} else if s.call.items[s.at].again {
			r.Verdict = broker.Duplicate
		}
		p.answer(s.call, s.at, r)
	default:
		if o := p.gone[s.key]; o != nil && o.id == id {
			o.confirmed, o.lost = r.Verdict != broker.Refused, r.Verdict == broker.Refused
		}
	}
	s.call, s.at = nil, -1
}

// trim takes out what is confirmed.
func (p *streamPublisher) trim() {
	done := 0
	for done < len(p.sent) && p.sent[done].at < 0 {
		done++
	}
	if done == len(p.sent) {
		p.sent = p.sent[:0]
		return
	}
	p.sent = slices.DeleteFunc(p.sent, func(s sentMessage) bool { return s.at < 0 })
}

// answer fills a receipt. p.mu is held.
func (p *streamPublisher) answer(c *streamCall, i int, r broker.Receipt) {
	if c.items[i].answered {
		return
	}
	c.items[i].answered = true
	c.receipts[i] = r
	if c.left--; c.left == 0 {
		c.done <- struct{}{} // has room
	}
}

// settleUp asks the broker how far what is out got, on a living link.
func (p *streamPublisher) settleUp(ctx context.Context, l *streamLink) error {
	err := p.resolve(ctx, l, false)
	if err != nil && ctx.Err() == nil {
		// The link is lost, or is of no use.
		l.end(err)
		return nil
	}
	return err
}

// resolve asks for the highest ID that the broker has of us, and draws the
// conclusions for what is out. Up to that ID all is in the log: frames arrive in
// order, and none leaves while the one before isn't in the log. Beyond it,
// nothing is: what somebody waits for goes out again under its ID, and what was
// given up is lost. fresh is set on a new link, to which no confirm of the old
// one will come.
//
// One case is open: what the broker has yet to read from a connection that we
// lost. It is dropped where its ID is no longer the highest; where it still is,
// it makes a given-up message that counted as lost a stored one, and a retry of
// it a second copy. Nothing is ever taken for stored that isn't.
func (p *streamPublisher) resolve(ctx context.Context, l *streamLink, fresh bool) error {
	c, err := l.call(ctx, scQuerySequence, nil, func(b []byte) []byte { return putStr(putStr(b, p.ref), p.stream) })
	if err != nil {
		return err
	}
	last := c.u64()
	if c.bad {
		return errFrame
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logged = last
	for k, o := range p.gone {
		if o.id > last && !o.confirmed {
			o.lost = true
			p.gone[k] = o
		}
	}
	for i := range p.sent {
		s := &p.sent[i]
		switch {
		case s.at < 0:
		case s.call == nil && (s.id > last || fresh):
			s.at = -1
		case s.call == nil:
		case s.id > last && p.once:
			m := &s.call.msgs[s.at]
			p.answer(s.call, s.at, broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "publish %q to %s: the connection was lost", m.ID, p.stream)})
			s.call, s.at = nil, -1
		case s.id > last || fresh:
			s.out = false
		}
	}
	p.trim()
	return nil
}

// orphanKey is a message's identity. An ID has no NUL.
func orphanKey(m *broker.Message) string {
	if m.Copy == "" {
		return m.ID
	}
	return m.ID + "\x00" + m.Copy
}

// remember notes a message whose caller gives up. p.mu is held.
func (p *streamPublisher) remember(m *broker.Message, id uint64) (key string) {
	k := strings.Clone(orphanKey(m))
	if p.gone[k] == nil {
		p.old = append(p.old, k)
	}
	p.gone[k] = &orphan{id: id}
	for len(p.gone) > maxOrphans {
		delete(p.gone, p.old[0])
		p.old = p.old[1:]
	}
	if len(p.old) > 2*maxOrphans {
		// Retries have taken most of them out of gone.
		p.old = slices.DeleteFunc(p.old, func(k string) bool { return p.gone[k] == nil })
	}
	return k
}
