package rabbitmq

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
)

// vhost is a virtual host: a space of names for exchanges and queues.
type vhost struct {
	s         *Server
	name      string
	exchanges map[string]*exchange
	queues    map[string]*queue
	topology  uint64 // counts changes, by which cached routes get stale
}

// builtin are the exchanges that every virtual host has from its start.
var builtin = []struct{ name, kind string }{
	{"", "direct"}, {"amq.direct", "direct"}, {"amq.fanout", "fanout"}, {"amq.topic", "topic"},
	{"amq.headers", "headers"}, {"amq.match", "headers"},
}

func newVHost(s *Server, name string) *vhost {
	v := &vhost{s: s, name: name, exchanges: map[string]*exchange{}, queues: map[string]*queue{}}
	for _, x := range builtin {
		v.exchanges[x.name] = &exchange{v: v, name: x.name, kind: x.kind, durable: true}
	}
	v.exchanges["amq.rabbitmq.trace"] = &exchange{v: v, name: "amq.rabbitmq.trace", kind: "topic", durable: true, internal: true}
	return v
}

// sortedQueues returns the queues by name, so that what a restart does has one
// order.
func (v *vhost) sortedQueues() []*queue {
	names := slices.Sorted(maps.Keys(v.queues))
	list := make([]*queue, len(names))
	for i, name := range names {
		list[i] = v.queues[name]
	}
	return list
}

func (v *vhost) stopTimers() {
	for _, q := range v.queues {
		q.stopTimers()
	}
}

// newName generates a name that no one has, in the form of RabbitMQ's: the prefix
// and 22 characters.
func (s *Server) newName(prefix string) string {
	s.names++
	var b [16]byte
	binary.BigEndian.PutUint64(b[8:], s.names)
	x := s.names * 0x9E3779B97F4A7C15 // names look alike only by chance
	binary.BigEndian.PutUint64(b[:], x)
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}
