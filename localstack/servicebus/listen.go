package servicebus

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// Serve takes connections from l until the server is closed, when it returns nil,
// or l fails. It closes l. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.work.Add(1)
	s.mu.Unlock()
	defer func() {
		l.Close()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		s.work.Done()
	}()
	for {
		nc, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed {
				return nil
			}
			return err
		}
		s.ServeConn(nc)
	}
}

// ServeConn serves one connection, one end of a net.Pipe for example, in a
// goroutine of the server, and returns at once.
func (s *Server) ServeConn(nc net.Conn) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		nc.Close()
		return
	}
	s.raw[nc] = struct{}{}
	s.work.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.work.Done()
		s.sniff(nc, s.tls)
		s.mu.Lock()
		delete(s.raw, nc)
		s.mu.Unlock()
	}()
}

// sniff sees by the first byte what is spoken: AMQP begins with its name, TLS with
// 0x16, anything else is a method of HTTP. It returns when the connection is done.
func (s *Server) sniff(nc net.Conn, config *tls.Config) {
	br := bufio.NewReaderSize(nc, 32<<10)
	b, err := br.Peek(1)
	switch {
	case err != nil:
		nc.Close()
	case b[0] == 'A':
		c := newConn(s, nc, amqp.NewFrameReader(br, maxFrame))
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			nc.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		c.serve()
	case b[0] == 0x16 && config != nil:
		s.sniff(tls.Server(&peeked{Conn: nc, r: br}, config), nil)
	default:
		s.http.serve(&peeked{Conn: nc, r: br})
	}
}

// peeked is a connection of which a reader has read ahead.
type peeked struct {
	net.Conn
	r    *bufio.Reader
	once sync.Once
	done chan struct{} // closed by Close; nil where nobody asks
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// Close closes the connection and tells who waits for that.
func (p *peeked) Close() error {
	err := p.Conn.Close()
	p.once.Do(func() {
		if p.done != nil {
			close(p.done)
		}
	})
	return err
}

// front is the HTTP server that connections are given to which speak HTTP.
type front struct {
	server *http.Server
	conns  chan net.Conn
	ended  chan struct{}

	once    sync.Once // starts the server with the first connection
	mu      sync.Mutex
	open    map[*peeked]struct{}
	started sync.WaitGroup
	closed  bool
}

func newFront(s *Server) *front {
	f := &front{conns: make(chan net.Conn), ended: make(chan struct{}), open: map[*peeked]struct{}{}}
	f.server = &http.Server{Handler: http.HandlerFunc(s.serveAtom), ReadHeaderTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	return f
}

// serve hands a connection to the HTTP server and returns when it is closed.
func (f *front) serve(c *peeked) {
	c.done = make(chan struct{})
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		c.Close()
		return
	}
	f.open[c] = struct{}{}
	f.once.Do(func() {
		f.started.Add(1)
		go func() {
			defer f.started.Done()
			f.server.Serve(f)
		}()
	})
	f.mu.Unlock()
	select {
	case f.conns <- c:
		<-c.done
	case <-f.ended:
		c.Close()
	}
	f.mu.Lock()
	delete(f.open, c)
	f.mu.Unlock()
}

// cut closes the connections that are open.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.open {
		c.Close()
	}
}

func (f *front) close() {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return
	}
	f.closed = true
	close(f.ended)
	f.mu.Unlock()
	f.server.Close()
	f.cut()
	f.started.Wait()
}

// Accept is part of net.Listener.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.ended:
		return nil, net.ErrClosed
	}
}

// Close is part of net.Listener.
func (f *front) Close() error { return nil }

// Addr is part of net.Listener.
func (f *front) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// PlainTransport returns a transport for the administration client of the Go SDK,
// which insists on HTTPS: it sends its requests without TLS, by connections that
// dial makes, net.Dialer's if it is nil. Close its idle connections when done.
func PlainTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	if dial != nil {
		t.DialContext = dial
	}
	return &Transport{t}
}

// Transport sends HTTPS requests without TLS.
type Transport struct{ http *http.Transport }

// Do sends a request; it is what azcore's policy.Transporter asks for.
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, errors.New("servicebus: the transport takes HTTPS requests alone")
	}
	plain := req.Clone(req.Context())
	plain.URL.Scheme = "http"
	return t.http.RoundTrip(plain)
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() { t.http.CloseIdleConnections() }
