package stream

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The steps of a connection.
const (
	stepStart = iota
	stepAuthenticated
	stepTuned
	stepOpen
)

const (
	// maxEarly is the largest frame before a connection is open.
	maxEarly = 64 << 10
	// maxPending is how many bytes wait for a client that doesn't read before its
	// requests are left unread.
	maxPending = 4 << 20
	// maxFlight is how many bytes of chunks are written in one go.
	maxFlight = 1 << 20
)

// conn is one client's connection. One goroutine reads and carries out requests,
// one writes answers and chunks.
type conn struct {
	server *Server
	nc     net.Conn
	in     *bufio.Reader
	done   chan struct{}
	ended  chan struct{} // closed by cut
	once   sync.Once
	signal chan struct{} // one token: there is something to write
	room   chan struct{} // one token: pending has been written

	// The reader's own.
	step      int
	frameMax  uint32
	heartbeat time.Duration
	vhost     string
	deliverV2 bool
	scratch   []byte

	heard atomic.Int64 // Unix nanoseconds of the last bytes from the client

	// Guarded by the server's lock.
	pending    []byte // frames to write
	closing    bool   // nothing follows pending
	publishers map[uint8]*publisher
	subs       map[uint8]*subscription
	order      []*subscription // of subs, in turn
	updates    map[uint32]*subscription
	correlate  uint32
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{
		server: s, nc: nc, in: bufio.NewReaderSize(nc, 64<<10),
		done: make(chan struct{}), ended: make(chan struct{}), signal: make(chan struct{}, 1), room: make(chan struct{}, 1),
		frameMax:   maxEarly,
		publishers: map[uint8]*publisher{},
		subs:       map[uint8]*subscription{},
		updates:    map[uint32]*subscription{},
	}
}

// cut closes the connection, whatever it does.
func (c *conn) cut() {
	c.once.Do(func() {
		close(c.ended)
		c.nc.Close()
	})
}

// wake lets the writer look for something to write.
func (c *conn) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// run serves the connection until it has ended.
func (c *conn) run() {
	defer c.server.work.Done()
	defer close(c.done)
	c.heard.Store(time.Now().UnixNano())
	var writer sync.WaitGroup
	writer.Go(c.write)
	c.read()
	s := c.server
	s.mu.Lock()
	c.closing = true
	delete(s.conns, c)
	for id := range c.subs {
		s.unsubscribe(c, id)
	}
	s.mu.Unlock()
	c.wake()
	writer.Wait()
	c.cut()
}

// read carries out requests until the connection ends.
func (c *conn) read() {
	var head [8]byte
	for {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(head[:])
		if size < 4 || size > c.frameMax {
			c.refuse(codeFrameTooLarge, "frame too large")
			return
		}
		n := int(size - 4)
		if cap(c.scratch) < n {
			c.scratch = make([]byte, max(n, 4096))
		}
		body := c.scratch[:n]
		if _, err := io.ReadFull(c.in, body); err != nil {
			return
		}
		c.heard.Store(time.Now().UnixNano())
		f := frame{key: binary.BigEndian.Uint16(head[4:]), version: binary.BigEndian.Uint16(head[6:]), c: cursor{b: body}}
		if !c.handle(&f) {
			return
		}
		if !c.more() {
			c.wake()
		}
	}
}

// more reports whether another whole request has arrived.
func (c *conn) more() bool {
	n := c.in.Buffered()
	if n < 4 {
		return false
	}
	size, err := c.in.Peek(4)
	return err == nil && uint64(n) >= 4+uint64(binary.BigEndian.Uint32(size))
}

// write writes answers, then chunks, until the connection ends.
func (c *conn) write() {
	var beat <-chan time.Time
	var ticker *time.Ticker
	defer func() {
		if ticker != nil {
			ticker.Stop()
		}
	}()
	var out []byte
	s := c.server
	for {
		s.mu.Lock()
		out, c.pending = c.pending, out[:0]
		more := c.deliver(&out)
		over := c.closing
		beats := c.heartbeat
		s.mu.Unlock()
		select {
		case c.room <- struct{}{}:
		default:
		}
		if len(out) > 0 {
			if _, err := c.nc.Write(out); err != nil {
				c.cut()
				return
			}
		}
		if over {
			c.cut()
			return
		}
		if ticker == nil && beats > 0 {
			ticker = time.NewTicker(beats / 2)
			beat = ticker.C
		}
		if more {
			continue
		}
		select {
		case <-c.signal:
		case <-c.ended:
			return
		case <-beat:
			if time.Since(time.Unix(0, c.heard.Load())) > 2*beats {
				c.cut() // the client is gone
				return
			}
			s.mu.Lock()
			c.pending = end(begin(c.pending, cmdHeartbeat), len(c.pending))
			s.mu.Unlock()
		}
	}
}

// send appends a frame that build writes; the server's lock is held.
func (c *conn) send(key uint16, build func(b []byte) []byte) {
	at := len(c.pending)
	c.pending = end(build(begin(c.pending, key)), at)
}

// answer appends the answer to a request, with its code and what build adds.
func (c *conn) answer(f *frame, code uint16, build func(b []byte) []byte) {
	c.send(f.key|responseBit, func(b []byte) []byte {
		b = put16(put32(b, f.id), code)
		if build != nil {
			b = build(b)
		}
		return b
	})
}

// refuse sends Close for a client that breaks the rules. The connection ends once
// it is written.
func (c *conn) refuse(code uint16, why string) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.step < stepAuthenticated {
		return // as the broker: without a word
	}
	c.send(cmdClose, func(b []byte) []byte { return putStr(put16(put32(b, 1), code), why) })
}

// await leaves requests unread while a client doesn't read its answers.
func (c *conn) await() bool {
	for {
		c.server.mu.Lock()
		full := len(c.pending) > maxPending
		c.server.mu.Unlock()
		if !full {
			return true
		}
		c.wake()
		select {
		case <-c.room:
		case <-c.ended:
			return false
		}
	}
}

func (c *conn) note(f *frame, fate string) {
	trace := c.server.opts.tracer()
	if trace == nil || f.key&^responseBit == cmdHeartbeat {
		return
	}
	line := strings.TrimSpace(fmt.Sprintf("%s %s %s", f.name(), f.stream, f.what))
	if fate != "" {
		line += " (" + fate + ")"
	}
	trace(line)
}
