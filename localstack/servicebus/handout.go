package servicebus

import (
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// pump hands out ready messages to the receivers that have credit, in turn.
func (q *queue) pump(now time.Time) {
	if q.fanout != nil {
		for _, sub := range q.fanout.subs {
			sub.pump(now)
		}
		return
	}
	if q.sessionful() {
		q.grantSessions(now)
		return
	}
	for q.ready.head != nil && len(q.hungry) > 0 {
		if q.turn >= len(q.hungry) {
			q.turn = 0
		}
		l := q.hungry[q.turn]
		if l.credit == 0 || l.gone || !l.ch.ready() {
			// Fed again by the next flow, or when the client has read.
			q.satisfied(l)
			continue
		}
		q.turn++
		l.deliver(q.ready.head, now)
	}
}

// feed puts a receiver with credit among those that are handed messages.
func (q *queue) feed(l *link) {
	if l.credit > 0 && !l.hungry {
		l.hungry = true
		q.hungry = append(q.hungry, l)
	}
}

// satisfied takes a receiver out of those.
func (q *queue) satisfied(l *link) {
	if !l.hungry {
		return
	}
	l.hungry = false
	for i, h := range q.hungry {
		if h == l {
			q.hungry = append(q.hungry[:i], q.hungry[i+1:]...)
			return
		}
	}
}

// deliver hands m out on l. On a receiver that deletes it is gone with that
// (SB-F-30), else it is locked.
func (l *link) deliver(m *message, now time.Time) {
	q, ch := l.q, l.ch
	if !m.expires.IsZero() && !m.expires.After(now) {
		q.expireOne(m, now)
		return
	}
	if l.settled {
		q.remove(m)
	} else {
		q.lock(m, l.session, now)
	}
	if inj := q.s.strikeHandout("transfer", q.path); inj != nil {
		inj.Answered(true)
		if inj.Fault().Cut {
			ch.c.cut()
			l.credit = 0
		}
		return
	}
	l.credit--
	l.count++
	t := amqp.Transfer{Handle: l.attach.Handle, Settled: l.settled}
	if l.settled {
		t.DeliveryID = ch.out.add(delivery{})
		t.DeliveryTag = tag(q.s.newToken())
	} else {
		t.DeliveryID = ch.out.add(delivery{l, m.token})
		t.DeliveryTag = tag(m.token)
	}
	q.s.scratch = m.append(q.s.scratch[:0])
	ch.sendMessage(t, q.s.scratch)
	if q.s.traced() {
		q.s.tracef("deliver %s: %d", q.path, m.seq)
	}
}

// tag is a lock token as a delivery tag: in the order of .NET's Guid.
func tag(u amqp.UUID) []byte {
	return []byte{u[3], u[2], u[1], u[0], u[5], u[4], u[7], u[6], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]}
}
