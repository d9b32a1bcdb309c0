package crashes

import (
	"bytes"
	"context"
	"net"
	"sync"
	"syscall"
)

// wires are a consumer's connections to its store. They stop a commit at the point
// InCommit, and are cut.
type wires struct {
	c *worker
	// commit is what the commit has in it, in lower case.
	commit []byte

	mu    sync.Mutex
	open  map[*wire]bool
	armed *trigger
}

func newWires(c *worker, commit string) *wires {
	return &wires{c: c, commit: []byte(commit), open: map[*wire]bool{}}
}

// dial connects, by what drivers take to do it.
func (w *wires) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	made := &wire{Conn: c, all: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[made] = true
	return made, nil
}

// arm has the next commit stop there.
func (w *wires) arm(t *trigger) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = t
}

// cut resets all connections.
func (w *wires) cut() {
	w.mu.Lock()
	all := w.open
	w.open = map[*wire]bool{}
	w.mu.Unlock()
	for c := range all {
		c.cut()
	}
}

// take returns the trigger of a commit that is to be stopped, if b is one.
func (w *wires) take(b []byte) *trigger {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b = bytes.ToLower(b); w.armed == nil || !bytes.Contains(b, w.commit) || bytes.Contains(b, []byte("read committed")) {
		return nil
	}
	t := w.armed
	w.armed = nil
	return t
}

type wire struct {
	net.Conn
	all *wires

	mu     sync.Mutex
	answer *trigger // of the commit whose answer is to be held
	dead   bool
}

func (c *wire) cut() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset
	}
	_ = c.Conn.Close()
}

// told is what a read or write says; of a connection that was cut it is what the system
// says of one.
func (c *wire) told(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.dead {
		return &net.OpError{Op: "read", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.ECONNRESET}
	}
	return err
}

func (c *wire) Write(b []byte) (int, error) {
	t := c.all.take(b)
	if t == nil {
		n, err := c.Conn.Write(b)
		return n, c.told(err)
	}
	switch t.Round % 3 {
	case 0: // it never leaves
		c.all.c.stop(t)
	case 2: // its answer is held
		c.mu.Lock()
		c.answer = t
		c.mu.Unlock()
	}
	n, err := c.Conn.Write(b)
	if t.Round%3 == 1 { // it is on its way
		c.all.c.stop(t)
	}
	return n, c.told(err)
}

func (c *wire) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	t := c.answer
	if err == nil {
		c.answer = nil
	}
	c.mu.Unlock()
	if t != nil && err == nil {
		c.all.c.stop(t)
		c.mu.Lock()
		dead := c.dead
		c.mu.Unlock()
		if dead {
			return 0, c.told(net.ErrClosed)
		}
	}
	return n, c.told(err)
}

func (c *wire) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
