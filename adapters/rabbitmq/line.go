package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	dialTimeout = 5 * time.Second // of one node's TCP, TLS and AMQP handshakes
	firstPause  = 50 * time.Millisecond
	longPause   = 5 * time.Second // between attempts to reach a node
	// A session that ends soon after its begin is followed by a pause too, if a
	// shorter one, so that a message which kills the client makes no hot loop
	// (amqp091-go#302).
	stableAfter = 5 * time.Second
	shortPause  = 250 * time.Millisecond
)

// line is one AMQP connection that is made again when it is lost. A connection
// has two: a node that is short of memory or disk stops reading from those that
// publish, and acks must not wait behind them.
type line struct {
	s    *settings
	role string // "publish" or "consume", for logs

	life  context.Context // ends with close
	end   context.CancelFunc
	tasks driver.Tasks // that must have ended before Close returns

	mu      sync.Mutex
	cur     *session
	changed chan struct{} // closed and replaced when cur or err change
	err     error         // why there is no session; nil while that isn't known
	started bool
	foreign bool // the client is the caller's: no new one is made
	next    int  // the host to try first
}

// errLineClosed is what a call gets for which Close waits no longer.
var errLineClosed = broker.Errorf(broker.ErrClosed, nil, "rabbitmq: the connection")

func newLine(s *settings, role string) *line {
	l := &line{s: s, role: role, changed: make(chan struct{})}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// session returns the living session, once there is one. It returns an error
// that won't heal at once, and otherwise waits for ctx.
func (l *line) session(ctx context.Context) (*session, error) {
	for {
		l.mu.Lock()
		s, changed, err := l.cur, l.changed, l.err
		if !l.started && l.life.Err() == nil {
			l.started = l.tasks.Go(func() { l.run(nil) })
		}
		l.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case l.life.Err() != nil:
			return nil, errLineClosed
		case err != nil && (l.foreign || refusedByNode(err)):
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err != nil {
				return nil, errors.Join(context.Cause(ctx), err)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// why adds to the end of a context what the line waits for, if it is known.
func (l *line) why(cause error) error {
	l.mu.Lock()
	s, err := l.cur, l.err
	l.mu.Unlock()
	switch {
	case s != nil && s.blocked() != nil:
		return broker.Errorf(broker.ErrBusy, errors.Join(errBlocked, cause), "rabbitmq")
	case s == nil && err != nil:
		return errors.Join(cause, err)
	}
	return cause
}

// up reports whether there is a session.
func (l *line) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cur != nil
}

// begin starts the line with a session that exists.
func (l *line) begin(s *session) {
	l.mu.Lock()
	l.started = true
	l.mu.Unlock()
	l.set(s, nil)
	l.tasks.Go(func() { l.run(s) })
}

func (l *line) set(s *session, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.become(s, err)
}

// become is set with l.mu held.
func (l *line) become(s *session, err error) {
	l.cur, l.err = s, err
	close(l.changed)
	l.changed = make(chan struct{})
}

// adopt makes s the line's session, which close will end. It ends s itself and returns
// false where close has been already: what was made meanwhile is nobody's.
func (l *line) adopt(s *session) bool {
	l.mu.Lock()
	over := l.life.Err() != nil
	seen := l.cur == s // by close too
	if !over {
		l.become(s, nil)
	}
	l.mu.Unlock()
	if over && !seen && !l.foreign {
		_ = s.wire.Conn.Close()
		_ = s.conn.Close() // its socket is gone
	}
	return !over
}

// run makes sessions, one after the other, until the line is closed.
func (l *line) run(s *session) {
	failures, short := 0, 0
	for {
		if s == nil {
			var err error
			if s, err = l.connect(l.life); err != nil {
				if l.life.Err() != nil {
					return
				}
				l.set(nil, err)
				l.s.logger.Warn("rabbitmq: connect", "role", l.role, "error", err)
				failures++
				if !l.pause(failures, longPause) {
					return
				}
				continue
			}
		}
		if !l.adopt(s) {
			return
		}
		begin := time.Now()
		s.watch()
		if l.life.Err() != nil {
			return
		}
		l.set(nil, s.cause)
		l.s.logger.Warn("rabbitmq: connection lost", "role", l.role, "error", s.cause)
		if l.foreign {
			return
		}
		s, failures = nil, 0
		if short++; time.Since(begin) > stableAfter {
			short = 0
		}
		if short > 1 && !l.pause(short, shortPause) {
			return
		}
	}
}

// pause waits for a random part of a span that doubles with each failure.
func (l *line) pause(failures int, most time.Duration) bool {
	span := min(firstPause<<min(failures, 10), most)
	t := time.NewTimer(rand.N(span))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.life.Done():
		return false
	}
}

// connect tries all nodes, the last good one first. The nodes of a cluster know the
// same users: credentials that one refuses aren't shown to the others.
func (l *line) connect(ctx context.Context) (*session, error) {
	l.mu.Lock()
	first := l.next
	l.mu.Unlock()
	var errs []error
	for i := range l.s.hosts {
		at := (first + i) % len(l.s.hosts)
		s, err := l.connectTo(ctx, l.s.hosts[at])
		if err == nil {
			l.mu.Lock()
			l.next = at
			l.mu.Unlock()
			return s, nil
		}
		if badCredentials(err) {
			return nil, err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	// Together they are what the first one is: with another kind beside it the
	// caller couldn't tell.
	return nil, broker.Errorf(kindOf(errs[0]), errors.Join(errs...), "rabbitmq: no node of %d", len(errs))
}

func (l *line) connectTo(ctx context.Context, a address) (*session, error) {
	address := net.JoinHostPort(a.host, strconv.Itoa(a.port))
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dial := l.s.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	socket, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, err, "rabbitmq: connect to %s", address)
	}
	// The handshakes know no context: its end takes the socket away.
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	s, err := l.handshake(ctx, socket, a)
	if !stop() && err == nil {
		_ = s.conn.Close() // its socket is gone
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = socket.Close()
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return nil, broker.Errorf(kindOf(err), err, "rabbitmq: connect to %s", address)
	}
	return s, nil
}

func (l *line) handshake(ctx context.Context, socket net.Conn, a address) (*session, error) {
	w := &wire{Conn: socket}
	var conn net.Conn = w
	if l.s.tls != nil {
		c := l.s.tls.Clone()
		if c.ServerName == "" {
			c.ServerName = a.host
		}
		secure := tls.Client(w, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = secure
	}
	props := amqp.NewConnectionProperties()
	props["product"] = "onceline"
	if l.s.name != "" {
		props.SetClientConnectionName(l.s.name)
	}
	config := amqp.Config{Vhost: l.s.vhost, Heartbeat: l.s.heartbeat, FrameSize: maxFrame, Locale: "en_US", Properties: props}
	if l.s.external {
		config.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
	} else {
		config.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: l.s.user, Password: l.s.password}}
	}
	// Recovery stays off: it reopens channels under handles that were given out,
	// and restarts their delivery tags (RMQ-F-11).
	c, err := amqp.Open(&announcer{Conn: conn}, config)
	if err != nil {
		_ = conn.Close()
		if errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) {
			err = errHungUp // the SDK's guess
		}
		return nil, err
	}
	return newSession(l, c, w), nil
}

// maxFrame is the largest frame that is offered, a node's own default. Headers
// must fit into one.
const maxFrame = 128 << 10

// close ends the line: the session by the protocol as long as ctx lasts, then by
// taking its socket away. It waits for all goroutines.
func (l *line) close(ctx context.Context) error {
	l.end()
	l.mu.Lock()
	s := l.cur
	l.mu.Unlock()
	var err error
	if s != nil && !l.foreign {
		stop := context.AfterFunc(ctx, func() { _ = s.wire.Conn.Close() })
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(writeTimeout)
		}
		if e := s.conn.CloseDeadline(deadline); e != nil && !errors.Is(e, amqp.ErrClosed) {
			err = broker.Errorf(broker.ErrUnavailable, e, "rabbitmq: close")
		}
		_ = s.wire.Conn.Close() // the SDK closes it too, unless its own close failed
		stop()
	}
	l.set(nil, nil)
	ended := make(chan struct{})
	go func() { // ends with what it waits for: calls on sockets that are closed now
		l.tasks.Wait()
		close(ended)
	}()
	if !l.foreign {
		<-ended
		return err
	}
	select { // the caller's client isn't ours to close under a call that is stuck
	case <-ended:
		return nil
	case <-ctx.Done():
		return broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "rabbitmq: close: calls of the client are under way")
	}
}
