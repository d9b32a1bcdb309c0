package memory

import (
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// topic numbers messages, remembers their IDs for the window and copies them to
// the subscriptions. Its broker's lock guards it.
type topic struct {
	b       *Broker
	name    string
	window  int64 // nanoseconds
	maxBody int   // bytes
	deleted bool

	next   uint64 // offset of the next message, from 1
	synced uint64 // WithoutDurableAck: what a crash leaves is below
	seen   map[string]sighting
	oldest []remembered // in order of time, from head
	head   int

	subs   []*subscription
	unread list[*item] // messages from before the first subscription
}

// sighting is what the topic knows of a dedup ID.
type sighting struct {
	offset uint64
	at     int64
	body   uint64 // hash, where a broken promise asks for it
}

type remembered struct {
	key string
	at  int64
}

func newTopic(b *Broker, name string, window time.Duration, maxBody int) *topic {
	return &topic{b: b, name: name, window: int64(window), maxBody: maxBody, next: 1, synced: 1, seen: map[string]sighting{}}
}

// key is what the topic dedups on: ID and Copy, and the scope of a dead-letter
// copy. An ID has no NUL, so different parts give different keys.
func (t *topic) key(m *broker.Message, scope string) string {
	if t.b.broken.dedupAcrossKeys {
		scope += "\x00" + m.Key
	}
	if m.Copy == "" && scope == "" {
		return m.ID
	}
	return m.ID + "\x00" + m.Copy + "\x00" + scope
}

// refuse is the broker's own check of a message, for those that come around the
// validation of package driver.
func (t *topic) refuse(m *broker.Message) error {
	switch {
	case m.ID == "":
		return broker.Errorf(broker.ErrInvalid, nil, "publish to %s: the message has no ID", t.name)
	case strings.IndexByte(m.ID, 0) >= 0 || strings.IndexByte(m.Copy, 0) >= 0:
		return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: ID or Copy holds a NUL", m.ID, t.name)
	case t.maxBody > 0 && len(m.Body) > t.maxBody:
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: the body has %d bytes, over %d", m.ID, t.name, len(m.Body), t.maxBody)
	}
	return nil
}

// memory is how long an ID is remembered, in nanoseconds.
func (t *topic) memory() int64 {
	switch {
	case t.b.broken.windowHalved:
		return t.window / 2
	case t.b.broken.windowDoubled:
		return later(t.window, t.window)
	}
	return t.window
}

// forget drops the IDs whose window is over.
func (t *topic) forget(now int64) {
	memory := t.memory()
	for t.head < len(t.oldest) && later(t.oldest[t.head].at, memory) <= now {
		r := &t.oldest[t.head]
		if s, ok := t.seen[r.key]; ok && s.at == r.at {
			delete(t.seen, r.key)
		}
		*r = remembered{}
		t.head++
	}
	if t.head > 1024 && t.head > len(t.oldest)/2 {
		n := copy(t.oldest, t.oldest[t.head:])
		clear(t.oldest[n:])
		t.oldest, t.head = t.oldest[:n], 0
	}
}

// sight looks for a message among those remembered, and remembers it as the
// next one if it is not there.
func (t *topic) sight(m *broker.Message, scope string, now int64) (known sighting, found bool) {
	if t.b.broken.dedup {
		return sighting{}, false
	}
	key := t.key(m, scope)
	s := sighting{offset: t.next, at: now}
	if t.b.broken.hashes() {
		s.body = maphash.Bytes(bodySeed, m.Body)
	}
	if known, found = t.seen[key]; found {
		if t.b.broken.otherBodyStored && known.body != s.body {
			return sighting{}, false
		}
		if t.b.broken.windowRefreshed {
			known.at = now
			t.seen[key] = known
			t.oldest = append(t.oldest, remembered{key, now})
		}
		return known, true
	}
	if t.b.broken.dedupAcrossTopics {
		for _, other := range t.b.topics {
			other.forget(now)
			if known, found = other.seen[key]; found {
				return known, true
			}
		}
	}
	if t.b.broken.dedupOnBody {
		byBody := "\x00body\x00" + strconv.FormatUint(s.body, 36)
		if known, found = t.seen[byBody]; found {
			return known, true
		}
		t.seen[byBody] = s
		t.oldest = append(t.oldest, remembered{byBody, now})
	}
	t.seen[key] = s
	t.oldest = append(t.oldest, remembered{key, now})
	return sighting{}, false
}

var bodySeed = maphash.MakeSeed()

// append takes messages in, each by itself, and fills their receipts. trusted
// skips the broker's own check.
func (t *topic) append(msgs []broker.Message, receipts []broker.Receipt, scope string, now int64, trusted bool) {
	t.forget(now)
	var cells []cell // the chunk being filled
	bodies, headers := roomFor(msgs)
	first := t.next
	for i := range msgs {
		m := &msgs[i]
		if !trusted {
			if err := t.refuse(m); err != nil {
				receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
				continue
			}
		}
		if known, found := t.sight(m, scope, now); found && !(t.b.broken.dedupWithinBatch && known.offset >= first) {
			receipts[i] = broker.Receipt{Verdict: broker.Duplicate, Position: broker.Position{Offset: known.offset}}
			if t.b.broken.otherBodyRefused && known.body != maphash.Bytes(bodySeed, m.Body) {
				receipts[i] = broker.Receipt{Verdict: broker.Refused,
					Err: broker.Errorf(broker.ErrConflict, nil, "publish %q to %s: its ID was used for another body", m.ID, t.name)}
			}
			continue
		}
		if len(cells) == cap(cells) {
			t.copyOut(cells)
			cells = make([]cell, 0, min(len(msgs)-i, chunk))
		}
		cells = append(cells, cell{msg: *m, offset: t.next})
		c := &cells[len(cells)-1]
		c.msg.Body = bodies.copy(m.Body)
		c.msg.Headers = headers.copy(m.Headers)
		c.msg.Time = time.UnixMilli(m.Time.UnixMilli())
		receipts[i] = broker.Receipt{Verdict: broker.Stored, Position: broker.Position{Offset: t.next}}
		t.next++
	}
	t.copyOut(cells)
}

// chunk is how many messages are allocated together. A message that stays holds
// the memory of its chunk, less the bodies.
const chunk = 64

// copyOut gives each subscription its copies.
func (t *topic) copyOut(cells []cell) {
	if len(t.subs) == 0 {
		if t.b.broken.backlog {
			return
		}
		for i := range cells {
			it := &cells[i].first
			it.cell, it.link.of = &cells[i], it
			t.unread.push(&it.link)
		}
		return
	}
	for n, s := range t.subs {
		if n == 0 {
			for i := range cells {
				s.enqueue(&cells[i], &cells[i].first)
			}
			continue
		}
		items := make([]item, len(cells))
		for i := range cells {
			s.enqueue(&cells[i], &items[i])
		}
	}
}

// subscribe adds a subscription. The first one gets what was not read so far.
func (t *topic) subscribe(s *subscription) {
	t.subs = append(t.subs, s)
	for t.unread.n > 0 {
		it := t.unread.pop()
		s.enqueue(it.cell, it)
	}
}

// bury stores the dead-letter copy of an item of s: ID, Copy, key, body and
// headers are its own, and three headers say where it comes from. It is deduped
// by subscription and ID, so that a repeated dead-lettering adds no copy, and
// two subscriptions' dead letters don't take each other's place.
func (t *topic) bury(s *subscription, it *item, reason string, now int64) {
	m := it.cell.msg
	headers := make(broker.Headers, 0, len(m.Headers)+3)
	for _, h := range m.Headers {
		switch h.Key {
		case driver.HeaderReason, driver.HeaderSource, driver.HeaderAttempts:
			// Of an earlier death, when this is a dead-letter topic itself.
		default:
			headers = append(headers, h)
		}
	}
	if !t.b.broken.deadLetterReason {
		headers = append(headers, broker.Header{Key: driver.HeaderReason, Value: reason})
	}
	headers = append(headers, broker.Header{Key: driver.HeaderSource, Value: s.name})
	if !t.b.broken.deadLetterAttempts {
		headers = append(headers, broker.Header{Key: driver.HeaderAttempts, Value: strconv.Itoa(it.attempts)})
	}
	m.Headers = headers
	var receipt [1]broker.Receipt
	t.append([]broker.Message{m}, receipt[:], s.name, now, true)
}

// lose forgets the messages from offset on: those of the subscriptions, those
// unread, and their IDs if ids is set.
func (t *topic) lose(from uint64, ids bool) {
	for _, s := range t.subs {
		s.discard(func(it *item) bool { return it.cell.offset >= from })
	}
	for e := t.unread.head; e != nil; {
		next := e.next
		if e.of.cell.offset >= from {
			e.leave()
		}
		e = next
	}
	if ids {
		for key, s := range t.seen {
			if s.offset >= from {
				delete(t.seen, key)
			}
		}
	}
}
