package servicebus

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// queue is a queue, a subscription, or a sub-queue of one. The server's mutex
// guards it.
type queue struct {
	s    *Server
	path string
	p    *QueueProperties // of the entity that a sub-queue belongs to

	topic          *topic // of a subscription
	rules          []*rule
	fanout         *topic // of the queue in which a topic keeps what is scheduled
	parent         *queue // of a sub-queue
	dead, transfer *queue // the sub-queues

	last      int64 // the sequence number given last
	all       list
	ready     list // without sessions
	locked    list // without sessions, by the end of their locks
	tokens    map[amqp.UUID]*message
	held      map[int64]*message // deferred and scheduled
	scheduled dueHeap
	expiring  dueHeap
	history   history
	size      int64

	sessions map[string]*session
	offered  []*session // may have messages and nobody who holds them, oldest first
	woken    []*session // are held, and have got messages

	receivers map[*link]struct{}
	hungry    []*link // with credit
	turn      int
	waiters   []*link // for any session

	lockTimer, dueTimer, expireTimer timer

	created, updated, accessed time.Time
}

func newQueue(s *Server, path string, p *QueueProperties, now time.Time) *queue {
	q := bareQueue(s, path, p, now)
	q.dead = bareQueue(s, path+"/"+deadLetterName, p, now)
	q.transfer = bareQueue(s, path+"/"+transferName, p, now)
	q.dead.parent, q.transfer.parent = q, q
	return q
}

func bareQueue(s *Server, path string, p *QueueProperties, now time.Time) *queue {
	q := &queue{
		s: s, path: path, p: p, created: now, updated: now,
		tokens: map[amqp.UUID]*message{}, held: map[int64]*message{},
		sessions: map[string]*session{}, receivers: map[*link]struct{}{},
	}
	q.all.which, q.ready.which, q.locked.which = inAll, inReady, inLocked
	return q
}

// sessionful says whether messages are handed out by session. Those of sub-queues
// aren't.
func (q *queue) sessionful() bool { return q.p.RequiresSession && q.parent == nil }

// add stores m as the newest message, ready or scheduled. It doesn't hand it out.
func (q *queue) add(m *message, now time.Time) {
	q.last++
	m.seq = q.last
	q.all.pushBack(m)
	q.size += int64(m.size())
	if m.due.After(now) {
		m.state = scheduled
		q.held[m.seq] = m
		heap.Push(&q.scheduled, dueMessage{m.due, m})
		q.dueTimer.arm(q.s, m.due, q.activate)
		return
	}
	m.enqueued, m.expires = now, time.Time{}
	if q.parent == nil { // what is dead-lettered never expires (SB-F-20)
		m.expire(q.p.TimeToLive)
	}
	q.expireLater(m)
	q.makeReady(m)
}

func (q *queue) expireLater(m *message) {
	if q.parent == nil && !m.expires.IsZero() {
		heap.Push(&q.expiring, dueMessage{m.expires, m})
		q.expireTimer.arm(q.s, m.expires, q.expire)
	}
}

// makeReady offers m to receivers, in the place that its number gives it.
func (q *queue) makeReady(m *message) {
	m.state = ready
	if !q.sessionful() {
		q.ready.insertBySeq(m)
		return
	}
	m.session = q.session(m.sid)
	m.session.ready.insertBySeq(m)
	q.offer(m.session)
}

// remove removes m for good.
func (q *queue) remove(m *message) {
	q.unlock(m)
	q.all.remove(m)
	if m.session != nil {
		m.session.ready.remove(m)
	} else {
		q.ready.remove(m)
	}
	delete(q.held, m.seq)
	q.size -= int64(m.size())
	m.state = gone
}

// lock hands m out: until is when the lock ends. It leaves the ready ones.
func (q *queue) lock(m *message, ss *session, now time.Time) {
	if m.session != nil {
		m.session.ready.remove(m)
	} else {
		q.ready.remove(m)
	}
	m.state = locked
	m.token = q.s.newToken()
	q.tokens[m.token] = m
	if ss != nil { // the session's lock is the message's (SB-F-23)
		m.lockedUntil = ss.until
		ss.locked.pushBack(m)
		return
	}
	m.lockedUntil = now.Add(q.p.LockDuration).Truncate(time.Millisecond)
	q.locked.insertByLock(m)
	q.lockTimer.arm(q.s, m.lockedUntil, q.expireLocks)
}

// unlock takes m's lock from whoever holds it.
func (q *queue) unlock(m *message) {
	if m.state != locked {
		return
	}
	delete(q.tokens, m.token)
	q.locked.remove(m)
	if m.session != nil {
		m.session.locked.remove(m)
	}
	m.token = amqp.UUID{}
}

// renew gives m a full period from now on (SB-F-13) and returns its end.
func (q *queue) renew(m *message, now time.Time) time.Time {
	m.lockedUntil = now.Add(q.p.LockDuration).Truncate(time.Millisecond)
	q.locked.remove(m)
	q.locked.insertByLock(m)
	q.lockTimer.arm(q.s, m.lockedUntil, q.expireLocks)
	return m.lockedUntil
}

// expireLocks gives back what was held too long. That counts as a failed delivery
// (SB-F-18).
func (q *queue) expireLocks(now time.Time) {
	for m := q.locked.head; m != nil && !m.lockedUntil.After(now); m = q.locked.head {
		q.giveBack(m, true, now)
	}
	if m := q.locked.head; m != nil {
		q.lockTimer.arm(q.s, m.lockedUntil, q.expireLocks)
	}
	q.pump(now)
}

// giveBack ends m's lock without success. If that counts and reaches the maximum,
// m is dead-lettered (SB-F-18, SB-F-19). A deferred message stays deferred.
func (q *queue) giveBack(m *message, counts bool, now time.Time) {
	q.unlock(m)
	counts = counts && q.parent == nil // dead letters count no further (SB-F-45)
	if counts {
		m.count++
	}
	if counts && m.count >= q.p.MaxDeliveries {
		q.deadLetter(m, "MaxDeliveryCountExceeded",
			fmt.Sprintf("Message could not be consumed after %d delivery attempts.", m.count), nil, now)
		return
	}
	if m.isDeferred {
		m.state = deferred
		q.held[m.seq] = m
		return
	}
	q.makeReady(m)
	if !m.expires.IsZero() && !m.expires.After(now) {
		q.expireOne(m, now)
	}
}

// deadLetter moves m to the dead-letter sub-queue, or to where the entity forwards
// those (SB-F-19). Of a sub-queue's own messages none moves further.
func (q *queue) deadLetter(m *message, reason, description string, more []property, now time.Time) {
	q.remove(m)
	m.due, m.session, m.isDeferred = time.Time{}, nil, false
	m.enqueuedSeq = m.seq
	m.source = q.path
	props := more
	if reason != "" {
		props = append(props, text("DeadLetterReason", reason))
	}
	if description != "" {
		props = append(props, text("DeadLetterErrorDescription", description))
	}
	m.set(props)
	if q.p.ForwardDeadLettersTo != "" && q.s.forward(m, q.p.ForwardDeadLettersTo, q, now) {
		return
	}
	q.dead.add(m, now)
	q.dead.pump(now)
}

// activate makes scheduled messages ready whose time has come. They get new
// numbers (SB-F-28).
func (q *queue) activate(now time.Time) {
	for len(q.scheduled) > 0 && !q.scheduled[0].at.After(now) {
		m := heap.Pop(&q.scheduled).(dueMessage).m
		if m.state != scheduled {
			continue
		}
		q.remove(m)
		m.due = time.Time{}
		q.publish(m, now)
	}
	if len(q.scheduled) > 0 {
		q.dueTimer.arm(q.s, q.scheduled[0].at, q.activate)
	}
	q.pump(now)
}

// expire ends messages whose time to live is over. One that is locked lives until
// its lock ends, a deferred one until somebody asks for it (SB-F-22).
func (q *queue) expire(now time.Time) {
	for len(q.expiring) > 0 && !q.expiring[0].at.After(now) {
		m := heap.Pop(&q.expiring).(dueMessage).m
		if m.state == ready && m.nodes[inAll].in == &q.all && !m.expires.After(now) {
			q.expireOne(m, now)
		}
	}
	if len(q.expiring) > 0 {
		q.expireTimer.arm(q.s, q.expiring[0].at, q.expire)
	}
}

func (q *queue) expireOne(m *message, now time.Time) {
	if q.p.DeadLetterExpired {
		q.deadLetter(m, "TTLExpiredException", "The message expired and was dead lettered.", nil, now)
		return
	}
	q.remove(m)
}

// dueHeap has messages by the time when something is due with them. It may hold
// messages that have left since.
type dueHeap []dueMessage

type dueMessage struct {
	at time.Time
	m  *message
}

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].m.seq < h[j].m.seq
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *dueHeap) Push(x any) { *h = append(*h, x.(dueMessage)) }

// Pop is part of heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = dueMessage{}
	*h = old[:len(old)-1]
	return x
}

// timer calls a function of a queue or session at the earliest time that it was
// armed for. It is set for no later time than it was before: who is called finds
// out what is due, and arms it again.
type timer struct {
	t  *clock.Timer
	at time.Time
}

func (t *timer) arm(s *Server, at time.Time, f func(now time.Time)) {
	if t.t != nil && !t.at.After(at) || s.closed {
		return
	}
	t.stop()
	t.at = at
	var mine *clock.Timer
	mine = s.clock.AfterFunc(at.Sub(s.clock.Now()), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.t != mine || s.closed {
			return
		}
		t.t = nil
		f(s.clock.Now())
	})
	t.t = mine
}

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
}
