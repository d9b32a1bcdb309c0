package servicebus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// reopenTries is how often a sender or receiver is made anew before its caller
	// is told that there is no connection: the SDK needs one try to notice that
	// the connection which all share is dead, and makes a new one for the next.
	reopenTries = 3
	reopenWait  = 20 * time.Millisecond
)

// publisher is the driver.Publisher.
type publisher struct {
	c      *conn
	topic  string
	limits broker.Limits
	life   context.Context // ends when Close gives up on the calls in flight
	end    context.CancelFunc

	mu        sync.Mutex
	sender    *azservicebus.Sender // attached; nil: to be made
	attaching *attaching           // nil if there is none
	late      error                // for the next caller: those who waited for a link had left
	calls     map[*sending]struct{}
	sessions  bool           // a message without a key needs a session too
	closing   sync.WaitGroup // links that are being made, or were replaced and are being closed
}

// attaching is the making of a sender and its link. It takes a dozen round trips, so it
// goes on when its callers have left: those whose contexts are shorter would never get
// one.
type attaching struct {
	done    chan struct{} // closed when sender or err is there
	sender  *azservicebus.Sender
	err     error
	waiting int // callers
}

// attachBound is how long one try to attach a link may take. It isn't what bounds a
// call: its context does.
const attachBound = 20 * time.Second

func (c *conn) OpenPublisher(ctx context.Context, topic string, _ broker.PublisherOptions) (driver.Publisher, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	p := &publisher{c: c, topic: topic, sessions: c.opts.sessions, calls: map[*sending]struct{}{}}
	p.limits.Headers = maxHeaders
	p.life, p.end = context.WithCancel(context.Background())
	// Attaching the link finds out whether there is such an entity.
	o := &outer{soft: ctx, life: p.life}
	defer o.end()
	if _, _, err := p.batch(ctx, &attempts{soft: ctx, outer: o}); err != nil {
		_ = p.Close(ctx)
		return nil, failure(ctx, err, "open publisher %s", topic)
	}
	if facts := c.describe(ctx, topic); facts != nil {
		p.limits.Window = facts.window
		p.limits.Body = facts.body
		p.sessions = p.sessions || facts.sessions
	}
	return p, nil
}

func (p *publisher) Limits() broker.Limits { return p.limits }

func (p *publisher) As(target any) bool {
	switch t := target.(type) {
	case **azservicebus.Sender:
		p.mu.Lock()
		defer p.mu.Unlock()
		*t = p.sender
		return *t != nil
	case **publisher: // for tests of this package
		*t = p
		return true
	}
	return p.c.As(target)
}

// batch returns an empty batch and the sender that it is for, whose link is
// attached: by now, or by an earlier call.
func (p *publisher) batch(ctx context.Context, as *attempts) (*azservicebus.Sender, *azservicebus.MessageBatch, error) {
	var last error
	for try := range reopenTries {
		if try > 0 && !pause(ctx, reopenWait) {
			break
		}
		s, err := p.attached(ctx)
		if err == nil {
			var b *azservicebus.MessageBatch
			_, err = as.call(func(ctx context.Context) (err error) {
				b, err = s.NewMessageBatch(ctx, nil)
				return err
			})
			if err == nil {
				return s, b, nil
			}
			p.discard(s)
		}
		last = err
		if ctx.Err() != nil || kindOf(err) != broker.ErrUnavailable {
			break
		}
	}
	return nil, nil, last
}

// attached returns the sender, whose link is attached. The first of its callers has it
// made.
func (p *publisher) attached(ctx context.Context) (*azservicebus.Sender, error) {
	p.mu.Lock()
	if s := p.sender; s != nil {
		p.mu.Unlock()
		return s, nil
	}
	if err := p.late; err != nil {
		p.late = nil
		p.mu.Unlock()
		return nil, err
	}
	a := p.attaching
	if a == nil {
		if p.life.Err() != nil { // nobody waits for another link
			p.mu.Unlock()
			return nil, p.life.Err()
		}
		a = &attaching{done: make(chan struct{})}
		p.attaching = a
		p.closing.Go(func() { p.attach(a) })
	}
	a.waiting++
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.sender, a.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.waiting--
	return nil, context.Cause(ctx)
}

// attach is one try to make a sender. Its first batch is what makes the SDK attach the
// link.
func (p *publisher) attach(a *attaching) {
	ctx, cancel := context.WithTimeout(p.life, attachBound)
	defer cancel()
	s, err := p.c.client.NewSender(p.topic, nil)
	if err == nil {
		err = within(ctx, p.life, func(ctx context.Context) error {
			_, err := s.NewMessageBatch(ctx, nil)
			return err
		})
	}
	p.mu.Lock()
	if err == nil && p.life.Err() != nil {
		err = p.life.Err() // Close has been here, and has seen no sender
	}
	p.attaching, a.err = nil, err
	if err == nil {
		p.sender, a.sender = s, s
	} else if a.waiting == 0 && kindOf(err) != broker.ErrUnavailable {
		p.late = err
	}
	p.mu.Unlock()
	close(a.done)
	if err != nil && s != nil {
		p.bury(s)
	}
}

// bury closes a sender of which nothing is expected any more: its peer may be gone.
func (p *publisher) bury(s *azservicebus.Sender) {
	ctx, cancel := context.WithTimeout(p.life, closeGrace)
	defer cancel()
	_ = s.Close(ctx)
}

// discard closes a sender whose link or connection is gone; the next batch makes
// a new one. The SDK itself would go on using the dead one (SB-F-56).
func (p *publisher) discard(s *azservicebus.Sender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sender != s {
		return
	}
	p.sender = nil
	p.closing.Go(func() { p.bury(s) })
}

// pause waits and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sending is one call of Publish.
type sending struct {
	p        *publisher
	fails    int // transfers that found their link dead
	ctx      context.Context
	cancel   context.CancelFunc
	msgs     []broker.Message
	receipts []broker.Receipt
	why      error // for which the rest of the call is not sent
	out      outgoing
	attempts attempts
	attempt  *attempt // the last transfer's
}

var sendings = sync.Pool{New: func() any { return new(sending) }}

// Publish packs the messages into as few batches as the service's limit of size
// allows, and sends one after the other, each once: a batch is one AMQP transfer
// with one answer (SB-F-10). A batch that is refused for what is in it is sent
// again in halves, so that one bad message harms no other.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := sendings.Get().(*sending)
	s.p, s.ctx, s.cancel, s.msgs, s.receipts = p, ctx, cancel, msgs, receipts
	o := &outer{soft: ctx, life: p.life}
	s.attempts = attempts{soft: ctx, outer: o, once: true}
	p.enter(s)
	for from := 0; from < len(msgs); {
		n, ok := s.chunk(from, len(msgs))
		from += n
		if !ok {
			s.refuse(from, len(msgs), s.why)
			break
		}
	}
	p.leave(s)
	o.end()
	s.out.properties.GroupID, s.out.data[0], s.out.msg.ApplicationProperties = nil, nil, nil
	*s = sending{out: s.out}
	sendings.Put(s)
}

// enter makes the call known to Close, which cancels it when it gives up.
func (p *publisher) enter(s *sending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[s] = struct{}{}
	if p.life.Err() != nil {
		s.cancel()
	}
}

func (p *publisher) leave(s *sending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, s)
}

// chunk sends as many of the messages in [from, to) as fit in one batch, gives
// them their receipts, and returns their number. ok is false if there is no use
// in sending more.
func (s *sending) chunk(from, to int) (n int, ok bool) {
	sender, batch, err := s.p.batch(s.ctx, &s.attempts)
	if err != nil {
		// Nothing of it left; nor will what is behind it.
		s.why = err
		s.refuse(from, to, err)
		return to - from, false
	}
	s.p.mu.Lock()
	sessions := s.p.sessions
	s.p.mu.Unlock()
	for from+n < to {
		m := &s.msgs[from+n]
		s.out.set(m, sessions, n == 0)
		if err := batch.AddAMQPAnnotatedMessage(&s.out.msg, nil); err != nil {
			if n == 0 {
				return 1, s.alone(sender, from, err)
			}
			break
		}
		n++
	}
	return n, s.send(sender, batch, from, from+n, sessions)
}

// alone sends a message that fits in no batch by itself: an entity may admit
// larger messages than batches (SB-F-11).
func (s *sending) alone(sender *azservicebus.Sender, i int, err error) (ok bool) {
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		s.receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrInvalid, err, "publish %q to %s", s.msgs[i].ID, s.p.topic)}
		return true
	}
	s.attempt, err = s.attempts.call(func(ctx context.Context) error { return sender.SendAMQPAnnotatedMessage(ctx, &s.out.msg, nil) })
	if s.foundDead(sender, err) {
		return s.all(i, i+1)
	}
	return s.conclude(sender, i, i+1, err)
}

func (s *sending) send(sender *azservicebus.Sender, batch *azservicebus.MessageBatch, from, to int, sessions bool) (ok bool) {
	var err error
	s.attempt, err = s.attempts.call(func(ctx context.Context) error { return sender.SendMessageBatch(ctx, batch, nil) })
	switch {
	case err == nil:
		return s.conclude(sender, from, to, nil)
	case s.foundDead(sender, err):
	case !refused(err):
		return s.conclude(sender, from, to, err)
	case !sessions && needsSession(err) && s.keyless(from, to):
		s.p.mu.Lock()
		s.p.sessions = true
		s.p.mu.Unlock()
	case to-from > 1 && personal(kindOf(err)):
		mid := from + (to-from)/2
		return s.all(from, mid) && s.all(mid, to)
	default:
		return s.conclude(sender, from, to, err)
	}
	return s.all(from, to)
}

// foundDead reports whether a transfer never left because its link or connection
// was gone before, and may be made again over a new one.
func (s *sending) foundDead(sender *azservicebus.Sender, err error) bool {
	if err == nil || refused(err) || s.attempt.has(handing) || s.ctx.Err() != nil || kindOf(err) != broker.ErrUnavailable {
		return false
	}
	s.p.discard(sender)
	s.fails++
	return s.fails < reopenTries
}

// all sends the messages in [from, to), and gives each its receipt.
func (s *sending) all(from, to int) (ok bool) {
	for from < to {
		n, ok := s.chunk(from, to)
		from += n
		if !ok {
			s.refuse(from, to, s.why)
			return false
		}
	}
	return true
}

// personal reports whether a refusal may concern one message of a batch, and not
// the sender or the entity.
func personal(kind error) bool {
	switch kind {
	case broker.ErrRefused, broker.ErrInvalid, broker.ErrTooLarge, broker.ErrUnsupported:
		return true
	}
	return false
}

func (s *sending) keyless(from, to int) bool {
	for i := from; i < to; i++ {
		if s.msgs[i].Key == "" {
			return true
		}
	}
	return false
}

// conclude gives the messages of one transfer their receipts: all of them the
// same, for the service takes or refuses it as one. ok is false where the next
// transfer would meet the same.
func (s *sending) conclude(sender *azservicebus.Sender, from, to int, err error) (ok bool) {
	if err == nil {
		for i := from; i < to; i++ {
			s.receipts[i] = broker.Receipt{Verdict: broker.Accepted}
		}
		return true
	}
	s.why = err
	if refused(err) {
		s.refuse(from, to, err)
		return personal(kindOf(err))
	}
	if s.ctx.Err() == nil {
		s.p.discard(sender)
	}
	if !s.attempt.has(handing) {
		s.refuse(from, to, err)
		return false
	}
	cause := err
	if s.ctx.Err() != nil {
		cause = context.Cause(s.ctx)
	}
	unknown := broker.Errorf(broker.ErrUnknownOutcome, cause, "publish to %s", s.p.topic)
	for i := from; i < to; i++ {
		s.receipts[i] = broker.Receipt{Err: unknown}
	}
	return false
}

// refuse is the receipt of messages that surely aren't stored.
func (s *sending) refuse(from, to int, err error) {
	if from >= to {
		return
	}
	kind := broker.ErrUnavailable
	switch {
	case s.p.life.Err() != nil:
		kind, err = broker.ErrClosed, nil
	case err == nil:
	case s.ctx.Err() != nil && cancelled(err):
		err = context.Cause(s.ctx)
	default:
		kind = kindOf(err)
	}
	if kind == broker.ErrLeaseLost {
		kind = broker.ErrRefused // of a publish it means nothing
	}
	for i := from; i < to; i++ {
		if s.receipts[i] == (broker.Receipt{}) {
			s.receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(kind, err, "publish %q to %s", s.msgs[i].ID, s.p.topic)}
		}
	}
}

// Close ends the calls in flight and the link.
func (p *publisher) Close(ctx context.Context) error {
	p.end()
	p.mu.Lock()
	for s := range p.calls {
		s.cancel()
	}
	s := p.sender
	p.sender = nil
	p.mu.Unlock()
	var err error
	if s != nil {
		ctx, cancel := context.WithTimeout(ctx, closeGrace)
		defer cancel()
		err = s.Close(ctx)
	}
	p.closing.Wait()
	if err != nil && ctx.Err() != nil {
		return broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "close publisher of %s", p.topic)
	}
	return nil
}
