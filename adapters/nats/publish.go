package nats

import (
	"context"
	"slices"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// What a message may have beside its body. A message that is dead-lettered
// gets headers on top of its own and must still pass the server's limits.
const (
	headerRoom     = 1024                       // taken from the stream's limit for headers
	deadLetterRoom = 1536                       // kept free of the server's limit for dead-letter headers
	maxBlock       = 1<<16 - 1 - deadLetterRoom // of a header block: the server stores its length in 16 bits (nats-server#2525)
	userBlock      = maxBlock - 4*broker.MaxID  // what Limits admits of the user's own headers
	maxBytes       = 4 << 20                    // of the bodies without an answer, for one publisher
)

// publisher is the driver.Publisher.
type publisher struct {
	c       *conn
	topic   string
	stream  string
	limits  broker.Limits
	closing chan struct{}

	// The window of messages without an answer; guarded by c.mux.mu, under
	// which answers are counted anyway.
	inFlight int
	bytes    int
	blocked  []*sending
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, _ broker.PublisherOptions) (driver.Publisher, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	ctx, done := c.while(ctx)
	defer done()
	name, err := c.streamOf(ctx, topic)
	if err != nil {
		return nil, failure(ctx, err, "open publisher %s: its stream", topic)
	}
	cfg, err := c.lookUpStream(ctx, name)
	if err != nil {
		return nil, failure(ctx, err, "open publisher %s: stream %s", topic, name)
	}
	p := &publisher{c: c, topic: topic, stream: name, closing: make(chan struct{})}
	p.limits = broker.Limits{
		Body:    max(0, int(c.nc.MaxPayload())-headerRoom-deadLetterRoom),
		Headers: userBlock,
		Window:  cfg.Duplicates,
	}
	if cfg.MaxMsgSize > 0 {
		p.limits.Body = min(p.limits.Body, max(1, int(cfg.MaxMsgSize)-headerRoom))
	}
	return p, nil
}

func (p *publisher) Limits() broker.Limits { return p.limits }

func (p *publisher) As(target any) bool { return p.c.As(target) }

func (p *publisher) Close(context.Context) error {
	close(p.closing)
	return nil
}

// sending is one call of Publish. It is used again by later calls.
type sending struct {
	exchange
	p        *publisher
	msgs     []broker.Message
	receipts []broker.Receipt
	sent     int  // messages handed to the SDK; of the caller alone
	limit    int  // of the server, for body and headers together
	nobody   bool // nobody took some message; guarded by the mux while the exchange is open
	open     int  // reserved in the window and not answered
	openSize int
	out      outgoing
	replies  replies
}

var sendings = sync.Pool{New: func() any {
	s := new(sending)
	s.wake = make(chan struct{}, 1)
	s.to = s
	return s
}}

// Publish sends each message once. The SDK's own retry on an unanswered subject
// (NATS-F-13) isn't part of this path, whatever the semantics: broker.Retry
// does it with the window in view.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	l := p.c.link.Load()
	if l == nil {
		p.refuse(msgs, receipts, broker.ErrUnavailable, errLinkDown)
		return
	}
	s := sendings.Get().(*sending)
	s.p, s.msgs, s.receipts, s.sent, s.nobody = p, msgs, receipts, 0, false
	s.limit = int(p.c.nc.MaxPayload()) - deadLetterRoom
	p.c.mux.start(&s.exchange)
	err := s.send(ctx, l)
	if err == nil {
		err = p.c.mux.wait(ctx, &s.exchange, s.sent, l.gone, p.closing)
	}
	s.conclude(err)
	if s.nobody {
		s.explain(ctx)
	}
	s.p, s.msgs, s.receipts, s.out.msg.Data = nil, nil, nil, nil
	sendings.Put(s)
}

// send hands all messages to the SDK, as the window allows. s.sent counts the
// places of those that left, or may have; a place whose message was refused
// before it left has its receipt and no answer to come, and counts as answered.
func (s *sending) send(ctx context.Context, l *link) error {
	p := s.p
	s.out.msg.Subject = p.topic
	for from := 0; from < len(s.msgs); {
		n, err := s.reserve(ctx, l, from)
		if err != nil {
			return err
		}
		subjects := s.replies.of(p.c.mux.prefix, &s.exchange, from, n)
		for i := range n {
			if !l.alive() || !p.c.sendable() {
				return errLinkLost
			}
			if err := s.one(from+i, subjects[i]); err != nil {
				return err
			}
		}
		from += n
	}
	return nil
}

// one sends message i. An error ends the batch; the receipt of a message that
// was refused by itself is set instead.
func (s *sending) one(i int, reply string) error {
	p, m := s.p, &s.msgs[i]
	block := s.out.set(m)
	var err error
	switch {
	case block > maxBlock:
		err = broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: the headers take %d bytes encoded, over %d", m.ID, p.topic, block, maxBlock)
	case block+len(m.Body) > s.limit:
		err = broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: body and headers have %d bytes, over %d",
			m.ID, p.topic, block+len(m.Body), s.limit)
	default:
		s.out.msg.Reply = reply
		if sdk := p.c.nc.PublishMsg(&s.out.msg); sdk != nil {
			if kind := kindOf(sdk); neverSent(sdk) && kind != broker.ErrUnavailable {
				err = broker.Errorf(kind, sdk, "publish %q to %s", m.ID, p.topic)
				break
			}
			if !neverSent(sdk) {
				s.sent = i + 1 // a torn write: part of it may have left
			}
			return sdk
		}
	}
	s.sent = i + 1
	if err != nil {
		s.drop(i, broker.Receipt{Verdict: broker.Refused, Err: err})
	}
	return nil
}

// drop counts a message that is not sent as answered.
func (s *sending) drop(i int, r broker.Receipt) {
	mux := s.p.c.mux
	mux.mu.Lock()
	defer mux.mu.Unlock()
	s.receipts[i] = r
	s.answered++
	s.release(len(s.msgs[i].Body))
}

// reserve waits for room in the publisher's window and returns how many
// messages from the given one on may go, at most a chunk.
func (s *sending) reserve(ctx context.Context, l *link, from int) (n int, err error) {
	p, mux := s.p, s.p.c.mux
	for {
		mux.mu.Lock()
		size := 0
		for n = 0; n < chunk && from+n < len(s.msgs) && p.inFlight+n < p.c.opts.maxInFlight; n++ {
			body := len(s.msgs[from+n].Body)
			if p.bytes+size+body > maxBytes && p.inFlight+n > 0 {
				break
			}
			size += body
		}
		if n > 0 {
			p.inFlight += n
			p.bytes += size
			s.open += n
			s.openSize += size
			mux.mu.Unlock()
			return n, nil
		}
		p.blocked = append(p.blocked, s)
		mux.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-l.gone:
			return 0, errLinkLost
		case <-p.closing:
			return 0, broker.ErrClosed
		}
	}
}

// release gives one message's room back. The mux's lock is held.
func (s *sending) release(body int) {
	p := s.p
	s.open--
	s.openSize -= body
	p.inFlight--
	p.bytes -= body
	// Half empty: who is woken finds room for more than one message.
	if len(p.blocked) > 0 && p.inFlight <= p.c.opts.maxInFlight/2 && p.bytes <= maxBytes/2 {
		p.rouse()
	}
}

func (p *publisher) rouse() {
	for i, b := range p.blocked {
		b.rouse()
		p.blocked[i] = nil
	}
	p.blocked = p.blocked[:0]
}

// answer implements answers.
func (s *sending) answer(i int, m *natsgo.Msg) bool {
	if i >= len(s.receipts) {
		return false
	}
	r := &s.receipts[i]
	if r.Verdict != broker.Unknown || r.Err != nil {
		return false
	}
	s.take(r, &s.msgs[i], m)
	s.release(len(s.msgs[i].Body))
	return true
}

// take reads one answer.
func (s *sending) take(r *broker.Receipt, msg *broker.Message, m *natsgo.Msg) {
	if noResponders(m) {
		*r = broker.Receipt{Verdict: broker.Refused, Err: errNoStream}
		s.nobody = true
		return
	}
	a, err := parsePubAck(m.Data)
	switch {
	case err != nil:
		r.Err = broker.Errorf(broker.ErrUnknownOutcome, err, "publish %q to %s", msg.ID, s.p.topic)
	case a.Error != nil:
		*r = refusal(a.Error, msg.ID, s.p.topic)
	case a.Duplicate:
		*r = broker.Receipt{Verdict: broker.Duplicate, Position: broker.Position{Offset: a.Seq}}
	default:
		*r = broker.Receipt{Verdict: broker.Stored, Position: broker.Position{Offset: a.Seq}}
	}
}

// refusal is the receipt for an error that JetStream answered.
func refusal(e *jetstream.APIError, id, topic string) broker.Receipt {
	kind := kindOfCode(e.ErrorCode, e.Description)
	verdict := broker.Verdict(broker.Refused)
	switch kind {
	case broker.ErrUnknownOutcome:
		// The same ID is being replicated: whether it will be stored isn't
		// decided (NATS-F-06).
		verdict = broker.Unknown
	case broker.ErrNotFound, broker.ErrUnsupported:
		kind = broker.ErrUnavailable // of a publish, JetStream that is off or a stream that goes
	}
	return broker.Receipt{Verdict: verdict, Err: broker.Errorf(kind, e, "publish %q to %s", id, topic)}
}

// conclude closes the exchange and gives the messages without an answer their
// receipts: Unknown where they may have left, Refused where they surely didn't.
func (s *sending) conclude(why error) {
	p, mux := s.p, s.p.c.mux
	mux.mu.Lock()
	delete(mux.open, s.id)
	p.inFlight -= s.open
	p.bytes -= s.openSize
	s.open, s.openSize = 0, 0
	p.blocked = slices.DeleteFunc(p.blocked, func(b *sending) bool { return b == s })
	if why != nil {
		p.rouse() // room may have come, and no answer will tell
	}
	mux.mu.Unlock()
	if why == nil {
		return
	}
	unknown := broker.Errorf(broker.ErrUnknownOutcome, why, "publish to %s", p.topic)
	for i := range s.sent {
		if s.receipts[i].Verdict == broker.Unknown && s.receipts[i].Err == nil {
			s.receipts[i].Err = unknown
		}
	}
	kind := broker.ErrUnavailable
	if why == broker.ErrClosed {
		kind, why = broker.ErrClosed, nil
	}
	p.refuse(s.msgs[s.sent:], s.receipts[s.sent:], kind, why)
}

// explain gives the messages that nobody took their error. No stream may have
// the subject, or its stream be without a leader for now, which heals.
func (s *sending) explain(ctx context.Context) {
	p := s.p
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ctx, done := p.c.while(ctx)
	defer done()
	kind := broker.ErrUnavailable
	if _, err := p.c.js.StreamNameBySubject(ctx, p.topic); err != nil && kindOf(err) == broker.ErrNotFound {
		kind = broker.ErrUnroutable
	}
	for i := range s.receipts {
		if s.receipts[i].Err == errNoStream {
			s.receipts[i].Err = broker.Errorf(kind, errNoStream, "publish %q to %s", s.msgs[i].ID, p.topic)
		}
	}
}

// refuse is the receipt of messages that surely didn't leave.
func (p *publisher) refuse(msgs []broker.Message, receipts []broker.Receipt, kind, cause error) {
	if len(msgs) == 0 {
		return
	}
	err := broker.Errorf(kind, cause, "publish to %s: not sent", p.topic)
	for i := range msgs {
		receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
	}
}

func (l *link) alive() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}
