package rabbitmq

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// Server is a RabbitMQ broker. All methods are safe for concurrent use.
//
// One lock guards the broker's whole state. A connection takes it once for all
// that it has read, so that a batch of requests costs one turn, and its answers
// leave in one write.
type Server struct {
	settings

	mu      sync.Mutex
	vhosts  map[string]*vhost
	conns   map[*conn]struct{}
	dirty   []*conn   // have output that their writers don't know of yet
	names   uint64    // counts generated names
	scratch []pending // of what is being settled
	turn    int64     // the time of this turn, once somebody asked
	closed  bool

	serving sync.Mutex // guards what follows
	lns     map[net.Listener]struct{}
	held    map[net.Conn]struct{} // all that are served
	stopped bool
	running sync.WaitGroup
}

// New returns a broker that has no listener yet: it serves what [Server.Serve] is
// given.
func New(options ...Option) *Server {
	s := &Server{
		settings: newSettings(options), vhosts: map[string]*vhost{}, conns: map[*conn]struct{}{},
		lns: map[net.Listener]struct{}{}, held: map[net.Conn]struct{}{},
	}
	for _, name := range append([]string{"/"}, s.moreVHosts...) {
		s.vhosts[name] = newVHost(s, name)
	}
	return s
}

// Faults is where faults for the broker's requests are injected; see the package
// comment for what they strike.
func (s *Server) Faults() *fault.Set { return s.faults }

// Clock is the time that the broker counts TTLs and timeouts by.
func (s *Server) Clock() *clock.Clock { return s.clock }

// Authenticate says whether a user may log in with a password.
func (s *Server) Authenticate(user, password string) bool {
	u := s.user(user)
	return u != nil && subtle.ConstantTimeCompare([]byte(u.Password), []byte(password)) == 1
}

// MayOpen says whether a virtual host exists and a user may open it.
func (s *Server) MayOpen(user, vhost string) bool {
	u := s.user(user)
	return s.HasVHost(vhost) && u != nil && (len(u.VHosts) == 0 || slices.Contains(u.VHosts, vhost))
}

// HasVHost says whether a virtual host exists.
func (s *Server) HasVHost(name string) bool {
	return name == "/" || slices.Contains(s.moreVHosts, name)
}

func (s *Server) user(name string) *User {
	i := slices.IndexFunc(s.users, func(u User) bool { return u.Name == name })
	if i < 0 {
		return nil
	}
	return &s.users[i]
}

// Serve accepts connections from l until l fails or the server is closed; then it
// closes l. It returns nil after [Server.Close]. It may be called for several
// listeners at once.
func (s *Server) Serve(l net.Listener) error {
	if !s.track(l) {
		_ = l.Close()
		return nil
	}
	defer s.running.Done()
	for {
		nc, err := l.Accept()
		if err != nil {
			_ = l.Close()
			s.serving.Lock()
			defer s.serving.Unlock()
			delete(s.lns, l)
			if s.stopped {
				return nil
			}
			return fmt.Errorf("rabbitmq: accept: %w", err)
		}
		s.serving.Lock()
		if s.stopped {
			s.serving.Unlock()
			_ = nc.Close()
			continue
		}
		s.running.Add(1)
		s.serving.Unlock()
		go func() {
			defer s.running.Done()
			s.ServeConn(nc)
		}()
	}
}

func (s *Server) track(l net.Listener) bool {
	s.serving.Lock()
	defer s.serving.Unlock()
	if s.stopped {
		return false
	}
	s.lns[l] = struct{}{}
	s.running.Add(1)
	return true
}

// ServeConn serves one connection, and returns when it has ended and is closed.
func (s *Server) ServeConn(nc net.Conn) {
	if !s.hold(nc) {
		return
	}
	_ = nc.SetReadDeadline(time.Now().Add(handshakeTimeout))
	first, err := sniff(nc)
	_ = nc.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		_ = nc.Close()
	case string(first) == "AMQP" || s.streamHandler == nil:
		newConn(s, nc, first).serve()
	default:
		s.streamHandler.ServeConn(&prefixed{Conn: nc, head: first})
	}
	s.serving.Lock()
	defer s.serving.Unlock()
	delete(s.held, nc)
}

// hold keeps a connection to close it with the server, whatever becomes of it.
func (s *Server) hold(nc net.Conn) bool {
	s.serving.Lock()
	defer s.serving.Unlock()
	if s.stopped {
		_ = nc.Close()
		return false
	}
	s.held[nc] = struct{}{}
	return true
}

// Close ends all listeners and connections, and waits until their goroutines have
// ended or ctx has. What it held is gone. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	s.serving.Lock()
	s.stopped = true
	for l := range s.lns {
		_ = l.Close()
	}
	for nc := range s.held {
		if t, ok := nc.(*tls.Conn); ok {
			nc = t.NetConn() // without a goodbye that the peer may not hear
		}
		_ = nc.Close()
	}
	s.serving.Unlock()

	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.abort()
	}
	for _, v := range s.vhosts {
		v.stopTimers()
	}
	s.mu.Unlock()
	if s.ownClock {
		s.clock.Close()
	}

	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("rabbitmq: close: %w", context.Cause(ctx))
	}
}

// enter runs f with the broker's lock, then wakes the writers of all connections
// that have got output. Whatever moves messages outside of a connection's own
// turn (timers, restarts) comes through here.
func (s *Server) enter(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.turn = 0
	f()
	s.wakeWriters()
}

// now is the time of this turn of the broker, in ms since 1970: a batch of requests
// looks at the clock once.
func (s *Server) now() int64 {
	if s.turn == 0 {
		s.turn = s.clock.Now().UnixMilli()
	}
	return s.turn
}

// wakeWriters tells the writers of connections with new output of it.
func (s *Server) wakeWriters() {
	for i, c := range s.dirty {
		c.dirty = false
		c.out.wake()
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}
