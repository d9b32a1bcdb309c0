package servicebus

import (
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// topic copies what is sent to it into its subscriptions. It keeps nothing itself
// but what is scheduled and the history of duplicates, both in waiting.
type topic struct {
	s       *Server
	path    string
	p       *QueueProperties
	waiting *queue
	subs    []*queue // by name

	created, updated, accessed time.Time
}

// name is part of target.
func (t *topic) name() string                 { return t.path }
func (t *topic) properties() *QueueProperties { return t.p }
func (t *topic) sendDisabled() bool           { return t.p.SendDisabled }
func (t *topic) maxSize() int                 { return t.s.sizeOf(t.p) }

// accept is part of target. Duplicates are those of the topic (SB-F-01), whatever
// its subscriptions made of the first.
func (t *topic) accept(ms []message, now time.Time) amqp.Error {
	t.accessed = now
	return t.waiting.accept(ms, now)
}

// route copies m into each subscription that has a rule for it. A rule with an
// action makes a copy of its own; those without make one together.
func (t *topic) route(m *message, now time.Time) {
	v := &view{m: m}
	for _, q := range t.subs {
		plain := false
		for _, r := range q.rules {
			ok, err := r.filter.match(v)
			if err == nil && (!ok || plain && r.action == nil) {
				continue
			}
			c := m.copy()
			if err == nil && r.action != nil {
				if err = r.action.apply(c); err == nil {
					c.set([]property{text("RuleName", r.name)})
				}
			} else {
				plain = true
			}
			switch {
			case err == nil:
				q.receive(c, now)
			case q.p.DeadLetterFilterErrors:
				q.refuseCopy(c, "FilterEvaluationException", err.Error(), now)
			}
		}
	}
}

// receive takes a copy into a subscription.
func (q *queue) receive(m *message, now time.Time) {
	if q.sessionful() && !m.hasSession {
		q.refuseCopy(m, "Session ID is null.",
			"Session enabled entity doesn't allow a message whose session identifier is null.", now) // SB-F-19
		return
	}
	q.publish(m, now)
}

// refuseCopy dead-letters a copy of m that never came into the subscription.
func (q *queue) refuseCopy(m *message, reason, description string, now time.Time) {
	c := m.copy()
	q.last++
	c.seq, c.enqueued = q.last, now
	q.all.pushBack(c)
	q.size += int64(c.size())
	q.deadLetter(c, reason, description, nil, now)
}

// forward sends m, which has left the entity from, on to another (SB-F-19). It is
// false if there is nowhere to send it to; m then still is the caller's. After too
// many hops it goes to the transfer dead-letter sub-queue.
func (s *Server) forward(m *message, address string, from *queue, now time.Time) bool {
	t := s.target(address)
	if t == nil {
		return false
	}
	c := m.copy()
	if c.enqueuedSeq == 0 {
		c.enqueuedSeq = m.seq
	}
	if c.hops++; c.hops > MaxHops {
		c.source = from.path
		c.set([]property{text("DeadLetterReason", "MaxTransferHopCountExceeded"),
			text("DeadLetterErrorDescription", "The maximum number of allowed hops when forwarding between entities was exceeded.")})
		from.transfer.add(c, now)
		from.transfer.pump(now)
		return true
	}
	if e := t.accept([]message{*c}, now); e.Condition != "" {
		c.source = from.path
		c.set([]property{text("DeadLetterReason", string(e.Condition)), text("DeadLetterErrorDescription", e.Description)})
		from.transfer.add(c, now)
		from.transfer.pump(now)
	}
	return true
}

// sub returns the subscription of a name.
func (t *topic) sub(name string) *queue {
	return t.s.queues[key(t.path)+"/subscriptions/"+strings.ToLower(name)]
}

func (t *topic) addSub(q *queue) {
	t.subs = append(t.subs, q)
	slices.SortFunc(t.subs, func(a, b *queue) int { return strings.Compare(key(a.path), key(b.path)) })
}
