package stream

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// Server is one node of the broker with its streams. Make it with [New]. All
// methods are safe for concurrent use.
type Server struct {
	opts   options
	clock  *clock.Clock
	faults fault.Set

	mu        sync.Mutex // of all that follows, and of what streams, connections and groups hold
	streams   map[key]*stream
	groups    map[groupKey]*group
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	closed    bool
	work      sync.WaitGroup // connections
}

// key names a stream.
type key struct{ vhost, name string }

type options struct {
	heartbeat    time.Duration
	frameMax     uint32
	version      string
	trace        func(string)
	traceWhen    func() bool
	authenticate func(user, password string) bool
	host         string
	port         int
}

// Option is an option of [New].
type Option func(*options)

// Heartbeat is what the server proposes, in whole seconds; the smaller of the
// two sides' counts, and zero is none. The default is 60 s. A connection from
// which nothing came for twice that time is closed.
func Heartbeat(d time.Duration) Option { return func(o *options) { o.heartbeat = d } }

// FrameMax is the largest frame that the server takes, in bytes. The default is
// 1 MiB. A Deliver may be larger, as with the real broker.
func FrameMax(n int) Option { return func(o *options) { o.frameMax = uint32(n) } }

// Version is the broker's version in its properties, by which clients decide what
// they may ask for. The default is 4.1.0. Before 3.11 there is no single active
// consumer and no exchange of command versions.
func Version(v string) Option { return func(o *options) { o.version = v } }

// Trace calls f with a line for each request, which holds no secret. f is called
// concurrently.
func Trace(f func(line string)) Option { return func(o *options) { o.trace = f } }

// TraceWhen makes lines for [Trace] only while on says so, and costs nothing else.
// on is called for each request, concurrently.
func TraceWhen(on func() bool) Option { return func(o *options) { o.traceWhen = on } }

// tracer is where lines go now; nil for nowhere.
func (o *options) tracer() func(string) {
	if o.traceWhen != nil && !o.traceWhen() {
		return nil
	}
	return o.trace
}

// Authenticate decides about user and password of SASL PLAIN. The default takes
// any. EXTERNAL is taken always.
func Authenticate(f func(user, password string) bool) Option {
	return func(o *options) { o.authenticate = f }
}

// Advertise is the address that clients are told to connect to. The default is
// the one that they connected to.
func Advertise(host string, port int) Option {
	return func(o *options) { o.host, o.port = host, port }
}

// New returns a server without streams, which serves what [Server.Serve] and
// [Server.ServeConn] are given.
func New(opts ...Option) *Server {
	s := &Server{
		opts:      options{heartbeat: time.Minute, frameMax: 1 << 20, version: "4.1.0"},
		clock:     clock.New(),
		streams:   map[key]*stream{},
		groups:    map[groupKey]*group{},
		conns:     map[*conn]struct{}{},
		listeners: map[net.Listener]struct{}{},
	}
	for _, o := range opts {
		o(&s.opts)
	}
	return s
}

// Faults is where faults are armed; see the package's comment for what they
// strike.
func (s *Server) Faults() *fault.Set { return &s.faults }

// Clock is the time of the chunks, by which max-age is counted. Heartbeats go by
// the real time.
func (s *Server) Clock() *clock.Clock { return s.clock }

// Serve serves the connections that l accepts until l or the server is closed,
// and closes l. It returns nil then, and l's error otherwise.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		l.Close()
	}()
	for {
		nc, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.closed || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		if c := s.admit(nc); c != nil {
			go c.run()
		}
	}
}

// ServeConn serves one connection and returns when it has ended, closed.
func (s *Server) ServeConn(nc net.Conn) {
	if c := s.admit(nc); c != nil {
		c.run()
	}
}

// admit makes a connection that must be run; nil if the server is closed.
func (s *Server) admit(nc net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nc.Close()
		return nil
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.work.Add(1)
	return c
}

// Restart ends all connections and goes on with what a restart of the broker
// leaves: streams, messages, the publishing IDs and offsets, which all are in the
// stream's own log (RMS-F-05). A kill, for which the parameter stands, loses no
// more than a clean restart: what was confirmed is in the log, and nothing else
// is emulated to be on its way. It returns when the connections have ended.
func (s *Server) Restart(_ bool) {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.cut()
	}
	for _, c := range conns {
		<-c.done
	}
}

// Close closes listeners and connections and waits for their goroutines until ctx
// ends; then it returns the context's cause.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	s.clock.Close()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
