package servicebus

import (
	"fmt"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// target is what messages are sent to: a queue or a topic.
type target interface {
	name() string
	properties() *QueueProperties
	maxSize() int
	sendDisabled() bool

	// accept stores messages, all or none of them (SB-F-10); the error says why none.
	accept(ms []message, now time.Time) amqp.Error
}

// transfer takes a frame of a message that the client sends.
func (ch *channel) transfer(fields *amqp.Fields, payload []byte) error {
	t, err := amqp.ReadTransfer(fields)
	if err != nil {
		return err
	}
	l, whole, err := ch.collect(t, payload)
	if err != nil || whole == nil {
		return err
	}
	t = l.first
	if l.node != nil {
		l.request(t, whole)
		return nil
	}
	// Taken apart without the lock.
	ms, refused := readMessages(whole, t.Format, l.target.maxSize())
	if t.Transactional {
		refused = noTransactions
	}
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	apply := func(now time.Time, answer bool) bool {
		e := refused
		if e.Condition == "" {
			e = l.target.accept(ms, now)
		}
		if s.traced() {
			s.tracef("send %s: %d messages %s", l.target.name(), len(ms), e.Condition)
		}
		if answer && !t.Settled && !l.gone {
			ch.dispose(amqp.RoleReceiver, t.DeliveryID, outcome(e))
		}
		return e.Condition == ""
	}
	if inj := s.strike(fault.Publish, "transfer", l.target.name()); inj != nil {
		s.carryOut(inj, ch.c, apply, func(code int) {
			ch.dispose(amqp.RoleReceiver, t.DeliveryID, amqp.Rejected(errorFor(code)))
		})
		return nil
	}
	apply(s.clock.Now(), true)
	return nil
}

var noTransactions = amqp.Error{Condition: "amqp:not-implemented", Description: "Transactions are not supported by this emulator."}

func outcome(e amqp.Error) amqp.State {
	if e.Condition == "" {
		return amqp.Accepted
	}
	return amqp.Rejected(e)
}

// collect counts a transfer against window and credit, and returns its link and
// the message when it is there as a whole, nil before. What it returns is a copy.
func (ch *channel) collect(t amqp.Transfer, payload []byte) (*link, []byte, error) {
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	ch.nextIn++
	if ch.granted > 0 {
		ch.granted--
	}
	l := ch.links[t.Handle]
	switch {
	case l == nil: // of a link that we have just detached
		if ch.granted < window/2 {
			ch.sendFlow()
		}
		return nil, nil, nil
	case !l.receives:
		return nil, nil, notAllowed("a transfer on a link that receives")
	case l.partial == nil && l.credit == 0:
		l.detach(amqp.Error{Condition: "amqp:link:transfer-limit-exceeded", Description: "A transfer came without credit."})
		return nil, nil, nil
	}
	if l.partial == nil {
		l.first, l.skipping = t, false
		l.first.DeliveryTag = nil // aliases the frame, and nothing asks for it
	}
	limit := s.maxSize
	if l.target != nil {
		limit = l.target.maxSize()
	}
	if l.skipping = l.skipping || len(l.partial)+len(payload) > limit; l.skipping {
		payload = nil
	}
	whole := append(l.partial, payload...)
	if whole == nil {
		whole = []byte{}
	}
	l.partial = whole
	if t.More && !t.Aborted {
		if ch.granted < window/2 {
			ch.sendFlow()
		}
		return l, nil, nil
	}
	l.partial = nil
	l.count++
	l.credit--
	if l.credit < senderCredit/2 || ch.granted < window/2 {
		l.topUp()
	}
	switch {
	case t.Aborted:
		return l, nil, nil
	case l.skipping:
		ch.dispose(amqp.RoleReceiver, l.first.DeliveryID, amqp.Rejected(amqp.Error{Condition: "amqp:link:message-size-exceeded",
			Description: fmt.Sprintf("The received message is larger than the limit of %d bytes.", limit)}))
		return l, nil, nil
	}
	return l, whole, nil
}

// readMessages takes a transfer's message, or the messages of a batch, apart and
// holds them against what every entity demands. They alias b.
func readMessages(b []byte, format uint32, limit int) ([]message, amqp.Error) {
	var ms []message
	var err error
	if format == amqp.FormatBatch {
		ms, err = readBatch(b)
	} else {
		ms = make([]message, 1)
		err = ms[0].read(b)
	}
	if err != nil {
		return nil, amqp.Error{Condition: "amqp:decode-error", Description: err.Error()}
	}
	for i := range ms {
		if e := ms[i].check(limit); e.Condition != "" {
			return nil, e
		}
	}
	return ms, amqp.Error{}
}

func readBatch(b []byte) ([]message, error) {
	outer, err := amqp.ReadMessage(b)
	if err != nil {
		return nil, err
	}
	n := 0
	if err := outer.Data(func([]byte) error { n++; return nil }); err != nil {
		return nil, err
	}
	ms := make([]message, n)
	n = 0
	err = outer.Data(func(b []byte) error {
		n++
		return ms[n-1].read(b)
	})
	return ms, err
}

// check holds a message against the service's limits on its IDs (SB-F-01,
// SB-F-23).
func (m *message) check(limit int) amqp.Error {
	switch {
	case len([]rune(m.id)) > MaxID:
		return amqp.Error{Condition: "com.microsoft:argument-error", Description: fmt.Sprintf("The message ID is longer than %d characters.", MaxID)}
	case len([]rune(m.sid)) > MaxID:
		return amqp.Error{Condition: "com.microsoft:argument-error", Description: fmt.Sprintf("The session ID is longer than %d characters.", MaxID)}
	case m.hasSession && m.partition != "" && m.partition != m.sid:
		return amqp.Error{Condition: "com.microsoft:argument-error", Description: "The partition key differs from the session ID."}
	}
	return amqp.Error{}
}

// name is part of target.
func (q *queue) name() string                 { return q.path }
func (q *queue) properties() *QueueProperties { return q.p }
func (q *queue) sendDisabled() bool           { return q.p.SendDisabled }
func (q *queue) maxSize() int                 { return q.s.sizeOf(q.p) }

const noSessionText = "The SessionId was not set on a message, and it cannot be sent to the entity. " +
	"Entities that have session support enabled can only receive messages that have the SessionId set to a valid value."

// accept is part of target: the whole batch is refused if one message has no session
// where one is required (SB-F-23).
func (q *queue) accept(ms []message, now time.Time) amqp.Error {
	if q.p.SendDisabled {
		return errorFor(403)
	}
	if q.sessionful() {
		for i := range ms {
			if !ms[i].hasSession {
				return amqp.Error{Condition: "amqp:not-allowed", Description: noSessionText}
			}
		}
	}
	q.accessed = now
	for i := range ms {
		if q.duplicate(&ms[i], now) {
			q.last++ // a number that refers to nothing, which only scheduling tells (SB-F-07)
			ms[i].seq = q.last
			continue
		}
		q.publish(&ms[i], now)
	}
	q.pump(now)
	return amqp.Error{}
}

// duplicate says whether m is to be dropped: its ID was taken within the window.
// The sender is told nothing of that (SB-F-04). Without an ID nothing is a
// duplicate.
func (q *queue) duplicate(m *message, now time.Time) bool {
	return q.p.DuplicateDetection && m.id != "" && q.history.taken(dedupKey(m, q.p.Partitioned), now, q.p.Window)
}

// publish stores m, or sends it on if the queue forwards and m's time has come. What
// waits for a topic goes to its subscriptions.
func (q *queue) publish(m *message, now time.Time) {
	if q.fanout != nil && !m.due.After(now) {
		q.last++
		m.seq = q.last
		q.fanout.route(m, now)
		return
	}
	if q.p.ForwardTo != "" && !m.due.After(now) && q.parent == nil {
		q.last++
		m.seq = q.last
		if q.s.forward(m, q.p.ForwardTo, q, now) {
			return
		}
	}
	q.add(m, now)
}
