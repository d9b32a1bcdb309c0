package localstack

import (
	"net"
	"sync"
	"time"
)

// chosenConn is a connection to one of several ports of a server, chosen by the
// first bytes that are written to it. Until then it is connected to nothing.
type chosenConn struct {
	choose func(first []byte) (net.Conn, error)
	ready  chan struct{} // closed when the choice has been made, or Close came first

	mu     sync.Mutex
	conn   net.Conn // nil after a Close that came first, and after a failure
	err    error
	chosen bool
}

func newChosenConn(choose func([]byte) (net.Conn, error)) *chosenConn {
	return &chosenConn{choose: choose, ready: make(chan struct{})}
}

// decided makes the choice if it is still to be made; with none it ends the
// connection instead.
func (c *chosenConn) decided(choose func() (net.Conn, error)) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.chosen {
		c.chosen = true
		if choose == nil {
			c.err = net.ErrClosed
		} else {
			c.conn, c.err = choose()
		}
		close(c.ready)
	}
	return c.conn, c.err
}

// Write makes the choice at the first time.
func (c *chosenConn) Write(b []byte) (int, error) {
	conn, err := c.decided(func() (net.Conn, error) { return c.choose(b) })
	if err != nil {
		return 0, err
	}
	return conn.Write(b)
}

// Read waits for the choice.
func (c *chosenConn) Read(b []byte) (int, error) {
	<-c.ready
	conn, err := c.decided(nil)
	if err != nil {
		return 0, err
	}
	return conn.Read(b)
}

// Close closes the connection, or keeps it from being made.
func (c *chosenConn) Close() error {
	conn, err := c.decided(nil)
	if err != nil {
		return nil
	}
	return conn.Close()
}

// LocalAddr is unknown before the choice.
func (c *chosenConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is unknown before the choice.
func (c *chosenConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline is not used on connections to a broker.
func (c *chosenConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is not used on connections to a broker.
func (c *chosenConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is not used on connections to a broker.
func (c *chosenConn) SetWriteDeadline(time.Time) error { return nil }
