package pubsub

import (
	"context"
	"net"
	"sync"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// Option is an option of New.
type Option func(*Server)

// Trace is called with a line for each request: method, entity, how many
// messages, answer. No line shows a message's content. It may be called
// concurrently and must not block.
func Trace(line func(string)) Option { return func(s *Server) { s.trace = line } }

// TraceWhen asks before each line of Trace whether somebody listens, so that none
// is made for nobody. By default somebody does.
func TraceWhen(on func() bool) Option { return func(s *Server) { s.traceOn = on } }

// RefuseLateAcks makes a subscription with exactly-once delivery refuse an ack
// or an extension that comes after its deadline, also where the message was not
// delivered again yet. By default it takes them, as the vendor's own emulator
// does (PS-F-36).
func RefuseLateAcks() Option { return func(s *Server) { s.strict = true } }

// IgnoreStaleAcks makes a subscription without exactly-once delivery ignore an
// ack for a delivery after which the message was delivered again, as the vendor's
// own emulator does. By default such an ack takes effect, for the vendor says that
// it may (PS-F-16): a consumer must not rely on the other.
func IgnoreStaleAcks() Option { return func(s *Server) { s.ignoreStale = true } }

// Server is one Pub/Sub, for all projects. Its methods are safe for concurrent
// use.
type Server struct {
	pb.UnimplementedPublisherServer
	pb.UnimplementedSubscriberServer

	grpc    *grpc.Server
	clock   *clock.Clock
	faults  fault.Set
	trace   func(string)
	traceOn func() bool

	strict      bool // RefuseLateAcks
	ignoreStale bool // IgnoreStaleAcks

	connMu sync.Mutex
	conns  map[*conn]struct{}

	mu        sync.Mutex // of all below, and of what it leads to
	topics    map[string]*topic
	subs      map[string]*subscription
	snapshots map[string]*snapshot
	nextID    uint64 // of messages
	closed    bool
}

// maxRequest is what the transport takes: the service's limit of 10 MB with room
// for encoding, so that an oversized publish is answered as one (PS-F-05).
const maxRequest = 20 << 20

// New returns a server without topics. It serves nothing until Serve is called.
func New(opts ...Option) *Server {
	s := &Server{
		clock: clock.New(), conns: map[*conn]struct{}{},
		topics: map[string]*topic{}, subs: map[string]*subscription{}, snapshots: map[string]*snapshot{},
		nextID: uint64(time.Now().UnixMilli()) * 1000, // differs from one server to the next, as the service's never repeat
	}
	for _, o := range opts {
		o(s)
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(&plaintext{server: s, TransportCredentials: insecureCredentials}),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
		grpc.MaxRecvMsgSize(maxRequest), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterPublisherServer(s.grpc, s)
	pb.RegisterSubscriberServer(s.grpc, s)
	return s
}

// Serve accepts connections from l, which it closes in the end, until Close. It
// may be called for several listeners. After Close it returns nil.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	return err
}

// Clock is the time of leases, delays, retention and publish times.
func (s *Server) Clock() *clock.Clock { return s.clock }

// Faults is the set of injected faults.
func (s *Server) Faults() *fault.Set { return &s.faults }

// Inject arms a fault; see the package comment for what it can strike. A fault
// that makes no sense here never hits, and its Err says why.
func (s *Server) Inject(f fault.Fault) *fault.Injection { return s.faults.Inject(f, refuse(f)) }

// Restart ends all connections, with the calls on them. Topics, subscriptions,
// messages and leases stay, whether kill is set or not: the service loses none of
// them. It doesn't block on clients.
func (s *Server) Restart(kill bool) {
	s.connMu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.connMu.Unlock()
	for _, c := range conns {
		_ = c.Close() // whatever it says, nobody can use the connection any more
	}
}

// Close ends all connections and waits for the calls on them, until ctx ends.
// It is idempotent.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.clock.Close()
	stopped := make(chan struct{})
	go func() {
		s.Restart(true) // a stop alone waits for clients that don't read
		s.grpc.Stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// plaintext is the insecure transport, which remembers the connections, so that
// one can be cut from within a call on it.
type plaintext struct {
	credentials.TransportCredentials
	server *Server
}

// peerInfo carries the connection to the calls on it.
type peerInfo struct {
	credentials.AuthInfo
	conn *conn
}

func (p *plaintext) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner, info, err := p.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	c := &conn{Conn: inner, server: p.server}
	p.server.connMu.Lock()
	p.server.conns[c] = struct{}{}
	p.server.connMu.Unlock()
	return c, peerInfo{info, c}, nil
}

func (p *plaintext) Clone() credentials.TransportCredentials { return p }

// conn is one client's connection.
type conn struct {
	net.Conn
	server *Server
}

func (c *conn) Close() error {
	c.server.connMu.Lock()
	delete(c.server.conns, c)
	c.server.connMu.Unlock()
	return c.Conn.Close()
}
