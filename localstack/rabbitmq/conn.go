package rabbitmq

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// connState is how far a connection has come.
type connState uint8

const (
	greeting connState = iota // waits for the protocol header
	starting                  // waits for start-ok
	tuning                    // waits for tune-ok
	opening                   // waits for open
	running
	closing // close was sent or confirmed: all but close-ok is ignored
	ended   // nothing is read any more
)

// conn is one connection of a client. All but out, nc and the heartbeat's
// counters is guarded by the server's lock, or used by the reader alone.
type conn struct {
	s     *Server
	nc    net.Conn
	out   output
	dirty bool // in the server's list of connections with new output

	state      connState
	vhost      *vhost
	user       string
	canCancel  bool // the client understands a basic.cancel from the server
	canRefuse  bool // the client understands a close in place of its login
	frameMax   int
	channelMax int
	channels   map[uint16]*channel
	exclusive  map[*queue]struct{}
	muted      bool       // answers are lost, by a fault
	confirming []*channel // have confirms to send at the end of the batch

	in      []byte // read and not handled yet; the reader's
	hungry  bool   // the last read filled it: there is more
	sending atomic.Uint32
	reading atomic.Uint32 // counts reads, for the heartbeat
	beat    *heart
	gone    chan struct{} // closed when serve returns
	hangUp  *time.Timer   // for a peer that doesn't confirm a close
}

// handshakeTimeout is how long a client may take until its connection is open.
const handshakeTimeout = 10 * time.Second

// tooSlow hangs up on a client that hasn't opened its connection.
func (c *conn) tooSlow() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.state < running {
		c.abort()
	}
}

// confirmClose is how long a peer may take to confirm that the connection closes.
const confirmClose = 10 * time.Second

func newConn(s *Server, nc net.Conn, head []byte) *conn {
	c := &conn{
		s: s, nc: nc, frameMax: amqp.FrameMin, channels: map[uint16]*channel{},
		exclusive: map[*queue]struct{}{}, gone: make(chan struct{}), in: make([]byte, len(head), 16<<10),
	}
	copy(c.in, head)
	c.out.init(nc, c.resume)
	return c
}

// serve reads until the connection ends, and returns when all of it is gone.
func (c *conn) serve() {
	defer close(c.gone)
	c.s.mu.Lock()
	refused := c.s.closed
	if !refused {
		c.s.conns[c] = struct{}{}
	}
	c.s.mu.Unlock()
	if refused {
		_ = c.nc.Close()
		return
	}
	shake := time.AfterFunc(handshakeTimeout, c.tooSlow)
	defer shake.Stop()
	go c.out.write()
	for c.handle() && c.read() {
	}
	c.s.mu.Lock()
	c.s.turn = 0
	c.teardown()
	c.state = ended
	delete(c.s.conns, c)
	c.s.wakeWriters()
	c.s.mu.Unlock()
	c.out.end()
	<-c.out.done
	_ = c.nc.Close()
	if c.hangUp != nil {
		c.hangUp.Stop()
	}
}

// read waits for more input. It is false when there is none.
func (c *conn) read() bool {
	c.out.waitForRoom()
	if cap(c.in)-len(c.in) < 4<<10 || c.hungry && cap(c.in) < 2*defaultFrameMax {
		grown := make([]byte, len(c.in), 2*cap(c.in))
		copy(grown, c.in)
		c.in = grown
	}
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	c.hungry = len(c.in) == cap(c.in)
	c.reading.Add(1)
	return err == nil || n > 0
}

// handle takes all whole frames of the input in one turn of the broker. It is
// false when the connection is to end.
func (c *conn) handle() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.turn = 0
	rest := c.in
	for c.state != ended {
		if c.state == greeting {
			if len(rest) < len(amqp.Protocol) {
				break
			}
			c.greet([8]byte(rest))
			rest = rest[8:]
			continue
		}
		// A few clients count a frame's limit without its overhead; RabbitMQ lets
		// them (RMQ-F-31).
		f, n, err := amqp.ParseFrame(rest, c.frameMax)
		if err != nil {
			c.badFrame(err)
			break
		}
		if n == 0 {
			break
		}
		rest = rest[n:]
		c.frame(f)
	}
	n := copy(c.in, rest)
	c.in = c.in[:n]
	if n == 0 && cap(c.in) > 2*defaultFrameMax {
		c.in = make([]byte, 0, 16<<10)
	}
	c.flushConfirms()
	c.s.wakeWriters()
	return c.state != ended
}

func (c *conn) badFrame(err error) {
	var fe *amqp.FrameError
	if c.state >= running && errors.As(err, &fe) {
		reason := fmt.Sprintf("{invalid_frame_end_marker,%d}", fe.End)
		if fe.Max > 0 {
			reason = fmt.Sprintf("{frame_too_large,%d,%d}", fe.Size, c.frameMax-amqp.FrameOverhead)
		}
		c.sendClose(refuse(amqp.FrameErrorCode, "%s: %s", describe(amqp.Frame{Type: fe.Frame.Type}), reason))
	}
	c.state = ended // where the next frame begins can't be known
}

// send appends output.
func (c *conn) send(f func(b []byte) []byte) {
	if c.out.add(f) && !c.dirty {
		c.dirty = true
		c.s.dirty = append(c.s.dirty, c)
	}
	c.sending.Add(1)
}

// method sends a method whose fields fields appends; nil where it has none.
func (c *conn) method(channel uint16, m amqp.Method, fields func(b []byte) []byte) {
	if c.muted {
		return
	}
	c.send(func(b []byte) []byte {
		start := len(b)
		b = amqp.BeginFrame(b, amqp.FrameMethod, channel)
		b = binary.BigEndian.AppendUint32(b, uint32(m))
		if fields != nil {
			b = fields(b)
		}
		return amqp.EndFrame(b, start)
	})
}

// frame handles one frame.
func (c *conn) frame(f amqp.Frame) {
	if f.Type == amqp.FrameHeartbeat {
		if f.Channel != 0 || len(f.Payload) > 0 {
			c.fail(refuse(amqp.UnexpectedFrame, "%s", describe(f)))
		}
		return
	}
	switch {
	case f.Type == amqp.FrameMethod && len(f.Payload) >= 4, f.Type == amqp.FrameHeader && len(f.Payload) >= 12, f.Type == amqp.FrameBody:
	default:
		c.fail(refuse(amqp.FrameErrorCode, "%s: unknown_frame", describe(f)))
		return
	}
	if f.Channel == 0 || c.state != running {
		c.control(f)
		return
	}
	ch := c.channels[f.Channel]
	if ch == nil {
		if ch = c.newChannel(f); ch == nil {
			return
		}
	}
	ch.frame(f)
}

// control handles a frame of the connection itself.
func (c *conn) control(f amqp.Frame) {
	if f.Type != amqp.FrameMethod {
		if c.state == running {
			c.fail(refuse(amqp.UnexpectedFrame, "%s", describe(f)))
		}
		return
	}
	d := amqp.NewDecoder(f.Payload)
	m := amqp.Method(d.Uint32())
	if c.state == closing {
		switch m {
		case amqp.ConnectionCloseOk:
			c.state = ended
		case amqp.ConnectionClose:
			c.method(0, amqp.ConnectionCloseOk, nil)
		}
		return
	}
	if f.Channel != 0 {
		c.fail(refuse(amqp.ChannelError, "unexpected method in connection state %d", c.state))
		return
	}
	if c.s.tracing() {
		c.tracef("%s", m)
	}
	if c.s.faults.Armed() != nil {
		if inj := c.strikeAnswerable(answered(m), 0, m.String(), func(string) bool { return false }); inj != nil {
			d := amqp.NewDecoder(slices.Clone(d.Rest()))
			c.suffer(inj, func() { c.controlMethod(m, d) })
			return
		}
	}
	c.controlMethod(m, d)
}

func (c *conn) controlMethod(m amqp.Method, d amqp.Decoder) {
	fields := d.Rest()
	e := c.handshake(m, &d)
	if d.Err() != nil {
		e = undecodable(fields, d.Err())
	}
	if e != nil {
		if e.method == 0 {
			e.method = m
		}
		c.fail(e)
	}
}

// fail ends the connection by a close that the client is to confirm.
func (c *conn) fail(e *exception) { c.failWithin(e, confirmClose) }

// failWithin is fail for a client that has patience left to confirm.
func (c *conn) failWithin(e *exception, patience time.Duration) {
	if c.state == closing || c.state == ended {
		return
	}
	if e.code == 0 || c.state < opening { // who isn't in yet is hung up on without a word
		c.cutAfterWords()
		return
	}
	c.sendClose(e)
	c.teardown()
	c.state = closing
	c.hangUp = time.AfterFunc(patience, c.abort)
}

// leave waits for the client to close the connection when its close has been
// confirmed, as RabbitMQ does: a client may take an end that it sees before it has
// read the confirmation for an error.
func (c *conn) leave() {
	c.state = closing
	c.hangUp = time.AfterFunc(confirmClose, c.abort)
}

func (c *conn) sendClose(e *exception) {
	c.flushConfirms()
	c.method(0, amqp.ConnectionClose, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, uint16(e.code))
		b = amqp.AppendShort(b, e.text)
		return binary.BigEndian.AppendUint32(b, uint32(e.method))
	})
}

// cut closes the connection without a word.
func (c *conn) cut() {
	c.teardown()
	c.state = ended
	c.abort()
}

// abort closes the socket, by which the reader ends. It doesn't wait for TLS to say
// goodbye to a peer that may not listen.
func (c *conn) abort() {
	if t, ok := c.nc.(*tls.Conn); ok {
		_ = t.NetConn().Close()
	} else {
		_ = c.nc.Close()
	}
	c.out.end()
}

// teardown gives back what the connection holds: its deliveries, consumers and
// exclusive queues. It may be called more than once.
func (c *conn) teardown() {
	if c.beat != nil {
		c.beat.stop()
		c.beat = nil
	}
	channels := c.sorted()
	for _, ch := range channels { // none shall get what another gives back
		ch.suspend()
	}
	for _, ch := range channels {
		ch.teardown()
	}
	clear(c.channels)
	for q := range c.exclusive {
		q.delete()
	}
	clear(c.exclusive)
}

// resume goes on with what a full output held up.
func (c *conn) resume() {
	c.s.enter(func() {
		for _, ch := range c.sorted() {
			ch.pump()
		}
	})
}
