package servicebus

import (
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// condLockLost is what a settlement meets whose lock has ended (SB-F-14).
const condLockLost = "com.microsoft:message-lock-lost"

const lockLostText = "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue, or was received by a different receiver instance."

var lockLost = amqp.Error{Condition: condLockLost, Description: lockLostText}

// settlement is what a client wants with a message that it holds.
type settlement struct {
	verb                verb
	props               []property // to change on the message
	reason, description string
}

type verb uint8

const (
	complete   verb = iota + 1
	release         // give back, uncounted
	abandon         // give back, counted (SB-F-21)
	deferral        // keep until asked for by number (SB-F-22)
	deadletter      // move to the dead-letter sub-queue
)

// disposition takes what the client says of deliveries: settlements of what it was
// handed.
func (ch *channel) disposition(fields *amqp.Fields) error {
	d, err := amqp.ReadDisposition(fields)
	if err != nil {
		return err
	}
	if d.Role == amqp.RoleSender || !d.Settled && (d.State.Code == 0 || d.State.Code == amqp.StateReceived) {
		return nil // confirms one of ours, or settles nothing yet
	}
	st, err := readSettlement(d.State)
	if err != nil {
		return err
	}
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	first, n := ch.out.bounds(d.First, d.Last)
	if n == 0 {
		return nil
	}
	if d.State.Transactional {
		ch.settleEach(first, n, true, func(delivery) amqp.Error { return noTransactions })
		return nil
	}
	if inj := s.strikeDisposition(ch, first, n, st); inj != nil {
		s.carryOut(inj, ch.c, func(now time.Time, answer bool) bool {
			return ch.settle(first, n, st, answer && !d.Settled, now)
		}, func(code int) {
			ch.settleEach(first, n, true, func(delivery) amqp.Error { return errorFor(code) })
		})
		return nil
	}
	ch.settle(first, n, st, !d.Settled, s.clock.Now())
	return nil
}

// strikeDisposition is the fault that a disposition meets. A release belongs to no
// class and is struck by its name alone: it is what the SDK sends by itself of messages
// that no application saw (SB-F-53), and a lost answer to it says nothing about settles
// (SB-F-162).
func (s *Server) strikeDisposition(ch *channel, first uint32, n int, st settlement) *fault.Injection {
	if s.faults.Armed() == nil {
		return nil
	}
	ops := fault.Settle.Ops()
	if st.verb == release {
		ops = 0
	}
	for i := range n {
		if d := ch.out.get(first + uint32(i)); d.l != nil {
			return s.faults.Strike(ops, "disposition", matches(d.l.q.path))
		}
	}
	return nil
}

// readSettlement says what a state of a delivery asks for.
func readSettlement(state amqp.State) (settlement, error) {
	var st settlement
	var err error
	switch state.Code {
	case amqp.StateAccepted:
		st.verb = complete
	case amqp.StateModified:
		if st.verb = abandon; state.UndeliverableHere {
			st.verb = deferral
		}
		st.props, err = readProperties(state.Annotations)
	case amqp.StateRejected:
		st.verb = deadletter
		st.props, err = readProperties(state.Error.Info)
		if state.Error.Info == nil && state.Error.Condition != "com.microsoft:dead-letter" {
			st.reason, st.description = string(state.Error.Condition), state.Error.Description
		}
	default: // released, or settled without an outcome
		st.verb = release
	}
	return st, err
}

// settle settles n deliveries from first on, answers each if asked to, and says
// whether all were settled.
func (ch *channel) settle(first uint32, n int, st settlement, answer bool, now time.Time) bool {
	return ch.settleEach(first, n, answer, func(d delivery) amqp.Error {
		return d.l.q.settle(d.token, st, now)
	})
}

// settleEach takes deliveries out of those that are open and answers each with
// what do returns for it. A client that settles in the second mode waits for that.
func (ch *channel) settleEach(first uint32, n int, answer bool, do func(delivery) amqp.Error) bool {
	all := true
	var last *queue
	for i := range uint32(n) {
		d := ch.out.take(first + i)
		if d.l == nil {
			continue
		}
		e := do(d)
		all = all && e.Condition == ""
		if answer {
			ch.dispose(amqp.RoleSender, first+i, outcome(e))
		}
		if last != nil && last != d.l.q {
			last.pump(last.s.clock.Now())
		}
		last = d.l.q
	}
	if last != nil {
		last.pump(last.s.clock.Now())
	}
	return all
}

// settle settles a message for whoever holds it by token. It doesn't pump.
func (q *queue) settle(token amqp.UUID, st settlement, now time.Time) amqp.Error {
	m := q.tokens[token]
	if m == nil || !m.lockedUntil.After(now) {
		if q.sessionful() {
			return sessionLost
		}
		return lockLost
	}
	if q.s.traced() {
		q.s.tracef("settle %s: %d %s", q.path, m.seq, st.verb)
	}
	ss := m.session
	if st.verb != complete && st.verb != deadletter && len(st.props) > 0 {
		q.size -= int64(m.size())
		m.set(st.props)
		q.size += int64(m.size())
	}
	switch st.verb {
	case complete:
		q.remove(m)
	case release:
		q.giveBack(m, false, now)
	case abandon:
		q.giveBack(m, true, now)
	case deferral:
		q.unlock(m)
		m.isDeferred, m.state = true, deferred
		q.held[m.seq] = m
	case deadletter:
		if q.parent != nil { // there is nowhere further to go
			q.giveBack(m, true, now)
			break
		}
		q.deadLetter(m, st.reason, st.description, st.props, now)
	}
	if ss != nil {
		if ss.holder != nil && ss.ready.n > 0 {
			q.woken = append(q.woken, ss)
		}
		ss.tidy()
	}
	return amqp.Error{}
}

func (v verb) String() string {
	return [...]string{"", "complete", "release", "abandon", "defer", "dead-letter"}[v]
}
