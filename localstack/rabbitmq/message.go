package rabbitmq

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// message is what was published, shared by all queues that hold it. It never
// changes.
type message struct {
	exchange    string
	key         string
	props       []byte // as [amqp.Properties.Append] writes them
	body        []byte
	persistent  bool
	priority    uint8
	hasPriority bool
	ttl         int64    // of its own, in ms; -1 is none
	cc          []string // more routing keys, by the CC header
	bcc         []string // and by the BCC header, which consumers don't see
	deaths      []death  // the newest first
	first       *death   // as it was then
}

// item is a message in one queue.
type item struct {
	*message
	seq         uint64 // its place in the queue
	expires     int64  // ms since 1970 by the server's clock; 0 is never
	deliveries  uint32 // that count against the delivery limit
	acquired    uint32 // deliveries that came back
	redelivered bool
	confirmed   bool // its publisher was told that it is safe
}

// readProperties fills in what the broker looks at in a message.
func (m *message) readProperties() (amqp.Properties, *exception) {
	p, err := amqp.ParseProperties(m.props)
	if err != nil {
		return p, refuse(amqp.InternalError, "") // RabbitMQ's channel fails by it
	}
	m.persistent = p.DeliveryMode == 2
	m.priority, m.hasPriority = p.Priority, p.Flags&amqp.HasPriority != 0
	m.ttl = -1
	if p.Flags&amqp.HasExpiration != 0 {
		ttl, reason := parseExpiration(p.Expiration)
		if reason != "" {
			return p, refuse(amqp.PreconditionFailed, "invalid expiration '%s': %s", p.Expiration, reason)
		}
		m.ttl = ttl
	}
	return p, nil
}

// maxExpiry is the longest time in milliseconds that RabbitMQ accepts.
const maxExpiry = 315_360_000_000 // ten years

// parseExpiration reads a TTL in milliseconds, or says as RabbitMQ does why it is
// none.
func parseExpiration(b []byte) (ttl int64, reason string) {
	digits := len(b) - len(bytes.TrimLeft(b, "0123456789"))
	n, err := strconv.ParseInt(string(b[:digits]), 10, 64)
	switch {
	case len(b) > 0 && b[0] == '-':
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err == nil {
			return 0, fmt.Sprintf("{value_negative,%d}", n)
		}
		return 0, "no_integer"
	case digits == 0:
		return 0, "no_integer"
	case digits < len(b):
		return 0, fmt.Sprintf("{leftover_string,%q}", b[digits:])
	case err != nil || n > maxExpiry:
		return 0, fmt.Sprintf("{value_too_big,%s}", b)
	}
	return n, ""
}

// readRoutes takes more routing keys from the headers: CC and BCC, of which the
// latter is removed (RMQ-F-32). Most messages have none, and cost a search.
func (m *message) readRoutes(p *amqp.Properties) *exception {
	if !bytes.Contains(p.Headers, []byte("CC")) {
		return nil
	}
	headers, err := amqp.ParseTable(p.Headers)
	if err != nil {
		return nil // as bad as before: who reads it will say so
	}
	if m.cc, err = routes(headers, "CC"); err == nil {
		m.bcc, err = routes(headers, "BCC")
	}
	if err != nil {
		return refuse(amqp.PreconditionFailed, "invalid message: %s", err)
	}
	if _, ok := headers.Get("BCC"); ok {
		p.Headers = headers.Without("BCC").Append(nil)[4:]
		m.props = p.Append(nil)
	}
	return nil
}

func routes(headers amqp.Table, name string) ([]string, error) {
	v, ok := headers.Get(name)
	if !ok {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New(`{unacceptable_type_in_header,"` + name + `",` + typeName(v) + `}`)
	}
	var keys []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys, nil
}

// headers decodes the message's headers. Those that can't be are none.
func (m *message) headers() amqp.Table {
	p, err := amqp.ParseProperties(m.props)
	if err != nil {
		return nil
	}
	t, _ := amqp.ParseTable(p.Headers)
	return t
}

// queues returns where the message goes from an exchange.
func (m *message) queues(x *exchange, key []byte) []*queue {
	found := x.route(key, m.headers)
	if len(m.cc)+len(m.bcc) == 0 {
		return found
	}
	have := map[*queue]bool{}
	var all []*queue
	collect := func(list []*queue) {
		for _, q := range list {
			if !have[q] {
				have[q] = true
				all = append(all, q)
			}
		}
	}
	collect(found)
	for _, k := range append(m.cc[:len(m.cc):len(m.cc)], m.bcc...) {
		collect(x.route([]byte(k), m.headers))
	}
	return all
}

// size is what the message counts for in a queue's limit of bytes: its body.
func (m *message) size() int64 { return int64(len(m.body)) }

// outgoing returns the properties as a consumer gets them: with the counts of a
// quorum queue and the history of dead letters, where there are any. V3 gives a
// message that is fetched a count of 0 too (RMQ-F-16).
func (it *item) outgoing(q *queue, fetched bool) []byte {
	old := q.v.s.release == V3
	counts := q.quorum && (it.acquired > 0 || old && fetched)
	if !counts && it.deaths == nil {
		return it.props
	}
	p, err := amqp.ParseProperties(it.props)
	if err != nil {
		return it.props
	}
	headers, err := amqp.ParseTable(p.Headers)
	if err != nil {
		return it.props
	}
	if counts {
		if !old {
			headers = headers.With("x-acquired-count", int64(it.acquired))
		}
		if it.deliveries > 0 || old {
			headers = headers.With("x-delivery-count", int64(it.deliveries))
		}
	}
	headers = it.withDeaths(headers, q.v.s.release)
	p.Headers = headers.Append(nil)[4:]
	p.Flags |= amqp.HasHeaders
	return p.Append(nil)
}
