package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// streamConn is the driver's connection with queue=stream. Each publisher and
// each receiver has a link of its own; one more, made when it is needed, is for
// all else.
type streamConn struct {
	s   settings
	log *slog.Logger

	// One link for questions, made anew when it is lost.
	asking chan struct{} // holds a token while somebody makes it
	mu     sync.Mutex
	link   *streamLink
	wishes map[string]streamWishes // by subscription
	// Publishers for dead letters, by stream.
	letters map[string]*streamPublisher
}

// streamWishes is what a stream can't keep of a subscription.
type streamWishes struct {
	maxDeliveries int
	deadLetter    string
	ordered       bool
}

func newStreamConn(ctx context.Context, s settings) (driver.Conn, error) {
	c := &streamConn{s: s, log: s.logger, asking: make(chan struct{}, 1), wishes: map[string]streamWishes{}, letters: map[string]*streamPublisher{}}
	if c.log == nil {
		c.log = slog.Default()
	}
	// A broker that starts up may refuse connections for a while.
	var wait streamBackoff
	for {
		_, err := c.control(ctx)
		if err == nil {
			return c, nil
		}
		if _, bounded := ctx.Deadline(); lasting(err) || ctx.Err() != nil || !bounded {
			return nil, broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "rabbitmq: connect")
		}
		if wait.sleep(ctx) != nil {
			return nil, broker.Errorf(broker.ErrUnavailable, err, "rabbitmq: connect")
		}
	}
}

// Now is the time by which the fence counts leases; a stream has none.
func (c *streamConn) Now() time.Time { return c.s.now() }

// As sets nothing: no client of the vendor is behind it.
func (c *streamConn) As(any) bool { return false }

// nodes are the addresses of the stream protocol.
func (c *streamConn) nodes() []address {
	port := c.s.streamPort
	switch {
	case port != 0:
	case c.s.tls != nil:
		port = streamsPort
	default:
		port = streamPort
	}
	nodes := make([]address, len(c.s.hosts))
	for i, h := range c.s.hosts {
		nodes[i] = address{h.host, port}
	}
	return nodes
}

// dialAny connects to the first of the nodes that answers. Credentials that one of
// them refuses aren't shown to the others.
func (c *streamConn) dialAny(ctx context.Context, h streamHandler) (l *streamLink, err error) {
	for _, at := range c.nodes() {
		if l, err = linkTo(ctx, &c.s, at, h); err == nil || ctx.Err() != nil || errors.Is(err, codeAuthFailure) {
			return l, err
		}
	}
	return nil, err
}

// deaf is the handler of a link that only asks.
type deaf struct{}

func (deaf) frame(*streamLink, uint16, []byte) error { return nil }

// control returns the link for questions.
func (c *streamConn) control(ctx context.Context) (*streamLink, error) {
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		select {
		case <-l.dead:
			l.close(ctx)
		default:
			return l, nil
		}
	}
	l, err := c.dialAny(ctx, deaf{})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.link = l
	c.mu.Unlock()
	return l, nil
}

// ask asks a question that does no harm when it is asked twice: once more on a
// new link if the old one is lost.
func (c *streamConn) ask(ctx context.Context, key uint16, build func(b []byte) []byte) (streamCursor, error) {
	for again := false; ; again = true {
		l, err := c.control(ctx)
		if err != nil {
			return streamCursor{}, err
		}
		cur, err := l.call(ctx, key, nil, build)
		select {
		case <-l.dead:
			if err != nil && !again {
				continue
			}
		default:
		}
		return cur, err
	}
}

// leader asks where a stream's leader is; ok is false where the broker names
// one node alone, or none.
func leader(c streamCursor, l *streamLink) (at address, ok bool, err error) {
	type node struct {
		ref uint16
		at  address
	}
	var nodes []node
	for n := c.u32(); n > 0 && !c.bad; n-- {
		nodes = append(nodes, node{c.u16(), address{c.str(), int(c.u32())}})
	}
	if c.u32() != 1 {
		return at, false, errFrame
	}
	c.str()
	if code := streamCode(c.u16()); code != codeOK {
		return at, false, code
	}
	ref := c.u16()
	if c.bad {
		return at, false, errFrame
	}
	for _, n := range nodes {
		if n.ref == ref && len(nodes) > 1 && (n.at != address{l.host, l.port}) {
			return n.at, true, nil
		}
	}
	return at, false, nil
}

// linkFor connects to the node with the stream's leader, which takes messages and
// has them first. Where that one can't be reached under the address that the
// cluster tells, any node must do.
func (c *streamConn) linkFor(ctx context.Context, stream string, h streamHandler) (*streamLink, error) {
	l, err := c.dialAny(ctx, h)
	if err != nil {
		return nil, err
	}
	cur, err := l.call(ctx, scMetadata, nil, func(b []byte) []byte { return putStr(put32(b, 1), stream) })
	if err == nil {
		at, other, err := leader(cur, l)
		if err == nil && other {
			better, err := linkTo(ctx, &c.s, at, h)
			if err == nil {
				l.close(ctx)
				return better, nil
			}
			c.log.Warn("rabbitmq: the stream's leader can't be reached", "stream", stream, "node", at.host, "err", err)
		}
		if err == nil {
			return l, nil
		}
		l.close(ctx)
		return nil, err
	}
	l.close(ctx)
	return nil, err
}

// lookUp checks that a stream exists.
func (c *streamConn) lookUp(ctx context.Context, stream string) error {
	if err := checkStream(stream); err != nil {
		return err
	}
	cur, err := c.ask(ctx, scMetadata, func(b []byte) []byte { return putStr(put32(b, 1), stream) })
	if err == nil {
		_, _, err = leader(cur, &streamLink{})
	}
	if err != nil {
		return broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "stream %s", stream)
	}
	return nil
}

// OpenPublisher is driver.Conn's.
func (c *streamConn) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	if err := c.lookUp(ctx, topic); err != nil {
		return nil, err
	}
	l, err := c.control(ctx)
	if err != nil {
		return nil, broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "open publisher %s", topic)
	}
	p := c.newPublisher(topic, l.frameMax, o.Semantics == broker.AtMostOnce)
	if _, err := p.connect(ctx); err != nil {
		_ = p.Close(ctx)
		return nil, broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "open publisher %s", topic)
	}
	return p, nil
}

// OpenReceiver is driver.Conn's.
func (c *streamConn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	stream, name, err := splitStream(subscription)
	if err != nil {
		return nil, err
	}
	if err := c.lookUp(ctx, stream); err != nil {
		return nil, err
	}
	c.mu.Lock()
	w := c.wishes[subscription]
	c.mu.Unlock()
	return c.newReceiver(stream, name, w, o), nil
}

// maxReference is the longest name of a consumer, in bytes (RMS-F-01).
const maxReference = 255

// splitStream takes "stream/name" apart. A stream's name may have a slash, the
// subscription's may not.
func splitStream(s string) (stream, name string, err error) {
	at := strings.LastIndexByte(s, '/')
	if at <= 0 || at == len(s)-1 || len(s)-at-1 > maxReference || strings.TrimSpace(s[at+1:]) == "" {
		return "", "", broker.Errorf(broker.ErrInvalid, nil, "subscription %q: want stream/name, with a name of at most %d bytes", s, maxReference)
	}
	return s[:at], s[at+1:], checkStream(s[:at])
}

// Close closes what is the connection's own: publishers and receivers are closed.
func (c *streamConn) Close(ctx context.Context) error {
	c.asking <- struct{}{} // nobody makes a link any more
	c.mu.Lock()
	l, letters := c.link, c.letters
	c.link, c.letters = nil, nil
	c.mu.Unlock()
	for _, p := range letters {
		_ = p.Close(ctx)
	}
	if l != nil {
		l.close(ctx)
	}
	return nil
}

// streamBackoff waits longer each time, with full jitter.
type streamBackoff struct{ most time.Duration }

// sleep waits until it is time for the next try, or returns ctx's cause.
func (b *streamBackoff) sleep(ctx context.Context) error {
	b.most = min(max(2*b.most, 10*time.Millisecond), time.Second)
	t := time.NewTimer(rand.N(b.most) + time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var _ driver.Conn = (*streamConn)(nil)
