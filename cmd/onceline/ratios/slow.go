package ratios

import (
	"context"
	"net"
	"sync"
	"time"
)

// slowly dials connections on which what is read comes that much later than it was
// sent, however much is on its way: a long way, not a narrow one.
func slowly(rtt time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &slowConn{Conn: c, rtt: rtt}, nil
	}
}

// slowConn holds back the first read after a write until the round trip is over.
type slowConn struct {
	net.Conn
	rtt time.Duration
	mu  sync.Mutex
	due time.Time
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.due = time.Now().Add(c.rtt)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	wait := time.Until(c.due)
	c.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	return n, err
}
