package memory

// node is a member's place in at most one list at a time. It lies inside of the
// member, so that to join and to leave cost no allocation.
type node[T any] struct {
	prev, next *node[T]
	in         *list[T]
	of         T
}

// list is a queue whose members can leave from the middle.
type list[T any] struct {
	head, tail *node[T]
	n          int
}

func (l *list[T]) push(e *node[T]) {
	e.in, e.prev, e.next = l, l.tail, nil
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
	l.n++
}

func (l *list[T]) pushFront(e *node[T]) {
	e.in, e.prev, e.next = l, nil, l.head
	if l.head == nil {
		l.tail = e
	} else {
		l.head.prev = e
	}
	l.head = e
	l.n++
}

// pop takes the first member out; the list must not be empty.
func (l *list[T]) pop() T {
	e := l.head
	e.leave()
	return e.of
}

// leave takes e out of the list it is in, if any.
func (e *node[T]) leave() {
	l := e.in
	if l == nil {
		return
	}
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next, e.in = nil, nil, nil
	l.n--
}
