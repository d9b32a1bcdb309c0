package servicebus

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// The annotations of messages that the service knows.
const (
	annScheduled   = "x-opt-scheduled-enqueue-time"
	annSequence    = "x-opt-sequence-number"
	annEnqueuedSeq = "x-opt-enqueue-sequence-number"
	annEnqueued    = "x-opt-enqueued-time"
	annLockedUntil = "x-opt-locked-until"
	annPartition   = "x-opt-partition-key"
	annState       = "x-opt-message-state"
	annSource      = "x-opt-deadletter-source"
	annLockToken   = "x-opt-lock-token"
)

// state says where in its queue a message is.
type state uint8

const (
	ready     state = iota // to be handed out
	locked                 // handed out
	deferred               // waits to be asked for by its number
	scheduled              // waits for its time
	gone                   // no longer in the queue
)

// message is a message in a queue. What aliases the transfer that brought it is
// never changed, for copies of it in several subscriptions share it.
type message struct {
	header      amqp.Header
	annotations entries // the sender's own, as are the next
	delivery    entries // of delivery annotations, which are carried on
	properties  amqp.Raw
	application amqp.Raw
	body        []byte

	id, sid, partition string
	hasSession         bool
	due                time.Time // when a scheduled one is due; zero: at once

	seq         int64
	enqueuedSeq int64 // the number where it was sent, if it was forwarded; else 0
	hops        int
	enqueued    time.Time
	expires     time.Time // zero: never
	source      string    // the entity that dead-lettered it

	state       state
	isDeferred  bool // stays so while locked by number
	count       uint32
	token       amqp.UUID
	lockedUntil time.Time
	session     *session

	nodes [lists]place
}

// read takes a message out of its encoding, which it keeps.
func (m *message) read(b []byte) error {
	raw, err := amqp.ReadMessage(b)
	if err != nil {
		return err
	}
	m.header, m.properties, m.application, m.body = raw.Header, raw.Properties, raw.Application, raw.Body
	if m.id, m.sid, m.hasSession, err = amqp.ReadIDs(raw.Properties); err != nil {
		return err
	}
	if m.id == "" {
		if err := m.nameIt(); err != nil {
			return err
		}
	}
	if err := m.delivery.read(raw.DeliveryAnnotations, annLockToken); err != nil {
		return err
	}
	return m.readAnnotations(raw.Annotations)
}

// nameIt gives a message without ID one of the service's making (SB-F-45).
func (m *message) nameIt() error {
	p, err := amqp.ReadProperties(m.properties)
	if err != nil {
		return err
	}
	m.id = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	p.MessageID = m.id
	m.properties = p.Append(nil)
	return nil
}

// entries are entries of a map in their encoding.
type entries struct {
	raw []byte
	n   int
}

func (e *entries) add(key []byte, value amqp.Raw) {
	e.raw = append(amqp.AppendSymbol(e.raw, amqp.Symbol(key)), value...)
	e.n++
}

// read adds the entries of a map, but for those under a key.
func (e *entries) read(raw amqp.Raw, except string) error {
	pairs, err := amqp.ReadPairs(raw)
	if err != nil {
		return err
	}
	for {
		key, value, ok := pairs.Next()
		if !ok {
			return pairs.Err()
		}
		if key != nil && string(key) != except {
			e.add(key, value)
		}
	}
}

// readAnnotations keeps the sender's own annotations, and of the service's those
// that a sender may set.
func (m *message) readAnnotations(raw amqp.Raw) error {
	pairs, err := amqp.ReadPairs(raw)
	if err != nil {
		return err
	}
	for {
		key, value, ok := pairs.Next()
		if !ok {
			return pairs.Err()
		}
		if key == nil {
			continue
		}
		switch string(key) {
		case annSequence, annEnqueuedSeq, annEnqueued, annLockedUntil, annState, annSource:
			continue // the service's own to set
		case annScheduled, annPartition:
			r := amqp.NewReader(value)
			switch v, _ := r.Value(); v := v.(type) {
			case time.Time:
				m.due = v
			case string:
				m.partition = v
			}
		}
		m.annotations.add(key, value)
	}
}

// size is what counts against the limits of size.
func (m *message) size() int {
	return len(m.annotations.raw) + len(m.properties) + len(m.application) + len(m.body)
}

// expire sets when the message expires: by its own time to live or the entity's,
// whichever is less (SB-F-41).
func (m *message) expire(limit time.Duration) {
	ttl := time.Duration(math.MaxInt64)
	if m.header.HasTTL && m.header.TTL != math.MaxUint32 {
		ttl = time.Duration(m.header.TTL) * time.Millisecond
	}
	if limit > 0 {
		ttl = min(ttl, limit)
	}
	m.expires = time.Time{}
	if ttl < forever {
		m.expires = m.enqueued.Add(ttl)
	}
}

// forever is a time to live that stands for none.
const forever = 200 * 365 * 24 * time.Hour

// append appends the message as a receiver gets it.
func (m *message) append(b []byte) []byte {
	h := m.header
	h.DeliveryCount = m.count // failed deliveries so far; clients add the one at hand
	b = amqp.AppendHeader(b, h)
	if m.state == locked || m.delivery.n > 0 {
		w := amqp.BeginDeliveryAnnotations(b)
		w.Entries(m.delivery.raw, m.delivery.n)
		if m.state == locked {
			w.Symbol(annLockToken)
			w.B = append(append(w.B, amqp.CodeUUID), m.token[:]...)
		}
		b = w.End()
	}
	w := amqp.BeginAnnotations(b)
	w.Entries(m.annotations.raw, m.annotations.n)
	w.Symbol(annSequence)
	w.B = amqp.AppendLong(w.B, m.seq)
	w.Symbol(annEnqueued)
	w.B = amqp.AppendTimestamp(w.B, m.enqueued)
	if m.state == locked {
		w.Symbol(annLockedUntil)
		w.B = amqp.AppendTimestamp(w.B, m.lockedUntil)
	}
	if m.enqueuedSeq != 0 {
		w.Symbol(annEnqueuedSeq)
		w.B = amqp.AppendLong(w.B, m.enqueuedSeq)
	}
	if m.source != "" {
		w.Symbol(annSource)
		w.B = amqp.AppendString(w.B, m.source)
	}
	if n := m.stateCode(); n != 0 {
		w.Symbol(annState)
		w.B = amqp.AppendValue(w.B, n)
	}
	b = w.End()
	// Clients read the delivery count only where there are properties.
	b = amqp.AppendProperties(b, m.properties)
	b = amqp.AppendApplication(b, m.application)
	return append(b, m.body...)
}

// stateCode is the value of the annotation of the state; 0, active, is left out.
func (m *message) stateCode() int32 {
	switch {
	case m.isDeferred:
		return 1
	case m.state == scheduled:
		return 2
	}
	return 0
}

// set puts properties among the application's, over those of the same name.
// Values that are no primitives are left out.
func (m *message) set(props []property) {
	if len(props) == 0 {
		return
	}
	w := amqp.BeginMap(nil)
	pairs, err := amqp.ReadPairs(m.application)
	for err == nil {
		key, value, ok := pairs.Next()
		if !ok {
			break
		}
		if key != nil && !named(props, key) {
			w.Text(string(key))
			w.B = append(w.B, value...)
		}
	}
	for i, p := range props {
		if p.value != nil && !named(props[i+1:], []byte(p.key)) {
			w.Text(p.key)
			w.B = append(w.B, p.value...)
		}
	}
	m.application = w.End()
}

// property is an application property in its encoding; a nil value removes it.
type property struct {
	key   string
	value amqp.Raw
}

func text(key, value string) property {
	return property{key, amqp.AppendString(nil, value)}
}

func named(props []property, key []byte) bool {
	for _, p := range props {
		if p.key == string(key) {
			return true
		}
	}
	return false
}

// properties reads a map of properties to change, copying it.
func readProperties(raw amqp.Raw) ([]property, error) {
	pairs, err := amqp.ReadPairs(raw)
	if err != nil {
		return nil, err
	}
	var props []property
	for {
		key, value, ok := pairs.Next()
		if !ok {
			return props, pairs.Err()
		}
		if key != nil {
			props = append(props, property{string(key), bytes.Clone(value)})
		}
	}
}

// copy is the message for another queue, of which it knows nothing yet.
func (m *message) copy() *message {
	c := *m
	c.nodes, c.session, c.token, c.lockedUntil = [lists]place{}, nil, amqp.UUID{}, time.Time{}
	c.state, c.isDeferred = ready, false
	return &c
}
