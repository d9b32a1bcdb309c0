package stream

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

func (c *conn) decodeCreate(f *frame) act {
	name, args := f.c.str(), f.c.props()
	f.stream = name
	return func() bool {
		k := key{c.vhost, name}
		s, valid := newStream(k, args)
		code := uint16(codeOK)
		switch {
		case strings.TrimSpace(name) == "" || strings.ContainsFunc(name, unicode.IsControl) || !valid:
			code = codePrecondition
		case c.server.streams[k] != nil && !maps.Equal(c.server.streams[k].args, s.args):
			code = codePrecondition
		case c.server.streams[k] != nil:
			code = codeStreamExists
		default:
			c.server.streams[k] = s
		}
		c.answer(f, code, nil)
		return code == codeOK
	}
}

// newStream reads a stream's arguments.
func newStream(k key, args map[string]string) (*stream, bool) {
	s := &stream{key: k, args: map[string]string{}, segBytes: defaultSegment, sequences: map[string]sequence{},
		offsets: map[string]uint64{}, subs: map[*subscription]struct{}{}}
	for name, value := range args {
		ok := true
		switch name {
		case "max-age":
			s.maxAge, ok = parseAge(value)
		case "max-length-bytes":
			s.maxBytes, ok = parseBytes(value)
		case "stream-max-segment-size-bytes":
			s.segBytes, ok = parseBytes(value)
		case "queue-leader-locator", "initial-cluster-size":
			continue // where replicas are, not what the stream is
		default:
			ok = false
		}
		if !ok {
			return s, false
		}
		s.args[name] = value
	}
	return s, true
}

func parseBytes(v string) (int64, bool) {
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil && n > 0
}

// parseAge reads a number with one of the broker's units.
func parseAge(v string) (time.Duration, bool) {
	units := map[byte]time.Duration{
		'Y': 365 * 24 * time.Hour, 'M': 30 * 24 * time.Hour, 'D': 24 * time.Hour,
		'h': time.Hour, 'm': time.Minute, 's': time.Second,
	}
	if v == "" {
		return 0, false
	}
	unit, known := units[v[len(v)-1]]
	n, err := strconv.ParseInt(v[:len(v)-1], 10, 32)
	return time.Duration(n) * unit, known && err == nil && n > 0
}

func (c *conn) decodeDelete(f *frame) act {
	name := f.c.str()
	f.stream = name
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		if s == nil {
			c.answer(f, codeNoStream, nil)
			return false
		}
		c.answer(f, codeOK, nil)
		c.server.drop(s)
		return true
	}
}

// drop deletes a stream. Whoever publishes to it or reads it is told.
func (s *Server) drop(gone *stream) {
	delete(s.streams, gone.key)
	for c := range s.conns {
		told := false
		for id, p := range c.publishers {
			if p.stream == gone {
				delete(c.publishers, id)
				told = true
			}
		}
		for _, sub := range slices.Clone(c.order) {
			if sub.stream == gone {
				sub.group = nil
				s.unsubscribe(c, sub.id)
				told = true
			}
		}
		if told {
			c.send(cmdMetadataUpdate, func(b []byte) []byte {
				return putStr(put16(b, codeStreamUnavailable), gone.key.name)
			})
			c.wake()
		}
	}
	maps.DeleteFunc(s.groups, func(k groupKey, _ *group) bool { return k.stream == gone })
}

func (c *conn) decodeMetadata(f *frame) act {
	var asked []string
	for n := f.c.u32(); n > 0 && !f.c.bad; n-- {
		asked = append(asked, f.c.str())
	}
	if len(asked) > 0 {
		f.stream = asked[0]
	}
	f.c.b = nil
	f.asked = asked
	return func() bool {
		c.metadata(f, func(k key) uint16 {
			if c.server.streams[k] == nil {
				return codeNoStream
			}
			return codeOK
		})
		return true
	}
}

// metadata answers where streams are: on this node, all of them.
func (c *conn) metadata(f *frame, code func(key) uint16) {
	host, port := c.address()
	c.send(f.key|responseBit, func(b []byte) []byte {
		b = put32(put32(b, f.id), 1)
		b = put32(putStr(put16(b, 0), host), uint32(port))
		b = put32(b, uint32(len(f.asked)))
		for _, name := range f.asked {
			code := code(key{c.vhost, name})
			b = put16(putStr(b, name), code)
			if code == codeOK {
				b = put16(b, 0)
			} else {
				b = put16(b, 0xffff) // no leader
			}
			b = put32(b, 0)
		}
		return b
	})
}

func (c *conn) decodeStats(f *frame) act {
	name := f.c.str()
	f.stream = name
	return func() bool {
		s := c.server.streams[key{c.vhost, name}]
		if s == nil {
			c.fail(f, codeNoStream)
			return false
		}
		last, ok := s.last()
		first, committed := int64(s.firstOffset()), int64(last)
		if !ok {
			first, committed = -1, -1
		}
		c.answer(f, codeOK, func(b []byte) []byte {
			b = put32(b, 3)
			b = put64(putStr(b, "first_chunk_id"), uint64(first))
			b = put64(putStr(b, "last_chunk_id"), uint64(committed))
			return put64(putStr(b, "committed_chunk_id"), uint64(committed))
		})
		return true
	}
}
