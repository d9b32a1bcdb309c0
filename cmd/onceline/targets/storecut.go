package targets

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// cutOnCommit is a connection to a database that is cut when the answer to a commit is
// there, and before anybody has read it.
type cutOnCommit struct {
	net.Conn
	lose    *atomic.Bool
	commits func(sent []byte) bool
	cut     atomic.Bool
}

func (c *cutOnCommit) Write(b []byte) (int, error) {
	if c.commits(b) && c.lose.Swap(false) {
		c.cut.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutOnCommit) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.cut.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}
