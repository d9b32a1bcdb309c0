package stream

import "slices"

// groupKey names the single active consumers of one name on one stream.
type groupKey struct {
	stream *stream
	name   string
}

// group is those consumers in the order in which they came. The first is active.
type group struct {
	key     groupKey
	members []*subscription
}

// join adds a member; the first one is told that it is active (RMS-F-16).
func (s *Server) join(sub *subscription) {
	k := groupKey{sub.stream, sub.name}
	g := s.groups[k]
	if g == nil {
		g = &group{key: k}
		s.groups[k] = g
	}
	sub.group = g
	g.members = append(g.members, sub)
	if g.members[0] == sub {
		sub.promote()
	}
}

// leave takes a member away; if it was the active one, the next one is told.
func (s *Server) leave(sub *subscription) {
	g := sub.group
	was := g.members[0] == sub
	g.members = slices.DeleteFunc(g.members, func(o *subscription) bool { return o == sub })
	switch {
	case len(g.members) == 0:
		delete(s.groups, g.key)
	case was:
		g.members[0].promote()
	}
}

// promote asks the member where to begin.
func (sub *subscription) promote() {
	c := sub.conn
	c.correlate++
	id := c.correlate
	c.updates[id] = sub
	c.send(cmdConsumerUpdate, func(b []byte) []byte { return append(put32(b, id), sub.id, 1) })
	c.wake()
}

// decodeUpdate takes a member's answer to promote. Clients send it with the
// response's bit or without.
func (c *conn) decodeUpdate(f *frame) act {
	id := f.id
	f.c.u16() // the broker goes on whatever the code is
	at := spec{}
	if len(f.c.b) > 0 {
		at = f.c.spec()
	}
	return func() bool {
		sub := c.updates[id]
		if sub == nil {
			return true
		}
		delete(c.updates, id)
		if at.kind == specNone {
			at = sub.start
		}
		sub.begin(at)
		return true
	}
}
