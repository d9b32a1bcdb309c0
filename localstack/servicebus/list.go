package servicebus

// A message can be in three lists at once: of all in its queue by number, of those
// that are ready or locked.
const (
	inAll = iota
	inReady
	inLocked
	lists
)

type place struct {
	prev, next *message
	in         *list
}

// list is a doubly linked list of messages through their own nodes: what is taken
// out of the middle, as messages are that are settled, costs nothing.
type list struct {
	which      int
	head, tail *message
	hint       *message // where the last one was put in order
	n          int
}

func (l *list) pushBack(m *message) { l.insertAfter(m, l.tail) }

// insertAfter puts m behind at; nil: at the front.
func (l *list) insertAfter(m, at *message) {
	w := l.which
	next := l.head
	if at != nil {
		next = at.nodes[w].next
		at.nodes[w].next = m
	} else {
		l.head = m
	}
	if next != nil {
		next.nodes[w].prev = m
	} else {
		l.tail = m
	}
	m.nodes[w] = place{prev: at, next: next, in: l}
	l.n++
}

func (l *list) remove(m *message) {
	w := l.which
	nd := m.nodes[w]
	if nd.in != l {
		return
	}
	if nd.prev != nil {
		nd.prev.nodes[w].next = nd.next
	} else {
		l.head = nd.next
	}
	if nd.next != nil {
		nd.next.nodes[w].prev = nd.prev
	} else {
		l.tail = nd.prev
	}
	if l.hint == m {
		l.hint = nd.prev
	}
	m.nodes[w] = place{}
	l.n--
}

// insertBySeq puts m where its number belongs. Messages that come back do so near
// the front and one behind the other, so it looks from where the last one went.
func (l *list) insertBySeq(m *message) {
	if l.tail == nil || l.tail.seq < m.seq {
		l.pushBack(m)
		return
	}
	at := l.hint
	if at != nil && at.seq > m.seq {
		at = nil
	}
	for next := l.after(at); next != nil && next.seq < m.seq; next = l.after(at) {
		at = next
	}
	l.insertAfter(m, at)
	l.hint = m
}

// insertByLock puts m where the end of its lock belongs, which is the end of the
// list unless the entity's lock duration has changed.
func (l *list) insertByLock(m *message) {
	at := l.tail
	for at != nil && at.lockedUntil.After(m.lockedUntil) {
		at = at.nodes[l.which].prev
	}
	l.insertAfter(m, at)
}

// after returns the message behind at; behind nil is the first.
func (l *list) after(at *message) *message {
	if at == nil {
		return l.head
	}
	return at.nodes[l.which].next
}
