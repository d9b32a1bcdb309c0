package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// streamPublisher publishes to one stream under a reference of its own, with
// publishing IDs by which the broker drops what it has (RMS-F-01).
//
// The broker remembers the highest ID alone, and confirms and drops what comes
// below it, stored or not (RMS-F-02). So a lower ID must never go out after a
// higher one, unless the lower is known to be in the log. The rule here is: a
// new frame leaves when all that left before is confirmed or known to be in the
// log. On a living connection QueryPublisherSequence tells that, for the broker
// answers it behind the frames that came before it; after a reconnect it tells
// what of the old connection's frames arrived.
//
// One caller at a time leads: it writes the messages of all that wait in frames
// as large as the broker takes, so that callers that publish at once share
// frames, and nobody needs a goroutine.
type streamPublisher struct {
	conn       *streamConn
	stream     string
	ref        string
	once       bool // at most once: what isn't in the log is not sent again
	frameMax   int
	turn       chan struct{}   // holds a token while somebody leads
	change     chan struct{}   // one token: confirms have come
	life       context.Context // ended by Close, with its cause
	end        context.CancelCauseFunc
	buf        []byte      // the leader's frame
	patience   *time.Timer // the leader's
	connecting *connecting // the leader's; nil if there is none

	mu     sync.Mutex
	link   *streamLink // nil or dead: to be made
	queue  []*streamCall
	next   uint64 // publishing ID of the next new message
	logged uint64 // what is out up to this ID is in the broker's log
	sent   []sentMessage
	gone   map[string]*orphan // whose callers gave up
	old    []string           // keys of gone, oldest first
	spare  []*streamCall      // to be used again
}

// streamCall is one Publish.
type streamCall struct {
	msgs     []broker.Message
	receipts []broker.Receipt
	buf      []byte // the encoded messages
	items    []streamItem
	unsent   int           // all items before it have left or have their answer
	left     int           // items without an answer
	done     chan struct{} // one token: left is 0
}

type streamItem struct {
	from, to int    // in buf
	id       uint64 // once it has left
	again    bool   // an earlier call sent it
	rejected bool   // the broker didn't take the frame, and it is to go out again
	answered bool
}

const (
	// publishHead is a Publish frame without its messages, messageHead what a
	// message has in front.
	publishHead = 4 + 2 + 2 + 1 + 4
	messageHead = 8 + 4
	// maxSpare is how many calls are kept to be used again.
	maxSpare = 16
	// besideBody is what Limits leaves in a frame for IDs and headers.
	besideBody = 16 << 10
	// streamPatience is how long an answer may take before the broker is asked
	// whether the frame came.
	streamPatience = 500 * time.Millisecond
)

func (c *streamConn) newPublisher(stream string, frameMax int, once bool) *streamPublisher {
	p := &streamPublisher{
		conn: c, stream: stream, ref: "onceline-" + rand.Text(), once: once, frameMax: frameMax, next: 1,
		turn: make(chan struct{}, 1), change: make(chan struct{}, 1),
		gone: map[string]*orphan{}, patience: time.NewTimer(time.Hour),
	}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.patience.Stop()
	return p
}

// Limits is driver.Publisher's. A message must fit into a frame.
func (p *streamPublisher) Limits() broker.Limits {
	body := p.frameMax - publishHead - messageHead - besideBody
	return broker.Limits{Body: max(1, min(body, p.conn.s.maxBody)), Headers: besideBody / 4}
}

// As sets nothing: no client of the vendor is behind it.
func (p *streamPublisher) As(any) bool { return false }

// Publish is driver.Publisher's.
func (p *streamPublisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	c := p.newCall()
	p.encode(c, msgs, receipts)
	if c.left > 0 {
		p.mu.Lock()
		p.queue = append(p.queue, c)
		p.mu.Unlock()
		if err := p.wait(ctx, c); err != nil {
			p.giveUp(c, err)
		}
	}
	p.retire(c)
}

// newCall takes a call that is done with, or makes one.
func (p *streamPublisher) newCall() *streamCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.spare)
	if n == 0 {
		return &streamCall{done: make(chan struct{}, 1)}
	}
	c := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return c
}

// retire keeps a call to be used again. Whoever answered it has let go of it once
// p.mu is free.
func (p *streamPublisher) retire(c *streamCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-c.done:
	default:
	}
	c.msgs, c.receipts = nil, nil
	if cap(c.buf) <= 1<<20 && len(p.spare) < maxSpare {
		p.spare = append(p.spare, c)
	}
}

// encode makes the call's items. What no frame can hold is refused here.
func (p *streamPublisher) encode(c *streamCall, msgs []broker.Message, receipts []broker.Receipt) {
	c.msgs, c.receipts, c.unsent, c.left = msgs, receipts, 0, len(msgs)
	n := 0
	for i := range msgs {
		n += messageRoom(&msgs[i])
	}
	c.buf = slices.Grow(c.buf[:0], n)
	c.items = slices.Grow(c.items[:0], len(msgs))[:len(msgs)]
	for i := range msgs {
		from := len(c.buf)
		c.buf = putMessage(c.buf, &msgs[i])
		c.items[i] = streamItem{from: from, to: len(c.buf)}
		if size := publishHead + messageHead + len(c.buf) - from; size > p.frameMax {
			c.items[i].answered = true
			c.left--
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrTooLarge, nil,
				"publish %q to %s: %d bytes encoded, over the broker's frame of %d", msgs[i].ID, p.stream, size, p.frameMax)}
		}
	}
}

// wait leads, or waits for who does, until the call is answered. Its error says
// why there won't be an answer.
func (p *streamPublisher) wait(ctx context.Context, c *streamCall) error {
	select {
	case p.turn <- struct{}{}: // nobody leads
	default:
		select {
		case <-c.done:
			return nil
		case p.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.life.Done():
			return broker.ErrClosed
		}
	}
	defer func() { <-p.turn }()
	return p.lead(ctx, c)
}

// lead sends until c has its answers.
func (p *streamPublisher) lead(ctx context.Context, c *streamCall) error {
	for {
		l, err := p.connect(ctx)
		if err != nil {
			return err
		}
		if frame := p.compose(); len(frame) > 0 {
			if err := l.send(ctx, frame); err != nil {
				l.end(err) // what of it arrived, the next connection is asked
				continue
			}
		}
		finished, err := p.land(ctx, l, c)
		if finished || err != nil {
			return err
		}
	}
}

// land waits until a frame may go out, the link is lost, or c has its answers,
// which it reports.
func (p *streamPublisher) land(ctx context.Context, l *streamLink, c *streamCall) (finished bool, err error) {
	p.patience.Reset(streamPatience)
	defer p.patience.Stop()
	for {
		switch p.state(c) {
		case callAnswered:
			return true, nil
		case frameDue:
			return false, nil
		case nobodyWaits:
			// What is out was given up: there is no answer to wait for.
			if err := p.settleUp(ctx, l); err != nil {
				return false, err
			}
			select {
			case <-l.dead:
				return false, nil
			default:
				continue
			}
		}
		select {
		case <-p.change:
		case <-c.done:
		case <-l.dead:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-p.life.Done():
			return false, broker.ErrClosed
		case <-p.patience.C:
			// The frame may be lost, and others may wait behind it. Of what is in
			// the log the broker owes nothing but the confirm.
			if !p.allLogged() {
				if err := p.settleUp(ctx, l); err != nil {
					return false, err
				}
			}
			p.patience.Reset(streamPatience)
		}
	}
}

// giveUp ends a call: what left is Unknown, what didn't is Refused.
func (p *streamPublisher) giveUp(c *streamCall, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(q *streamCall) bool { return q == c })
	if c.left == 0 {
		return
	}
	for i := range p.sent {
		if s := &p.sent[i]; s.call == c {
			if c.items[s.at].rejected {
				s.call, s.at = nil, -1
				continue
			}
			s.key = p.remember(&c.msgs[s.at], s.id)
			s.call = nil
		}
	}
	p.trim()
	kind := streamKind(why, broker.ErrUnavailable)
	if !errors.Is(why, kind) {
		why = fmt.Errorf("%w: %w", kind, why)
	}
	for i := range c.items {
		it := &c.items[i]
		switch {
		case it.answered:
		case it.id == 0 || it.rejected:
			c.receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: fmt.Errorf("publish %q to %s: not sent: %w", c.msgs[i].ID, p.stream, why)}
		default:
			c.receipts[i] = broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "publish %q to %s", c.msgs[i].ID, p.stream)}
		}
	}
	c.left = 0
}

// Close is driver.Publisher's. The calls have ended, or ctx has.
func (p *streamPublisher) Close(ctx context.Context) error {
	p.end(broker.ErrClosed)
	p.mu.Lock()
	l := p.link
	p.mu.Unlock()
	select {
	case p.turn <- struct{}{}: // whoever leads leaves: it watches life
	case <-ctx.Done():
		if l != nil {
			l.end(broker.ErrClosed) // or it is stuck in a write
		}
		p.turn <- struct{}{}
	}
	defer func() { <-p.turn }()
	if p.connecting != nil {
		<-p.connecting.done // which comes with the end of life
	}
	p.mu.Lock()
	l, p.link = p.link, nil
	p.mu.Unlock()
	if l != nil {
		l.close(ctx)
	}
	return nil
}

// connecting is the making of a link. It takes several round trips, so it goes on when
// the call that leads has left: calls whose contexts are shorter would never get one.
type connecting struct {
	done chan struct{} // closed when link or err is there
	link *streamLink
	err  error
}

// connect returns the living link, or has one made. The caller leads.
func (p *streamPublisher) connect(ctx context.Context) (*streamLink, error) {
	for {
		p.mu.Lock()
		l := p.link
		p.mu.Unlock()
		if l != nil && p.connecting == nil {
			select {
			case <-l.dead:
				p.conn.log.Warn("rabbitmq: the publisher's connection is lost", "stream", p.stream, "err", l.why())
				l.close(ctx)
			default:
				return l, nil
			}
		}
		c := p.connecting
		if c == nil {
			c = &connecting{done: make(chan struct{})}
			p.connecting = c
			go func() { // Close waits for it
				defer close(c.done)
				c.link, c.err = p.reconnect()
			}()
		}
		select {
		case <-c.done:
			p.connecting = nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.life.Done():
			return nil, context.Cause(p.life)
		}
		if c.err != nil && lasting(c.err) {
			return nil, c.err
		}
	}
}

// reconnect makes a link, with back-off.
func (p *streamPublisher) reconnect() (*streamLink, error) {
	ctx, cancel := context.WithTimeout(p.life, renewBound)
	defer cancel()
	var wait streamBackoff
	for {
		l, err := p.declare(ctx)
		switch {
		case err == nil:
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case lasting(err):
			return nil, err
		}
		if err := wait.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// declare makes a link, declares the publisher on it, and asks what of the old
// link's frames arrived.
func (p *streamPublisher) declare(ctx context.Context) (*streamLink, error) {
	l, err := p.conn.linkFor(ctx, p.stream, p)
	if err != nil {
		return nil, err
	}
	_, err = l.call(ctx, scDeclarePublisher, nil, func(b []byte) []byte {
		return putStr(putStr(append(b, 0), p.ref), p.stream)
	})
	if err == nil {
		p.mu.Lock()
		first := p.next == 1
		p.mu.Unlock()
		if !first {
			err = p.resolve(ctx, l, true)
		}
	}
	if err != nil {
		l.close(ctx)
		return nil, err
	}
	p.mu.Lock()
	p.link = l
	p.mu.Unlock()
	return l, nil
}

var _ driver.Publisher = (*streamPublisher)(nil)
