package rabbitmq

import (
	"slices"
	"strconv"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// The reasons of dead letters (RMQ-F-18).
const (
	rejected      = "rejected"
	expired       = "expired"
	maxLength     = "maxlen"
	deliveryLimit = "delivery_limit"
)

// death is one entry of a message's history: why it left a queue undelivered, and
// how often so.
type death struct {
	queue    string
	reason   string
	exchange string
	keys     []string
	count    int64
	time     int64 // of the first, in seconds
	ttl      int64 // that it had of its own then; -1 is none
}

// deadLetter removes a message that was taken from the queue: to the queue's
// dead-letter exchange, or, without one, for good.
func (q *queue) deadLetter(it item, reason string) {
	if !q.deadLetters {
		return
	}
	x := q.v.exchanges[q.dlx]
	if x == nil {
		return
	}
	m := it.died(q, reason)
	for _, to := range m.queues(x, []byte(m.key)) {
		// A message that goes in a circle by itself is dropped; where a client has
		// rejected it on the way, somebody watches over it.
		if reason != rejected && m.circles(to) {
			continue
		}
		if !to.enqueue(m, true) {
			continue // refused: the default is at most once (RMQ-F-17)
		}
	}
}

// died returns the message as it is published to the dead-letter exchange.
func (it *item) died(q *queue, reason string) *message {
	old := it.message
	m := *old
	m.exchange, m.ttl = q.dlx, -1
	if q.hasDLXKey {
		m.key, m.cc = q.dlxKey, nil
	}
	m.bcc = nil
	d := death{
		queue: q.name, reason: reason, exchange: old.exchange, keys: append([]string{old.key}, old.cc...),
		count: 1, time: q.now() / 1000, ttl: old.ttl,
	}
	m.deaths = slices.Clone(old.deaths)
	if i := slices.IndexFunc(m.deaths, func(o death) bool { return o.queue == d.queue && o.reason == d.reason }); i >= 0 {
		d = m.deaths[i]
		d.count++
		m.deaths = slices.Delete(m.deaths, i, i+1)
	}
	m.deaths = slices.Insert(m.deaths, 0, d)
	if m.first == nil {
		m.first = &d
	}
	m.props = withoutExpiration(m.props)
	return &m
}

// withoutExpiration removes a message's own TTL, lest it expires again where its
// death has led it.
func withoutExpiration(props []byte) []byte {
	p, err := amqp.ParseProperties(props)
	if err != nil || p.Flags&amqp.HasExpiration == 0 {
		return props
	}
	p.Flags &^= amqp.HasExpiration
	return p.Append(nil)
}

// circles says whether the message has died in this queue before and no client
// has rejected it since.
func (m *message) circles(to *queue) bool {
	for _, d := range m.deaths {
		if d.reason == rejected {
			return false
		}
		if d.queue == to.name {
			return true
		}
	}
	return false
}

// withDeaths adds the history to the headers. What a client put there under the
// same names is replaced, not read (RMQ-F-18).
func (m *message) withDeaths(headers amqp.Table, release Release) amqp.Table {
	if len(m.deaths) == 0 {
		return headers
	}
	list := make([]any, len(m.deaths))
	for i, d := range m.deaths {
		list[i] = d.table()
	}
	headers = headers.With("x-death", list).
		With("x-first-death-exchange", m.first.exchange).
		With("x-first-death-queue", m.first.queue).
		With("x-first-death-reason", m.first.reason)
	if release == V3 {
		return headers
	}
	last := m.deaths[0]
	return headers.With("x-last-death-exchange", last.exchange).
		With("x-last-death-queue", last.queue).
		With("x-last-death-reason", last.reason)
}

func (d *death) table() amqp.Table {
	keys := make([]any, len(d.keys))
	for i, k := range d.keys {
		keys[i] = k
	}
	t := amqp.Table{
		{Name: "count", Value: d.count},
		{Name: "reason", Value: d.reason},
		{Name: "queue", Value: d.queue},
		{Name: "time", Value: amqp.Timestamp(d.time)},
		{Name: "exchange", Value: d.exchange},
		{Name: "routing-keys", Value: keys},
	}
	if d.ttl >= 0 {
		t = append(amqp.Table{{Name: "original-expiration", Value: strconv.FormatInt(d.ttl, 10)}}, t...)
	}
	return t
}
