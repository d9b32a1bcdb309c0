package sqs

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// handed is a message as one receive hands it out.
type handed struct {
	m       *message
	receive uint32
	ends    int64
	count   int
	first   int64
}

// ask is what a receive asks for.
type ask struct {
	max        int
	wait       time.Duration
	visibility time.Duration
	attempt    string
}

// limits of a receive (SQS-F-18, SQS-F-42).
const (
	maxWait  = 20
	maxLease = 12 * time.Hour
)

func (q *queue) ask(r *request) (ask, *apiError) {
	a := ask{max: 1, wait: q.wait, visibility: q.visibility}
	if r.max.set {
		if a.max = r.max.n; a.max < 1 || a.max > maxBatch {
			return a, invalidValue(strconv.Itoa(a.max), "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
		}
	}
	if r.wait.set {
		if r.wait.n < 0 || r.wait.n > maxWait {
			return a, invalidValue(strconv.Itoa(r.wait.n), "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
		}
		a.wait = seconds(r.wait.n)
	}
	if v := r.visibility; v.set {
		if v.n < 0 || seconds(v.n) > maxLease {
			return a, badVisibility(v.n)
		}
		a.visibility = seconds(v.n)
	}
	if r.attempt.set && q.fifo { // a standard queue doesn't look at it (SQS-F-59)
		if a.attempt = r.attempt.s; !identifier(a.attempt) {
			return a, badIdentifier("ReceiveRequestAttemptId", a.attempt)
		}
	}
	return a, nil
}

func badVisibility(n int) *apiError {
	return invalidValue(strconv.Itoa(n), "VisibilityTimeout", "Must be between 0 and 43200, if provided.")
}

// receive hands messages out, and waits for the first where it is asked to. It is
// called with the lock held, returns with it, and waits without it. It takes no
// message once its client has gone: that would hide it for nobody.
func (s *Server) receive(c *call, q *queue, a ask) ([]handed, *apiError) {
	now := s.now()
	q.tick(now)
	if a.attempt != "" {
		if got, err := q.replay(a, now); got != nil || err != nil {
			q.after(now)
			return got, err
		}
	}
	if !q.fifo && a.wait == 0 && q.nInFlight >= s.inFlightLimit {
		return nil, overLimit() // SQS-F-30; FIFO queues don't say so (SQS-F-31)
	}
	got := s.take(q, a, now)
	if len(got) == 0 && a.wait > 0 && c.alive() {
		got = s.poll(c, q, a)
		now = s.now()
	}
	if q.deleted {
		return nil, noQueue()
	}
	if a.attempt != "" && len(got) > 0 {
		q.note(a, got, now)
	}
	q.after(now)
	return got, nil
}

// poll is the long form of receive.
func (s *Server) poll(c *call, q *queue, a ask) []handed {
	w := q.join()
	defer q.leave(w)
	timer := s.clock.AfterFunc(a.wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.expired = true
		w.rouse()
	})
	defer timer.Stop()
	for {
		w.rest()
		q.after(s.now())
		s.mu.Unlock()
		select {
		case <-w.wake:
		case <-c.gone():
		case <-c.cut:
		}
		s.mu.Lock()
		now := s.now()
		q.tick(now)
		if !c.alive() || q.deleted {
			return nil
		}
		if got := s.take(q, a, now); len(got) > 0 || w.expired {
			return got
		}
	}
}

func overLimit() *apiError {
	return failure(403, modelled+"OverLimit", "OverLimit", "Too many messages are in flight.")
}

// take hands out what may be received now.
func (s *Server) take(q *queue, a ask, now int64) []handed {
	if q.fifo {
		return s.takeGroups(q, a, now)
	}
	var got []handed
	for len(got) < a.max && q.nInFlight < s.inFlightLimit {
		m := q.fresh.top()
		if r := q.returned.top(); r != nil && (m == nil || r.uid < m.uid) {
			m = r
		} else if m != nil {
			q.fresh.pop()
		} else {
			break
		}
		if m.heapIndex >= 0 {
			q.returned.remove(m)
		}
		if s.discard(q, m, now) {
			continue
		}
		got = append(got, q.hand(m, a, now))
	}
	for _, h := range got {
		if h.m.state == ready { // a lease of no length: it may be received again
			q.returned.push(h.m)
		}
	}
	return got
}

// takeGroups takes as many as it can from one group before it goes to the next
// (SQS-F-51), in each up to the first message that is hidden (SQS-F-28).
func (s *Server) takeGroups(q *queue, a ask, now int64) []handed {
	var got []handed
	var visited []*group
	for len(got) < a.max && q.nInFlight < s.inFlightLimit {
		g := q.ready.first
		if g == nil {
			break
		}
		q.ready.remove(g)
		g.busy = true
		visited = append(visited, g)
		for m := g.head; m != nil && m.state == ready && q.inSight(m) && len(got) < a.max && q.nInFlight < s.inFlightLimit; {
			next := m.gnext
			if !s.discard(q, m, now) {
				got = append(got, q.hand(m, a, now))
			}
			m = next
		}
	}
	for _, g := range visited {
		g.busy = false
		q.review(g)
	}
	return got
}

// discard takes a message that may be received out of the queue instead: past
// its retention, or received too often, which moves it (SQS-F-34).
func (s *Server) discard(q *queue, m *message, now int64) bool {
	if q.expired(m, now) {
		q.drop(m)
		return true
	}
	if q.maxReceives == 0 || m.receives < q.maxReceives {
		return false
	}
	dlq := s.byARN(q.target)
	if dlq == nil || dlq == q {
		return false // its target was deleted: it stays
	}
	q.bury(m, now)
	dead := *m
	dead.state, dead.heapIndex, dead.receives, dead.leaseEnds = ready, -1, 0, 0
	dead.inGroup, dead.gprev, dead.gnext = nil, nil, nil
	dead.source = q.arn
	dead.visibleAt = now
	if dlq.fifo {
		dead.enqueuedAt, dead.sentAt = now, now // SQS-F-35
	}
	dlq.tick(now)
	dlq.add(&dead, now)
	dlq.after(now)
	return true
}

// hand gives a message out once more.
func (q *queue) hand(m *message, a ask, now int64) handed {
	if m.receives == 0 {
		q.received[m.uid] = m
	}
	m.receives++
	m.count++
	if m.firstAt == 0 {
		m.firstAt = now
	}
	m.takenAt = now
	m.visibleAt = now + int64(a.visibility)
	m.leaseEnds = m.visibleAt
	if a.visibility > 0 {
		q.hide(m)
	}
	return handed{m: m, receive: uint32(m.receives), ends: m.leaseEnds, count: m.count, first: m.firstAt}
}

// note remembers what a receive with an attempt ID handed out (SQS-F-27).
func (q *queue) note(a ask, got []handed, now int64) {
	t := &attempt{gave: make([]given, len(got)), until: now + int64(window)}
	for i, h := range got {
		t.gave[i] = given{uid: h.m.uid, receive: h.receive, hides: h.m.visibleAt, ends: h.ends}
	}
	q.attempts.remember(a.attempt, t, now)
}

// replay answers a receive whose attempt ID is known: with the same messages and
// handles, whose leases start anew (SQS-F-27); with an error if one of them was
// settled or its lease changed (SQS-F-59). After the leases it is a new receive.
func (q *queue) replay(a ask, now int64) ([]handed, *apiError) {
	t := q.attempts.find(a.attempt, now)
	if t == nil {
		return nil, nil
	}
	over := true
	for _, g := range t.gave {
		m := q.received[g.uid]
		if m == nil || uint32(m.receives) != g.receive || m.visibleAt != g.hides {
			return nil, invalidValue(a.attempt, "ReceiveRequestAttemptId", "The receiveRequestAttemptId is not valid anymore since the receive call is not retryable.")
		}
		over = over && m.state != inFlight
	}
	if over {
		return nil, nil
	}
	got := make([]handed, len(t.gave))
	for i := range t.gave {
		g := &t.gave[i]
		m := q.received[g.uid]
		m.takenAt, m.visibleAt = now, now+int64(a.visibility)
		g.hides = m.visibleAt
		q.hidden.fix(m)
		got[i] = handed{m: m, receive: g.receive, ends: g.ends, count: m.count, first: m.firstAt}
	}
	q.tick(now) // a lease of no length ends at once
	return got, nil
}

// call is a request that is being served.
type call struct {
	ctx context.Context
	cut <-chan struct{} // closed when all connections are ended
}

// gone is closed when the client has gone.
func (c *call) gone() <-chan struct{} { return c.ctx.Done() }

func (c *call) alive() bool {
	select {
	case <-c.cut:
		return false
	default:
		return c.ctx.Err() == nil
	}
}

// wanted says which attributes a receiver asked for (SQS-F-64).
type wanted struct {
	all   bool
	names []string
}

func (w wanted) has(name string) bool {
	if w.all {
		return true
	}
	for _, n := range w.names {
		if n == name {
			return true
		}
	}
	return false
}

// matches is has for message attributes, where a name may end in .* for all that
// begin so.
func (w wanted) matches(name string) bool {
	if w.has(name) {
		return true
	}
	for _, n := range w.names {
		if prefix, ok := strings.CutSuffix(n, ".*"); ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func wants(names []string, all ...string) wanted {
	w := wanted{names: names}
	for _, n := range names {
		for _, a := range all {
			w.all = w.all || n == a
		}
	}
	return w
}
