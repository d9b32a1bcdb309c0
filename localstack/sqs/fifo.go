package sqs

import "strings"

// group is a message group of a FIFO queue: its messages in order. The first that
// can't be received blocks all behind it, so that no order is lost; those before
// it may be received though it is in flight (SQS-F-28, SQS-F-50).
type group struct {
	name       string
	head, tail *message
	prev, next *group // among the groups that have something to receive
	listed     bool
	busy       bool // a receive goes through it, and reviews it afterwards
}

// groupList is the groups that have something to receive, in the order in which
// they came to have it: a group that was received from goes to the end (SQS-F-51).
type groupList struct{ first, last *group }

func (l *groupList) push(g *group) {
	g.listed = true
	g.prev, g.next = l.last, nil
	if l.last == nil {
		l.first = g
	} else {
		l.last.next = g
	}
	l.last = g
}

func (l *groupList) remove(g *group) {
	if g.prev == nil {
		l.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		l.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.prev, g.next, g.listed = nil, nil, false
}

// enlist appends a message to its group.
func (q *queue) enlist(m *message) {
	g := q.groups[m.group]
	if g == nil {
		g = &group{name: strings.Clone(m.group)} // it may outlive the message
		q.groups[g.name] = g
	}
	m.inGroup = g
	m.gprev, m.gnext = g.tail, nil
	if g.tail == nil {
		g.head = m
	} else {
		g.tail.gnext = m
	}
	g.tail = m
	if q.total <= q.server.backlogLimit {
		q.horizon = m
	}
}

// delist takes a message out of its group, which may unblock the next one there,
// or in the whole queue the first that was beyond the horizon.
func (q *queue) delist(m *message) {
	g := m.inGroup
	if m.gprev == nil {
		g.head = m.gnext
	} else {
		m.gprev.gnext = m.gnext
	}
	if m.gnext == nil {
		g.tail = m.gprev
	} else {
		m.gnext.gprev = m.gprev
	}
	m.gprev, m.gnext, m.inGroup = nil, nil, nil
	if q.horizon != nil && m.uid <= q.horizon.uid {
		if next := q.horizon.next; next != nil {
			q.horizon = next
			q.review(next.inGroup)
		} else if q.horizon == m {
			q.horizon = m.prev
		}
	}
	q.review(g)
}

// review lists a group when its first message may be received, and forgets one
// that is empty.
func (q *queue) review(g *group) {
	switch h := g.head; {
	case g.busy:
	case h == nil:
		if g.listed {
			q.ready.remove(g)
		}
		if q.groups[g.name] == g {
			delete(q.groups, g.name)
		}
	case !g.listed && h.state == ready && q.inSight(h):
		q.ready.push(g)
	case g.listed && h.state != ready:
		q.ready.remove(g)
	}
}

// inSight says whether a receive looks as far as m (SQS-F-32).
func (q *queue) inSight(m *message) bool {
	return q.horizon != nil && m.uid <= q.horizon.uid
}
