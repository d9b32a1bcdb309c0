package localstack

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// front is the front door of a broker of our own: a listener that keeps its
// addresses while the broker restarts, and connections whose bytes can be frozen.
// While the broker is down, clients can connect and wait for it.
type front struct {
	gate  gate
	ready chan *frontConn // accepted, for the broker to take
	left  chan struct{}   // closed when the broker takes no more
	leave sync.Once
	wg    sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*frontConn]struct{}
	up        chan struct{} // closed while the broker takes connections
	isUp      bool
	closed    chan struct{}
}

func newFront() *front {
	return &front{
		ready: make(chan *frontConn), left: make(chan struct{}), conns: map[*frontConn]struct{}{},
		up: make(chan struct{}), closed: make(chan struct{}),
	}
}

// listen opens a port of 127.0.0.1, a free one if it is 0, and returns its
// address. It may be called again for further ports.
func (f *front) listen(port int) (addr string, err error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", fmt.Errorf("localstack: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, l)
	f.wg.Go(func() { f.accept(l) })
	return l.Addr().String(), nil
}

func (f *front) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case <-f.closed:
				return
			case <-time.After(acceptPause):
				continue // out of descriptors, or the client was gone already
			}
		}
		fc := &frontConn{Conn: c, front: f, done: make(chan struct{})}
		f.mu.Lock()
		select {
		case <-f.closed:
			f.mu.Unlock()
			_ = c.Close()
			return
		default:
		}
		f.conns[fc] = struct{}{}
		f.wg.Go(func() { f.hand(fc) })
		f.mu.Unlock()
	}
}

// hand gives a connection to the broker once that is up.
func (f *front) hand(c *frontConn) {
	f.mu.Lock()
	up := f.up
	f.mu.Unlock()
	select {
	case <-up:
	case <-c.done:
		return
	}
	select {
	case f.ready <- c:
	case <-c.done:
	}
}

// Accept is part of net.Listener: the broker's side.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.ready:
		f.mu.Lock()
		c.taken = true
		f.mu.Unlock()
		return c, nil
	case <-f.left:
		return nil, net.ErrClosed
	}
}

// Addr is part of net.Listener.
func (f *front) Addr() net.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listeners[0].Addr()
}

// Close is part of net.Listener: the broker ends. The front's own end is another.
func (f *front) Close() error {
	f.leave.Do(func() { close(f.left) })
	return nil
}

// pause makes new connections wait, and leaves the present ones alone.
func (f *front) pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isUp {
		f.up, f.isUp = make(chan struct{}), false
	}
}

// resume lets waiting and new connections through to the broker.
func (f *front) resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isUp {
		close(f.up)
		f.isUp = true
	}
}

// disconnect closes the connections that the broker has taken.
func (f *front) disconnect() int {
	f.mu.Lock()
	var taken []*frontConn
	for c := range f.conns {
		if c.taken {
			taken = append(taken, c)
		}
	}
	f.mu.Unlock()
	for _, c := range taken {
		_ = c.Close() // it is gone either way
	}
	return len(taken)
}

// end closes listeners and connections and waits for the front's goroutines.
func (f *front) end(ctx context.Context) error {
	f.mu.Lock()
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	listeners := f.listeners
	conns := make([]*frontConn, 0, len(f.conns))
	for c := range f.conns {
		conns = append(conns, c)
	}
	f.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	for _, c := range conns {
		_ = c.Close()
	}
	return waitFor(ctx, "the front's connections", f.wg.Wait)
}

// frontConn is a client's connection as the broker sees it.
type frontConn struct {
	net.Conn
	front *front
	taken bool // by the broker; guarded by the front's mu
	done  chan struct{}
	once  sync.Once
}

// Read waits behind a shut gate with what it has read.
func (c *frontConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.front.gate.carry(n, c.done) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write waits while the gate is shut.
func (c *frontConn) Write(b []byte) (int, error) {
	if !c.front.gate.carry(len(b), c.done) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close closes the client's connection.
func (c *frontConn) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.front.mu.Lock()
		delete(c.front.conns, c)
		c.front.mu.Unlock()
	})
	return c.Conn.Close()
}
