package localstack

import (
	"net"
	"sync"
)

// pipeListener is a listener without a socket: dial hands one end of a pipe to
// whoever accepts.
type pipeListener struct {
	addr  net.Addr
	queue chan net.Conn
	done  chan struct{}
	conns sync.WaitGroup // accepted and not closed yet

	mu     sync.Mutex // no conns.Add after Close, which may be waited for
	closed bool
}

func newPipeListener(addr net.Addr) *pipeListener {
	return &pipeListener{addr: addr, queue: make(chan net.Conn), done: make(chan struct{})}
}

// dial returns the client's end, once the other end has been accepted.
func (l *pipeListener) dial(client net.Addr) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.queue <- &pipeConn{Conn: far, local: l.addr, remote: client, closed: l.conns.Done}:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Accept waits for the next connection.
func (l *pipeListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, net.ErrClosed
	}
	l.conns.Add(1)
	l.mu.Unlock()
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		l.conns.Done()
		return nil, net.ErrClosed
	}
}

// Close ends Accept and dial. It leaves accepted connections alone.
func (l *pipeListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	return nil
}

// Addr returns the address that the listener stands for.
func (l *pipeListener) Addr() net.Addr { return l.addr }

// pipeConn is an accepted end of a pipe, with the addresses of the client's real
// connection.
type pipeConn struct {
	net.Conn
	local, remote net.Addr
	closed        func()
	once          sync.Once
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.local }
func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

func (c *pipeConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.closed)
	return err
}
