package servicebus

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// Server is one namespace. Its methods are safe for concurrent use.
type Server struct {
	clock   *clock.Clock
	faults  fault.Set
	trace   func(line string)
	listens func() bool
	keys    map[string]string
	maxSize int
	tls     *tls.Config
	http    *front
	work    sync.WaitGroup // connections and acceptors

	mu        sync.Mutex
	queues    map[string]*queue // subscriptions and sub-queues too, by key
	topics    map[string]*topic // by key
	conns     map[*conn]struct{}
	raw       map[net.Conn]struct{} // all that have been accepted
	listeners map[net.Listener]struct{}
	created   time.Time
	scratch   []byte
	random    *rand.ChaCha8
	closed    bool
}

// Option changes how a [Server] is made.
type Option func(*Server)

// Trace calls f with a line for each request. f must be quick, and safe for
// concurrent use. The lines hold no secrets and no bodies.
func Trace(f func(line string)) Option { return func(s *Server) { s.trace = f } }

// TraceWhen makes the server ask on for each line whether anybody listens, before
// it makes the line. on must be quick, and safe for concurrent use.
func TraceWhen(on func() bool) Option { return func(s *Server) { s.listens = on } }

// SharedAccessKey adds a key that clients may sign their tokens with. With the
// first, tokens that are not signed by one of the keys, or are for another entity,
// or have run out, are refused, and so are links without a token. Without any, all
// are taken.
func SharedAccessKey(name, key string) Option {
	return func(s *Server) { s.keys[name] = key }
}

// MaxMessageSize is the most bytes of a message or batch, [StandardSize] by
// default; [PremiumSize] is that of the premium tier (SB-F-10, SB-F-11).
func MaxMessageSize(bytes int) Option { return func(s *Server) { s.maxSize = bytes } }

// TLS makes the server take connections with TLS too. Which those are it sees by
// their first byte.
func TLS(config *tls.Config) Option { return func(s *Server) { s.tls = config } }

// New returns a server without entities. Close it.
func New(options ...Option) *Server {
	s := &Server{
		clock: clock.New(), keys: map[string]string{}, maxSize: StandardSize,
		queues: map[string]*queue{}, topics: map[string]*topic{},
		conns: map[*conn]struct{}{}, raw: map[net.Conn]struct{}{}, listeners: map[net.Listener]struct{}{},
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	s.random = rand.NewChaCha8(seed)
	for _, o := range options {
		o(s)
	}
	s.created = s.clock.Now()
	s.http = newFront(s)
	return s
}

// Faults returns the faults of the server, to inject into.
func (s *Server) Faults() *fault.Set { return &s.faults }

// Clock returns the time by which locks, windows, lives and schedules are counted.
func (s *Server) Clock() *clock.Clock { return s.clock }

// Restart ends all connections, with kill as if the process had been killed, else
// with a word to the clients. Entities, messages and the history of duplicates
// stay. Locks on messages and sessions don't (SB-F-43): what was handed out is
// ready again and counts as a failed delivery.
func (s *Server) Restart(kill bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracef("restart, kill=%v", kill)
	now := s.clock.Now()
	for c := range s.conns {
		if kill {
			c.cut()
		} else {
			b, at := c.begin(amqp.FrameAMQP, 0)
			c.send(amqp.AppendClosing(b, amqp.CodeClose, 0, amqp.Error{Condition: "amqp:connection:forced",
				Description: "The service is restarting."}), at)
			c.finish()
		}
	}
	for c := range s.conns { // before the locks go, or they would get the messages
		for _, ch := range c.channels {
			for _, l := range ch.links {
				l.leave()
			}
		}
	}
	for _, q := range s.queues {
		q.dropLocks(now)
	}
	for c := range s.conns {
		c.end(now)
	}
	s.http.cut()
}

// Close closes listeners and connections and waits until all of the server's
// goroutines have ended, or ctx has.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.cut()
	}
	for nc := range s.raw {
		nc.Close()
	}
	for _, q := range s.queues {
		q.stopTimers()
	}
	for _, t := range s.topics {
		t.waiting.stopTimers()
	}
	s.mu.Unlock()
	s.clock.Close()
	s.http.close()
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("servicebus: waiting for connections to end: %w", context.Cause(ctx))
	}
}

// traced says whether lines are asked for.
func (s *Server) traced() bool { return s.trace != nil && (s.listens == nil || s.listens()) }

func (s *Server) tracef(format string, args ...any) {
	if s.traced() {
		s.trace(fmt.Sprintf(format, args...))
	}
}

// newToken returns a random lock token.
func (s *Server) newToken() amqp.UUID {
	var u amqp.UUID
	for i := 0; i < len(u); i += 8 {
		n := s.random.Uint64()
		for j := range 8 {
			u[i+j] = byte(n >> (8 * j))
		}
	}
	return u
}

// sizeOf is the most bytes of a message for an entity.
func (s *Server) sizeOf(p *QueueProperties) int {
	if p.MaxMessageSize > 0 {
		return p.MaxMessageSize
	}
	return s.maxSize
}

// target returns the queue or topic at an address; nil if there is none, or if
// nothing can be sent there.
func (s *Server) target(address string) target {
	k := key(address)
	if t := s.topics[k]; t != nil {
		return t
	}
	if q := s.queues[k]; q != nil && q.topic == nil && q.parent == nil {
		return q
	}
	return nil
}

// dropLocks gives back everything that is handed out.
func (q *queue) dropLocks(now time.Time) {
	for m := q.locked.head; m != nil; m = q.locked.head {
		q.giveBack(m, true, now)
	}
	for _, ss := range q.sessions {
		if ss.holder != nil {
			ss.release(true, now)
		}
		for m := ss.locked.head; m != nil; m = ss.locked.head {
			q.giveBack(m, true, now)
		}
	}
}

func (q *queue) stopTimers() {
	q.lockTimer.stop()
	q.dueTimer.stop()
	q.expireTimer.stop()
	for _, ss := range q.sessions {
		ss.timer.stop()
	}
	for _, l := range q.waiters {
		l.timeout.timer.stop()
	}
}
