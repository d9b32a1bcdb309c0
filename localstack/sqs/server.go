package sqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// Server is an SQS endpoint in memory. It is an [http.Handler], and [Server.Serve]
// runs it on a listener. All methods are safe for concurrent use.
type Server struct {
	region, account string
	accessKey       string
	trace           func(line string)
	traceWhen       func() bool // nil: always
	inFlightLimit   int
	backlogLimit    int

	staleDeletesIgnored bool

	clock  *clock.Clock
	faults fault.Set

	mu      sync.Mutex // guards the queues and all in them
	queues  map[string]*queue
	deleted map[string]int64 // until when a deleted queue's name can't be used
	uids    uint64

	life    sync.Mutex
	closed  bool
	cut     chan struct{} // closed to end all requests that wait
	active  int           // requests and Serve calls under way
	idle    chan struct{} // closed when active is 0 after Close
	servers map[*http.Server]struct{}
	conns   map[net.Conn]struct{}
}

// Option configures a [Server].
type Option func(*Server)

// Region sets the region of ARNs; the default is us-east-1.
func Region(name string) Option { return func(s *Server) { s.region = name } }

// Account sets the account of URLs and ARNs, twelve digits; the default is
// 000000000000.
func Account(id string) Option { return func(s *Server) { s.account = id } }

// RequireAccessKey refuses requests that are not signed with this access key ID.
// The signature itself is never verified. By default all are served.
func RequireAccessKey(id string) Option { return func(s *Server) { s.accessKey = id } }

// Trace has f called with a line for each request: operation, queue, what it held,
// status and duration. It holds no message and no credential. f may be called
// concurrently and must not block.
func Trace(f func(line string)) Option { return func(s *Server) { s.trace = f } }

// TraceWhen makes lines for [Trace] only while on says so, and costs nothing else.
// on is called for each request, concurrently.
func TraceWhen(on func() bool) Option { return func(s *Server) { s.traceWhen = on } }

// InFlightLimit sets how many messages of a queue may be in flight; the default
// is 120,000 (SQS-F-30, SQS-F-31). Smaller values are for tests.
func InFlightLimit(n int) Option { return func(s *Server) { s.inFlightLimit = n } }

// BacklogLimit sets how many of the oldest messages of a FIFO queue a receive
// looks at; the default is 120,000 (SQS-F-32). Smaller values are for tests.
func BacklogLimit(n int) Option { return func(s *Server) { s.backlogLimit = n } }

// IgnoreStaleDeletes has a standard queue answer a delete with a handle older than
// the latest receive as a success and keep the message. By default it deletes it.
// The vendor promises neither (SQS-F-23).
func IgnoreStaleDeletes() Option { return func(s *Server) { s.staleDeletesIgnored = true } }

// New returns a Server without queues. It needs no Close if neither Serve was
// called nor a request waits.
func New(options ...Option) *Server {
	s := &Server{
		region: "us-east-1", account: "000000000000",
		inFlightLimit: 120_000, backlogLimit: 120_000,
		clock:   clock.New(),
		queues:  map[string]*queue{},
		deleted: map[string]int64{},
		cut:     make(chan struct{}),
		idle:    make(chan struct{}),
		servers: map[*http.Server]struct{}{},
		conns:   map[net.Conn]struct{}{},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Faults returns the set of faults that strike the server's requests.
func (s *Server) Faults() *fault.Set { return &s.faults }

// Clock returns the time by which visibility, delay, retention, the dedup window
// and long polls are counted.
func (s *Server) Clock() *clock.Clock { return s.clock }

func (s *Server) now() int64 { return s.clock.Now().UnixNano() }

func (s *Server) arn(queue string) string {
	return "arn:aws:sqs:" + s.region + ":" + s.account + ":" + queue
}

// Serve answers HTTP/1.1 requests on l until Close, which makes it return nil. It
// closes l. It may be called for several listeners at a time.
func (s *Server) Serve(l net.Listener) error {
	if _, ok := s.enter(); !ok {
		return l.Close()
	}
	defer s.leave()
	h := &http.Server{Handler: s, ConnState: s.track, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.life.Lock()
	s.servers[h] = struct{}{}
	closed := s.closed
	s.life.Unlock()
	if closed {
		h.Close()
	}
	err := h.Serve(l)
	s.life.Lock()
	delete(s.servers, h)
	s.life.Unlock()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("sqs: serve on %s: %w", l.Addr(), err)
}

// track keeps the connections that Restart ends.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.life.Lock()
	defer s.life.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = struct{}{}
		if s.closed {
			c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
		s.rest()
	}
}

// enter counts a request or a Serve in; its cut ends what it waits for.
func (s *Server) enter() (cut <-chan struct{}, ok bool) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil, false
	}
	s.active++
	return s.cut, true
}

func (s *Server) leave() {
	s.life.Lock()
	defer s.life.Unlock()
	s.active--
	s.rest()
}

// rest notes that nothing is left after Close.
func (s *Server) rest() {
	if s.closed && s.active == 0 && len(s.conns) == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// Restart ends all connections, and with them the requests that wait. The service
// loses nothing that it has acknowledged, so all state stays, with kill or
// without. No request that came before is applied after Restart has returned.
func (s *Server) Restart(kill bool) {
	s.mu.Lock() // between two requests
	s.life.Lock()
	if !s.closed {
		close(s.cut)
		s.cut = make(chan struct{})
	}
	s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
	s.life.Unlock()
}

// Close ends Serve, all connections and all requests that wait, and returns when
// they have ended or with the context's cause. Closing again waits again.
func (s *Server) Close(ctx context.Context) error {
	s.life.Lock()
	if !s.closed {
		s.closed = true
		close(s.cut)
		for h := range s.servers {
			h.Close()
		}
		for c := range s.conns {
			c.Close()
		}
		s.rest()
	}
	s.life.Unlock()
	s.clock.Close()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sqs: close: requests still run: %w", context.Cause(ctx))
	}
}
