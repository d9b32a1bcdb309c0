package rabbitmq

import "slices"

// pending is a delivery that waits for its settlement.
type pending struct {
	tag  uint64
	item item
	q    *queue    // nil where the place is empty
	c    *consumer // nil where the message was fetched by basic.get
	due  int64     // ms since 1970 when the consumer is late; 0 is never
	back bool      // taken back by timeout: only the tag is left
}

// unacked holds a channel's deliveries in the order of their tags. Settled ones
// leave empty places, which are removed when they are the most.
type unacked struct {
	list  []pending
	start int // before it, all places are empty
	empty int // places behind start
}

func (u *unacked) push(p pending) { u.list = append(u.list, p) }

// len returns how many wait.
func (u *unacked) len() int { return len(u.list) - u.start - u.empty }

// find returns the place of a tag, -1 where it isn't.
func (u *unacked) find(tag uint64) int {
	i, ok := slices.BinarySearchFunc(u.list[u.start:], tag, func(p pending, tag uint64) int {
		switch {
		case p.tag < tag:
			return -1
		case p.tag > tag:
			return 1
		}
		return 0
	})
	if i += u.start; !ok || u.list[i].q == nil {
		return -1
	}
	return i
}

// take removes the delivery with this tag, or with multiple all up to it, and
// appends them to into. It is false where there is none with this tag; 0 with
// multiple means all (RMQ-F-10).
func (u *unacked) take(tag uint64, multiple bool, into []pending) ([]pending, bool) {
	if multiple && tag == 0 {
		for i := u.start; i < len(u.list); i++ {
			if u.list[i].q != nil {
				into = append(into, u.list[i])
			}
		}
		*u = unacked{list: u.list[:0]}
		return into, true
	}
	i := u.find(tag)
	if i < 0 {
		return into, false
	}
	first := i
	if multiple {
		first = u.start
	}
	for j := first; j <= i; j++ {
		if u.list[j].q != nil {
			into = append(into, u.list[j])
			tag := u.list[j].tag
			u.list[j] = pending{tag: tag}
			u.empty++
		}
	}
	u.tidy()
	return into, true
}

// tidy moves start over empty places and frees what lies before it.
func (u *unacked) tidy() {
	for u.start < len(u.list) && u.list[u.start].q == nil {
		u.start++
		u.empty--
	}
	switch {
	case u.start == len(u.list):
		*u = unacked{list: u.list[:0]}
		if cap(u.list) > 4096 {
			u.list = nil
		}
	case u.start > len(u.list)/2 && u.start > 64, u.empty > len(u.list)/2 && u.empty > 64:
		u.list = slices.DeleteFunc(u.list, func(p pending) bool { return p.q == nil })
		u.start, u.empty = 0, 0
	}
}

// put gives deliveries back to where they were, for a transaction that is rolled
// back.
func (u *unacked) put(list []pending) {
	all := append(slices.DeleteFunc(u.list, func(p pending) bool { return p.q == nil }), list...)
	slices.SortFunc(all, func(a, b pending) int { return int(int64(a.tag - b.tag)) })
	*u = unacked{list: all}
}
