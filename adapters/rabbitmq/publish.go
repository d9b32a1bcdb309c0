package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// place is where the messages of a topic go.
type place struct {
	exchange, key string
	// single is set where one queue at most takes a message: the default
	// exchange. There a nack means that it wasn't stored; elsewhere another queue
	// may have it (RMQ-F-05).
	single bool
}

// placeOf reads a topic: EXCHANGE, EXCHANGE/KEY, or /QUEUE.
func placeOf(topic string) (place, error) {
	bad := func(why string) (place, error) {
		return place{}, broker.Errorf(broker.ErrInvalid, nil, "topic %q: %s", topic, why)
	}
	if len(topic) > maxField {
		return bad("over 255 bytes")
	}
	exchange, key, keyed := strings.Cut(topic, "/")
	switch {
	case topic == "" || topic == "/":
		return bad("no name")
	case exchange == "":
		return place{key: key, single: true}, nil
	case keyed && key == "":
		return bad("nothing after the slash")
	case strings.HasPrefix(exchange, "amq."):
		return bad("the broker keeps such names to itself")
	}
	return place{exchange: exchange, key: key}, nil
}

// publisher is the driver.Publisher.
type publisher struct {
	c     *conn
	topic string
	to    place
	once  bool // at most once
	*sender
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	to, err := placeOf(topic)
	if err != nil {
		return nil, err
	}
	p := &publisher{c: c, topic: topic, to: to, once: o.Semantics == broker.AtMostOnce}
	p.sender = newSender(c.publish, "publish to "+topic, c.maxInFlight, func(ctx context.Context) error {
		return c.exists(ctx, topic, to)
	})
	if _, err := p.ready(ctx); err != nil {
		p.end()
		return nil, failure(ctx, err, "open publisher %s", topic)
	}
	return p, nil
}

func (p *publisher) Limits() broker.Limits {
	return broker.Limits{Body: p.c.maxBody, Headers: maxUser}
}

func (p *publisher) As(target any) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch t := target.(type) {
	case **amqp.Channel:
		if p.cur == nil {
			return false
		}
		*t = p.cur.ch
	case **publisher: // for tests of this package
		*t = p
	default:
		return false
	}
	return true
}

func (p *publisher) Close(ctx context.Context) error { return p.shut(ctx) }

// publishing is one call of Publish. It is used again by later calls.
type publishing struct {
	flight
	encoder
	msgs  []broker.Message
	to    place
	limit int
}

func (x *publishing) fill(i int, p *amqp.Publishing) (string, string, error) {
	if x.limit > 0 && len(x.msgs[i].Body) > x.limit {
		return "", "", broker.Errorf(broker.ErrTooLarge, nil, "publish %q: the body has %d bytes, over the node's %d", x.msgs[i].ID, len(x.msgs[i].Body), x.limit)
	}
	return x.to.exchange, x.to.key, x.set(&x.msgs[i], p)
}

func (x *publishing) field(i int) string {
	f, _ := fieldOf(&x.msgs[i])
	return f
}

func (x *publishing) size(i int) int   { return len(x.msgs[i].Body) }
func (x *publishing) keyed(i int) bool { return x.msgs[i].Key != "" }

var publishings = sync.Pool{New: func() any { return new(publishing) }}

// Publish sends each message once, mandatory, and matches confirms with returns.
// Nothing is retried in here: the broker doesn't know copies (RMQ-F-01), so a
// retry after a lost confirm is a second message. What did not leave yet waits a
// while for a connection, unless messages are to go at most once.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	x := publishings.Get().(*publishing)
	x.msgs, x.to, x.limit, x.room = msgs, p.to, int(p.limit.Load()), int(p.frame.Load())-frameRoom/2
	x.reset(x, len(msgs))
	p.sender.run(ctx, &x.flight, !p.once)
	for i := range receipts {
		receipts[i] = p.receipt(&x.flight, i, msgs[i].ID)
	}
	x.msgs, x.cargo = nil, nil
	clear(x.marks)
	publishings.Put(x)
}

func (p *publisher) receipt(f *flight, i int, id string) broker.Receipt {
	switch f.fates[i] {
	case stored:
		return broker.Receipt{Verdict: broker.Stored}
	case returned:
		return broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrUnroutable, errNoQueue, "publish %q to %s", id, p.topic)}
	case unfit:
		return broker.Receipt{Verdict: broker.Refused, Err: f.errs[i]}
	case nacked:
		if p.to.single {
			return broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrBusy, errNacked, "publish %q to %s", id, p.topic)}
		}
		return broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, errNacked, "publish %q to %s: another queue may have stored it", id, p.topic)}
	case unsent:
		return broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(kindOf(f.stop), f.stop, "publish %q to %s: not sent", id, p.topic)}
	}
	why := f.gave
	if why == nil {
		why = f.stop
	}
	if errors.Is(why, broker.ErrClosed) {
		why = errClosing
	}
	return broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "publish %q to %s", id, p.topic)}
}
