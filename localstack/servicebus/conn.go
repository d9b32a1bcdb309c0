package servicebus

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

const (
	maxFrame   = 65536 // bytes of a frame, either way, as the service says
	channelMax = 4999  // sessions of a connection, less one
	window     = 5000  // transfers of a session that may come before the next flow
	idle       = 4 * time.Minute
	congested  = 1 << 20 // bytes waiting to be written at which no more messages are handed out
	overfull   = 8 << 20 // and at which nothing more is read
)

// conn is one AMQP connection. Its reader applies frames under the server's mutex;
// its writer writes what has been put into out by then, so that frames that are
// made while it writes go out together.
type conn struct {
	s  *Server
	nc net.Conn
	fr *amqp.FrameReader

	mu     sync.Mutex // after the server's
	cond   sync.Cond  // out has been taken, or closing has been set
	out    []byte
	spare  []byte
	closed bool // nothing more is written
	last   bool // what is in out is the last
	wake   chan struct{}
	done   chan struct{} // closed when closed is set

	heard   atomic.Int64 // when a frame came in, Unix nanoseconds of the real time
	beat    atomic.Int64 // nanoseconds in which the client wants to hear; 0 before it has opened
	stalled atomic.Bool  // messages were held back because out was congested

	// The server's mutex guards the rest.
	peerFrame uint32 // bytes of a frame that the client takes
	keyed     bool   // the client has shown a key by SASL
	claims    map[string]bool
	channels  map[uint16]*channel
	ended     bool

	// Only the reader uses paused, which carryOut sets on its behalf.
	paused chan struct{} // a request is held back until it is closed; all behind it wait
}

func newConn(s *Server, nc net.Conn, fr *amqp.FrameReader) *conn {
	c := &conn{
		s: s, nc: nc, fr: fr, wake: make(chan struct{}, 1), done: make(chan struct{}), peerFrame: maxFrame,
		claims: map[string]bool{}, channels: map[uint16]*channel{},
	}
	c.cond.L = &c.mu
	c.heard.Store(time.Now().UnixNano())
	return c
}

// serve reads the connection to its end and returns when its writer has ended too.
func (c *conn) serve() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.write()
	}()
	err := c.read()
	if err != nil && err != errEnd {
		c.s.tracef("conn %s: %v", c.nc.RemoteAddr(), err)
	}
	c.finish()
	<-done
	c.nc.Close()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.end(c.s.clock.Now())
}

// end forgets the connection: its links go, and with them the sessions that they
// hold. Message locks stay until they expire (SB-F-15).
func (c *conn) end(now time.Time) {
	if c.ended {
		return
	}
	c.ended = true
	delete(c.s.conns, c)
	for _, ch := range c.channels {
		ch.end(now)
	}
	clear(c.channels)
}

// cut closes the connection without another word.
func (c *conn) cut() {
	c.fail()
	c.signal()
}

// finish lets the writer write what there is and end.
func (c *conn) finish() {
	c.mu.Lock()
	c.last = true
	c.cond.Broadcast()
	c.mu.Unlock()
	c.nc.SetWriteDeadline(time.Now().Add(time.Second)) // a client that doesn't read can't hold us
	c.signal()
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// begin opens a frame for the client and returns the buffer to append to, with
// c.mu held; send closes it.
func (c *conn) begin(typ byte, channel uint16) ([]byte, int) {
	c.mu.Lock()
	return amqp.BeginFrame(c.out, typ, channel)
}

// send closes what begin opened. The writer is woken when there was nothing for it
// before; else it is at work and looks again.
func (c *conn) send(b []byte, at int) {
	first := len(c.out) == 0
	if !c.closed {
		c.out = amqp.EndFrame(b, at)
	}
	c.mu.Unlock()
	if first {
		c.signal()
	}
}

// full says whether the client is too slow for more messages.
func (c *conn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) > congested || c.closed
}

// breathe waits while far too much is waiting to be written.
func (c *conn) breathe() {
	c.mu.Lock()
	for len(c.out) > overfull && !c.closed && !c.last {
		c.cond.Wait()
	}
	c.mu.Unlock()
}

// write writes what is put into out, and heartbeats when there is nothing. It ends
// after finish or cut, and closes the connection.
func (c *conn) write() {
	defer c.nc.Close()
	tick := time.NewTimer(idle)
	defer tick.Stop()
	for {
		b, last, closed := c.takeOut()
		switch {
		case closed:
			return
		case len(b) > 0:
			if _, err := c.nc.Write(b); err != nil {
				c.fail()
				return
			}
			c.giveBuffer(b)
			if c.stalled.Swap(false) {
				c.resume()
			}
			continue
		case last:
			return
		}
		beat := time.Duration(c.beat.Load())
		if beat == 0 {
			beat = idle
		}
		tick.Reset(beat)
		select {
		case <-c.wake:
		case <-tick.C:
			if time.Since(time.Unix(0, c.heard.Load())) > 2*idle {
				c.fail()
				return
			}
			if c.beat.Load() > 0 {
				c.mu.Lock()
				c.out = amqp.AppendHeartbeat(c.out)
				c.mu.Unlock()
			}
		}
	}
}

func (c *conn) takeOut() (b []byte, last, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = c.out
	if len(b) > 0 {
		c.out, c.spare = c.spare[:0], nil
		c.cond.Broadcast()
	}
	return b, c.last, c.closed
}

// giveBuffer keeps a buffer that has been written for the next frames.
func (c *conn) giveBuffer(b []byte) {
	if cap(b) > congested {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		c.out = b[:0]
	} else {
		c.spare = b[:0]
	}
}

// fail ends the connection because it is broken.
func (c *conn) fail() {
	c.mu.Lock()
	if !c.closed {
		close(c.done)
	}
	c.closed, c.out = true, nil
	c.cond.Broadcast()
	c.mu.Unlock()
	c.nc.Close()
}

// dead says whether the connection is broken or cut.
func (c *conn) dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// resume hands out what was held back while the client was too slow.
func (c *conn) resume() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	now := c.s.clock.Now()
	for _, ch := range c.channels {
		ch.resume(now)
	}
}
