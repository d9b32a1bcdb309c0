package driver

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// publisher is the broker.Publisher around an adapter's.
type publisher struct {
	driver Publisher
	topic  string
	limits broker.Limits
	conn   *conn
	gate   gate
	once   sync.Once
	err    error // of Close
}

func (p *publisher) Limits() broker.Limits { return p.limits }

func (p *publisher) As(target any) bool { return p.driver.As(target) }

// Now is the clock of the connection, which wrappers such as broker.Retry use.
func (p *publisher) Now() time.Time { return p.conn.now() }

func (p *publisher) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	return p.publish(ctx, p.driver.Publish, msgs)
}

// PublishGiven is that of broker.GivenPublisher.
func (p *publisher) PublishGiven(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	if d, ok := p.driver.(GivenPublisher); ok {
		return p.publish(ctx, d.PublishGiven, msgs)
	}
	return p.publish(ctx, p.driver.Publish, msgs)
}

// sender is how an adapter publishes.
type sender func(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt)

func (p *publisher) publish(ctx context.Context, send sender, msgs []broker.Message) ([]broker.Receipt, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	receipts := make([]broker.Receipt, len(msgs))
	if !p.gate.enter() {
		return p.refuseAll(receipts, broker.Errorf(broker.ErrClosed, nil, "publish to %s", p.topic))
	}
	defer p.gate.leave()
	if err := ctx.Err(); err != nil {
		return p.refuseAll(receipts, broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "publish to %s", p.topic))
	}
	bad := 0
	if p.conn.fenced {
		for i := range msgs {
			if err := p.check(&msgs[i]); err != nil {
				receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
				bad++
			}
		}
	}
	switch {
	case bad == 0:
		p.stamp(msgs)
		send(ctx, msgs, receipts)
	case bad < len(msgs):
		p.publishRest(ctx, send, msgs, receipts, len(msgs)-bad)
	}
	var first error
	for i := range receipts {
		r := &receipts[i]
		if r.Err == nil && !r.Verdict.OK() {
			r.Err = p.unexplained(r.Verdict, msgs[i].ID)
		}
		if first == nil {
			first = r.Err
		}
	}
	return receipts, first
}

// unexplained is the error of a receipt that the adapter left without one:
// nothing that is not a success may look like it.
func (p *publisher) unexplained(v broker.Verdict, id string) error {
	kind := broker.ErrUnknownOutcome
	if v == broker.Refused {
		kind = broker.ErrRefused
	}
	return broker.Errorf(kind, nil, "publish %q to %s: no reason given", id, p.topic)
}

// publishRest publishes the n messages that have no receipt yet.
func (p *publisher) publishRest(ctx context.Context, send sender, msgs []broker.Message, receipts []broker.Receipt, n int) {
	rest := make([]broker.Message, 0, n)
	place := make([]int, 0, n)
	for i := range msgs {
		if receipts[i].Err == nil {
			rest, place = append(rest, msgs[i]), append(place, i)
		}
	}
	p.stamp(rest)
	answers := make([]broker.Receipt, n)
	send(ctx, rest, answers)
	for i, at := range place {
		receipts[at] = answers[i]
		msgs[at].Time = rest[i].Time
	}
}

// stamp sets the time of the first attempt, one for the whole call. It writes into
// the caller's slice, so that a retry of the same slice carries the same time.
func (p *publisher) stamp(msgs []broker.Message) {
	var now time.Time
	for i := range msgs {
		if msgs[i].Time.IsZero() {
			if now.IsZero() {
				now = p.conn.now()
			}
			msgs[i].Time = now
		}
	}
}

func (p *publisher) refuseAll(receipts []broker.Receipt, err error) ([]broker.Receipt, error) {
	for i := range receipts {
		receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
	}
	return receipts, err
}

// check is the validation that holds for every broker.
func (p *publisher) check(m *broker.Message) error {
	switch {
	case m.ID == "":
		return broker.Errorf(broker.ErrInvalid, nil, "publish to %s: the message has no ID; an adapter never invents one", p.topic)
	case len(m.ID) > broker.MaxID:
		return broker.Errorf(broker.ErrInvalid, nil, "publish to %s: the ID has %d bytes, over %d", p.topic, len(m.ID), broker.MaxID)
	case strings.IndexByte(m.ID, 0) >= 0:
		return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: the ID holds a NUL", m.ID, p.topic)
	case len(m.Copy) > broker.MaxID || strings.IndexByte(m.Copy, 0) >= 0:
		return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: Copy is over %d bytes or holds a NUL", m.ID, p.topic, broker.MaxID)
	case len(m.Key) > broker.MaxID || strings.IndexByte(m.Key, 0) >= 0:
		return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: Key is over %d bytes or holds a NUL", m.ID, p.topic, broker.MaxID)
	case p.limits.Body > 0 && len(m.Body) > p.limits.Body:
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: the body has %d bytes, over %d", m.ID, p.topic, len(m.Body), p.limits.Body)
	}
	size := 0
	for i := range m.Headers {
		h := &m.Headers[i]
		size += len(h.Key) + len(h.Value)
		if h.Key == "" {
			return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: header %d has no name", m.ID, p.topic, i)
		}
		if reserved(h.Key) {
			return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: header %q is reserved", m.ID, p.topic, h.Key)
		}
	}
	if p.limits.Headers > 0 && size > p.limits.Headers {
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: the headers have %d bytes, over %d", m.ID, p.topic, size, p.limits.Headers)
	}
	return nil
}

// reserved reports whether a user header may not have the name. The marks of a
// dead letter may stay on it when it is published again.
func reserved(key string) bool {
	if len(key) < len(broker.ReservedPrefix) || !strings.EqualFold(key[:len(broker.ReservedPrefix)], broker.ReservedPrefix) {
		return false
	}
	return key != HeaderReason && key != HeaderSource && key != HeaderAttempts
}

func (p *publisher) Close(ctx context.Context) error {
	p.once.Do(func() {
		p.gate.shut()
		p.gate.wait(ctx)
		p.err = p.driver.Close(ctx)
		p.conn.forget(p)
	})
	return p.err
}
