package servicebus

import (
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// session is a Service Bus session: the messages of a queue with one session ID,
// which one receiver at a time holds, in order (SB-F-23).
type session struct {
	q             *queue
	id            string
	ready, locked list
	holder        *link
	until         time.Time
	timer         timer
	offered       bool // is in q.offered

	state    []byte // nil: none was set
	stateSet time.Time
}

// session returns the session of an ID, which comes into being by that.
func (q *queue) session(id string) *session {
	ss := q.sessions[id]
	if ss == nil {
		ss = &session{q: q, id: id}
		ss.ready.which, ss.locked.which = inReady, inLocked
		q.sessions[id] = ss
	}
	return ss
}

// offer puts a session that somebody may take where those who ask for any look.
func (q *queue) offer(ss *session) {
	if ss.holder != nil {
		if ss.ready.n == 1 { // more are pumped with the first
			q.woken = append(q.woken, ss)
		}
		return
	}
	if ss.ready.n > 0 && !ss.offered {
		ss.offered = true
		q.offered = append(q.offered, ss)
	}
}

// grantSessions gives sessions to receivers that wait for one, and messages to
// those that hold theirs.
func (q *queue) grantSessions(now time.Time) {
	for len(q.waiters) > 0 {
		ss := q.freeSession()
		if ss == nil {
			break
		}
		l := q.waiters[0]
		l.stopWaiting()
		ss.grant(l, now)
	}
	woken := q.woken
	q.woken = nil
	for _, ss := range woken {
		ss.pump(now)
	}
}

// freeSession takes the session that has waited longest with messages ready and no
// holder.
func (q *queue) freeSession() *session {
	for len(q.offered) > 0 {
		ss := q.offered[0]
		q.offered[0] = nil
		q.offered = q.offered[1:]
		ss.offered = false
		if ss.holder == nil && ss.ready.n > 0 {
			return ss
		}
	}
	return nil
}

// accept is a receiver that waits for any session, and the timer that ends that.
type accept struct{ timer timer }

// acceptSession gives the link the session that it asks for. If that is any, and
// none is to be had, it waits as long as its attach says, or a minute.
func (l *link) acceptSession(now time.Time) {
	q := l.q
	if id := l.attach.SessionID; id != nil {
		ss := q.session(*id)
		if ss.holder != nil {
			l.refuse(amqp.Error{Condition: "com.microsoft:session-cannot-be-locked",
				Description: "The requested session '" + *id + "' cannot be accepted. It may be locked by another receiver."})
			return
		}
		ss.grant(l, now)
		return
	}
	if ss := q.freeSession(); ss != nil {
		ss.grant(l, now)
		return
	}
	wait := time.Minute
	if l.attach.Timeout > 0 {
		wait = time.Duration(l.attach.Timeout) * time.Millisecond
	}
	l.timeout = &accept{}
	q.waiters = append(q.waiters, l)
	l.timeout.timer.arm(q.s, now.Add(wait), func(time.Time) {
		l.stopWaiting()
		l.refuse(amqp.Error{Condition: "com.microsoft:timeout",
			Description: "The operation did not complete within the allotted timeout."})
	})
}

// stopWaiting takes the link out of those that wait for any session.
func (l *link) stopWaiting() {
	if l.timeout == nil {
		return
	}
	l.timeout.timer.stop()
	l.timeout = nil
	for i, w := range l.q.waiters {
		if w == l {
			l.q.waiters = append(l.q.waiters[:i], l.q.waiters[i+1:]...)
			return
		}
	}
}

// ticks is a time as .NET counts: in 100 ns since the year 1.
func ticks(t time.Time) int64 { return t.UnixMilli()*10000 + 621355968000000000 }

// grant gives the session to l and opens its link.
func (ss *session) grant(l *link, now time.Time) {
	ss.holder, l.session = l, ss
	ss.renew(now)
	l.attach.GrantSession(ss.id)
	l.accept(amqp.Map{{Key: amqp.Symbol("com.microsoft:locked-until-utc"), Value: ticks(ss.until)}})
}

// renew gives the holder a full period from now on, and with it the messages that
// it has (SB-F-23).
func (ss *session) renew(now time.Time) {
	ss.until = now.Add(ss.q.p.LockDuration).Truncate(time.Millisecond)
	for m := ss.locked.head; m != nil; m = m.nodes[inLocked].next {
		m.lockedUntil = ss.until
	}
	ss.timer.arm(ss.q.s, ss.until, ss.expire)
}

// expire takes the session from its holder when it is late. Its messages count as
// failed deliveries (SB-F-24).
func (ss *session) expire(now time.Time) {
	if ss.holder == nil {
		return
	}
	if ss.until.After(now) {
		ss.timer.arm(ss.q.s, ss.until, ss.expire)
		return
	}
	l := ss.holder
	ss.release(true, now)
	l.detach(sessionLost)
}

const sessionLostText = "The session lock has expired on the MessageSession. Accept a new MessageSession."

var sessionLost = amqp.Error{Condition: "com.microsoft:session-lock-lost", Description: sessionLostText}

// release takes the session from its holder. What was handed out is ready again,
// in its place.
func (ss *session) release(counts bool, now time.Time) {
	ss.holder.session = nil
	ss.holder = nil
	ss.timer.stop()
	for m := ss.locked.head; m != nil; m = ss.locked.head {
		ss.q.giveBack(m, counts, now)
	}
	ss.q.offer(ss)
	ss.tidy()
	ss.q.pump(now)
}

// tidy forgets a session of which nothing is left.
func (ss *session) tidy() {
	if ss.holder == nil && ss.ready.n == 0 && ss.locked.n == 0 && ss.state == nil {
		delete(ss.q.sessions, ss.id)
	}
}

// pump hands the holder what it has credit for.
func (ss *session) pump(now time.Time) {
	l := ss.holder
	for l != nil && ss.holder == l && !l.gone && l.credit > 0 && ss.ready.head != nil && l.ch.ready() {
		l.deliver(ss.ready.head, now)
	}
}
