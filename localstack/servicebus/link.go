package servicebus

import (
	"bytes"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// senderCredit is the credit of a client's sender, topped up when half is used.
const senderCredit = 1000

// link is a link of a client: to send to an entity, to receive from one, or half
// of a pair to ask $cbs or a $management node. The server's mutex guards it.
type link struct {
	ch       *channel
	attach   amqp.Attach // as it was asked for
	receives bool        // we receive: the client sends
	gone     bool
	muted    bool // its attach is not answered, by a fault

	target  target    // of a sender
	q       *queue    // of a receiver
	node    *mgmtNode // of a request or response link
	settled bool      // messages are settled when sent: receive and delete (SB-F-30)

	credit  uint32
	count   uint32 // deliveries so far
	hungry  bool   // is in q.hungry
	session *session
	timeout *accept // of a receiver that waits for any session

	partial  []byte // of a message in several frames
	first    amqp.Transfer
	skipping bool // the message in hand is too large, its rest is dropped

	replies [][]byte // of a response link, for want of credit
}

// path is the entity that the link's requests concern.
func (l *link) path() string {
	switch {
	case l.node != nil:
		return l.node.entity
	case l.q != nil:
		return l.q.path
	case l.target != nil:
		return l.target.name()
	}
	return ""
}

// attach attaches a link.
func (ch *channel) attach(fields *amqp.Fields) error {
	a, err := amqp.ReadAttach(fields)
	if err != nil {
		return err
	}
	a.Source, a.Target = bytes.Clone(a.Source), bytes.Clone(a.Target)
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Handle > handleMax {
		return notAllowed("handle %d is above the maximum of %d", a.Handle, handleMax)
	}
	if ch.links[a.Handle] != nil {
		return notAllowed("handle %d is in use", a.Handle)
	}
	l := &link{ch: ch, attach: a, receives: a.Role == amqp.RoleSender}
	ch.links[a.Handle] = l
	address := a.SourceAddress
	if l.receives {
		address = a.TargetAddress
	}
	s.tracef("attach %s %s", roleName(l.receives), address)
	apply := func(now time.Time, answer bool) bool {
		if l.muted = !answer; !l.gone {
			l.open(address, now)
		}
		return !l.gone
	}
	if inj := s.strike(fault.Admin, "attach", entityOf(address)); inj != nil {
		s.carryOut(inj, ch.c, apply, func(code int) { l.refuse(errorFor(code)) })
		return nil
	}
	apply(s.clock.Now(), true)
	return nil
}

func roleName(receives bool) string {
	if receives {
		return "sender to"
	}
	return "receiver of"
}

// open finds what the link is for and answers its attach.
func (l *link) open(address string, now time.Time) {
	s, a := l.ch.c.s, l.attach
	if a.Coordinator {
		l.refuse(noTransactions)
		return
	}
	if !s.authorized(l.ch.c, address) {
		l.refuse(amqp.Error{Condition: "amqp:unauthorized-access",
			Description: "Unauthorized access. 'Send' or 'Listen' claim(s) are required to perform this operation on '" + address + "'."})
		return
	}
	if node := s.node(address); node != nil {
		if node.cbs && l.ch.c.hasNode(l) {
			// One pair for $cbs at a time, as the service has it (SB-F-42).
			l.refuse(amqp.Error{Condition: "amqp:not-allowed", Description: "A link to $cbs is open already on this connection."})
			return
		}
		l.node = node
		l.settled = !l.receives
		l.accept(nil)
		return
	}
	if l.receives {
		l.openSender(address)
		return
	}
	l.openReceiver(address, now)
}

func notFound(address string) amqp.Error {
	return amqp.Error{Condition: "amqp:not-found", Description: "The messaging entity '" + address + "' could not be found."}
}

func (l *link) openSender(address string) {
	t := l.ch.c.s.target(address)
	switch {
	case t == nil:
		l.refuse(notFound(address))
		return
	case t.sendDisabled():
		l.refuse(amqp.Error{Condition: "com.microsoft:entity-disabled", Description: "The messaging entity '" + address + "' is disabled."})
		return
	}
	l.target = t
	l.accept(amqp.Map{{Key: amqp.Symbol("com.microsoft:max-message-batch-size"), Value: uint64(t.maxSize())}})
}

func (l *link) openReceiver(address string, now time.Time) {
	q := l.ch.c.s.queues[key(address)]
	switch {
	case q == nil:
		l.refuse(notFound(address))
		return
	case q.p.ReceiveDisabled:
		l.refuse(amqp.Error{Condition: "com.microsoft:entity-disabled", Description: "The messaging entity '" + address + "' is disabled."})
		return
	case q.sessionful() != l.attach.SessionFilter:
		text := "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
		if l.attach.SessionFilter {
			text = "It is not possible for an entity that does not require sessions to create a sessionful message receiver."
		}
		l.refuse(amqp.Error{Condition: "amqp:not-allowed", Description: text})
		return
	}
	l.q = q
	l.settled = l.attach.SenderSettle == amqp.SenderSettled
	q.receivers[l] = struct{}{}
	q.accessed = now
	if q.sessionful() {
		l.acceptSession(now)
		return
	}
	l.accept(nil)
}

// accept answers the attach: the link is open.
func (l *link) accept(props amqp.Map) {
	a := l.attach
	a.Role, a.ResponseProperty = !a.Role, props
	a.MaxMessageSize = uint64(l.ch.c.s.maxSize)
	if l.target != nil {
		a.MaxMessageSize = uint64(l.target.maxSize())
	}
	if l.muted {
		return
	}
	b, at := l.ch.c.begin(amqp.FrameAMQP, l.ch.number)
	l.ch.c.send(a.Append(b), at)
	if l.receives {
		l.topUp()
	}
}

// refuse answers the attach with a link that leads nowhere, and detaches it with
// the reason.
func (l *link) refuse(e amqp.Error) {
	a := l.attach
	a.Role, a.NullTermini = !a.Role, true
	if l.muted {
		return
	}
	b, at := l.ch.c.begin(amqp.FrameAMQP, l.ch.number)
	l.ch.c.send(a.Append(b), at)
	l.detach(e)
}

// detach ends the link from our side with the reason.
func (l *link) detach(e amqp.Error) {
	if l.gone {
		return
	}
	l.ch.c.s.tracef("detach %s: %s", l.path(), e.Condition)
	l.drop(l.ch.c.s.clock.Now())
	delete(l.ch.links, l.attach.Handle)
	b, at := l.ch.c.begin(amqp.FrameAMQP, l.ch.number)
	l.ch.c.send(amqp.AppendClosing(b, amqp.CodeDetach, l.attach.Handle, e), at)
}

// detach takes the client's detach, and answers it unless it answers ours.
func (ch *channel) detach(fields *amqp.Fields) error {
	handle := fields.Uint32()
	if err := fields.Err(); err != nil {
		return err
	}
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	l := ch.links[handle]
	if l == nil {
		return nil
	}
	l.drop(s.clock.Now())
	delete(ch.links, handle)
	b, at := ch.c.begin(amqp.FrameAMQP, ch.number)
	ch.c.send(amqp.AppendClosing(b, amqp.CodeDetach, handle, amqp.Error{}), at)
	return nil
}

// drop takes the link out of its entity. Locks on messages stay (SB-F-15), a
// session is given back (SB-F-24).
func (l *link) drop(now time.Time) {
	l.leave()
	if l.session != nil {
		l.session.release(false, now)
	}
}

// leave takes the link out of those that are handed messages or wait for a session.
func (l *link) leave() {
	if l.gone {
		return
	}
	l.gone = true
	if l.q != nil {
		delete(l.q.receivers, l)
		l.q.satisfied(l)
		l.stopWaiting()
	}
}

// topUp gives a sender all of its credit.
func (l *link) topUp() {
	l.credit = senderCredit
	ch := l.ch
	ch.granted = window
	w := ch.windows()
	w.Handle, w.HasHandle, w.DeliveryCount, w.LinkCredit = l.attach.Handle, true, l.count, l.credit
	b, at := ch.c.begin(amqp.FrameAMQP, ch.number)
	ch.c.send(w.Append(b), at)
}

// grant takes the credit that a client gives its receiver. It counts from the
// deliveries that the client had seen when it wrote.
func (l *link) grant(w amqp.Flow, now time.Time) {
	if l.receives {
		if w.Echo {
			l.topUp()
		}
		return
	}
	credit := int32(w.DeliveryCount + w.LinkCredit - l.count)
	l.credit = uint32(max(credit, 0))
	l.pump(now)
	if w.Drain {
		l.drain()
	} else if w.Echo {
		l.sendFlow(false)
	}
}

// drain ends credit for which there is nothing.
func (l *link) drain() {
	if l.q != nil {
		l.q.satisfied(l)
	}
	l.count += l.credit
	l.credit = 0
	l.sendFlow(true)
}

func (l *link) sendFlow(drain bool) {
	w := l.ch.windows()
	w.Handle, w.HasHandle, w.DeliveryCount, w.LinkCredit, w.Drain = l.attach.Handle, true, l.count, l.credit, drain
	b, at := l.ch.c.begin(amqp.FrameAMQP, l.ch.number)
	l.ch.c.send(w.Append(b), at)
}

// pump hands out what the link has credit for.
func (l *link) pump(now time.Time) {
	switch {
	case l.gone || l.receives:
	case l.node != nil:
		l.flushReplies()
	case l.session != nil:
		l.session.pump(now)
	case l.q != nil && !l.q.sessionful():
		l.q.feed(l)
		l.q.pump(now)
	}
}
