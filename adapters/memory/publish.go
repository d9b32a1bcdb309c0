package memory

import (
	"context"
	"errors"
	"time"

	"github.com/onceline/onceline/broker"
)

// publisher is a driver.Publisher.
type publisher struct {
	c      *conn
	name   string
	topic  *topic // guarded by the broker's lock
	limits broker.Limits
	scope  string // of the dedup memory, if it is the publisher's own
	done   chan struct{}
}

func (p *publisher) Limits() broker.Limits { return p.limits }

func (p *publisher) As(target any) bool { return p.c.b.as(target) }

// Publish stores all messages in one step.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	if i := p.c.b.faults.strike(Publish, request, p.name, ""); i != nil {
		p.struck(ctx, i, msgs, receipts)
		return
	}
	p.c.b.publish(p, msgs, receipts)
}

// Close ends calls that wait for an answer.
func (p *publisher) Close(context.Context) error {
	close(p.done)
	return nil
}

// publish carries out a request that has arrived. It reports whether the broker
// has any of the messages.
func (b *Broker) publish(p *publisher, msgs []broker.Message, receipts []broker.Receipt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		refuse(receipts, broker.Errorf(broker.ErrClosed, nil, "publish to %s", p.name))
		return false
	}
	now := b.begin()
	defer b.arm(now)
	if p.topic.deleted {
		t := b.topics[p.name]
		if t == nil {
			refuse(receipts, broker.Errorf(broker.ErrNotFound, nil, "publish to topic %s", p.name))
			return false
		}
		p.topic = t
	}
	if b.broken.batchAlone {
		for i := range msgs {
			if err := p.topic.refuse(&msgs[i]); err != nil {
				refuse(receipts, err)
				return false
			}
		}
	}
	p.topic.append(msgs, receipts, p.scope, now, false)
	return b.broken.answerPublish(receipts)
}

func refuse(receipts []broker.Receipt, err error) {
	for i := range receipts {
		receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
	}
}

// struck is Publish under a fault.
func (p *publisher) struck(ctx context.Context, i *Injection, msgs []broker.Message, receipts []broker.Receipt) {
	b, link := p.c.b, p.c.connected()
	var why error
	switch i.fault.Kind {
	case LoseRequest:
		why = silence(ctx, link, p.done)
	case LoseResponse:
		if b.broken.lostResponseStored {
			i.apply(b.remember(p, msgs))
		} else {
			i.apply(b.publish(p, msgs, receipts))
		}
		why = silence(ctx, link, p.done)
	case Delay:
		// A request on its way doesn't come back because the caller left: it
		// takes copies along.
		sent, answers := make([]broker.Message, len(msgs)), make([]broker.Receipt, len(msgs))
		bodies, headers := roomFor(msgs)
		for n := range msgs {
			sent[n] = msgs[n]
			sent[n].Body, sent[n].Headers = bodies.copy(msgs[n].Body), headers.copy(msgs[n].Headers)
		}
		answered := i.later(link, func() { i.apply(b.publish(p, sent, answers)) })
		if why = silenceOr(ctx, link, p.done, answered); why == nil {
			copy(receipts, answers)
			return
		}
	case Cut:
		p.c.cutNow()
		why = errCut
	case Error:
		err := i.answer("publish to %s", p.name)
		if !errors.Is(err, broker.ErrUnknownOutcome) {
			refuse(receipts, err)
			return
		}
		why = err
	}
	for n := range receipts {
		receipts[n] = broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "publish %q to %s", msgs[n].ID, p.name)}
	}
}

// remember is the broken promise of WithoutLostResponseStored: the IDs are
// known, and the messages are not stored.
func (b *Broker) remember(p *publisher, msgs []broker.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || p.topic.deleted {
		return false
	}
	now := b.begin()
	for i := range msgs {
		if _, found := p.topic.sight(&msgs[i], p.scope, now); !found {
			p.topic.next++
		}
	}
	b.arm(now)
	return true
}

// silenceOr is silence that an answer may end; it returns nil then.
func silenceOr(ctx context.Context, l *link, done, answered <-chan struct{}) error {
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
	case <-l.gone:
	case <-done:
	}
	select {
	case <-answered: // an answer that is there counts, whatever else is
		return nil
	default:
		return silence(ctx, l, done)
	}
}

// later carries out a delayed request unless the connection is cut before, and
// returns what is closed when it has.
func (i *Injection) later(l *link, do func()) <-chan struct{} {
	answered := make(chan struct{})
	time.AfterFunc(i.fault.Delay, func() {
		select {
		case <-l.gone: // went down with the connection
		default:
			do()
			close(answered)
		}
	})
	return answered
}
