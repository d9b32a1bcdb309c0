package servicebus

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// errEnd ends a connection that has nothing more to say.
var errEnd = errors.New("servicebus: the connection has been closed in order")

// mechanisms are those that the service offers: ANONYMOUS and MSSBCBS, by which
// claims are put to $cbs, PLAIN with the name of a key and the key, EXTERNAL.
var mechanisms = []amqp.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}

// read reads the connection to its end.
func (c *conn) read() error {
	if err := c.handshake(); err != nil {
		return err
	}
	for {
		f, err := c.fr.Next()
		if err != nil {
			return c.refuse(err)
		}
		c.heard.Store(time.Now().UnixNano())
		if len(f.Body) == 0 {
			continue // a heartbeat
		}
		if f.Type != amqp.FrameAMQP {
			return c.refuse(fmt.Errorf("%w: a SASL frame after the handshake", amqp.ErrSyntax))
		}
		if err := c.frame(f); err != nil {
			return c.refuse(err)
		}
		if c.paused != nil {
			c.pause()
		}
		c.breathe()
	}
}

// pause waits until the request that a fault holds back has gone on.
func (c *conn) pause() {
	select {
	case <-c.paused:
	case <-c.done:
	}
	c.paused = nil
}

// handshake reads the protocol headers and, if the client begins with it, SASL.
func (c *conn) handshake() error {
	p, err := c.fr.Protocol()
	if err != nil {
		return err
	}
	if p == amqp.ProtocolSASL {
		c.header(amqp.ProtocolSASL)
		if err := c.negotiate(); err != nil {
			return err
		}
		if p, err = c.fr.Protocol(); err != nil {
			return err
		}
	}
	c.header(amqp.ProtocolAMQP)
	if p != amqp.ProtocolAMQP { // the client learns what is spoken here
		return fmt.Errorf("%w: protocol %d", amqp.ErrSyntax, p)
	}
	return nil
}

func (c *conn) header(protocol byte) {
	c.mu.Lock()
	c.out = amqp.AppendProtocol(c.out, protocol)
	c.mu.Unlock()
	c.signal()
}

// negotiate does SASL. ANONYMOUS leaves all to the claims put to $cbs; PLAIN is
// held against the server's keys, if it has any.
func (c *conn) negotiate() error {
	b, at := c.begin(amqp.FrameSASL, 0)
	c.send(amqp.AppendMechanisms(b, mechanisms), at)
	f, err := c.fr.Next()
	if err != nil {
		return err
	}
	r := amqp.NewReader(f.Body)
	code, fields, err := r.Composite()
	if err != nil || f.Type != amqp.FrameSASL || code != amqp.CodeSASLInit {
		return fmt.Errorf("%w: no SASL init: 0x%x %v", amqp.ErrSyntax, code, err)
	}
	mechanism, response := fields.Text(), fields.Text()
	if err := fields.Err(); err != nil {
		return err
	}
	outcome := byte(0)
	switch mechanism {
	case "PLAIN":
		parts := strings.Split(response, "\x00")
		if len(parts) != 3 || !c.s.holdsKey(parts[1], parts[2]) {
			outcome = 1
		}
		c.keyed = outcome == 0
	case "ANONYMOUS", "MSSBCBS", "EXTERNAL":
	default:
		outcome = 1
	}
	c.s.tracef("sasl %s: outcome %d", mechanism, outcome)
	b, at = c.begin(amqp.FrameSASL, 0)
	c.send(amqp.AppendOutcome(b, outcome), at)
	if outcome != 0 {
		return errEnd
	}
	return nil
}

// refuse closes the connection in AMQP's own way if what went wrong is the
// client's, and returns err.
func (c *conn) refuse(err error) error {
	condition := amqp.Symbol("amqp:connection:framing-error")
	switch {
	case errors.Is(err, amqp.ErrShort), errors.Is(err, amqp.ErrDepth), errors.Is(err, amqp.ErrSyntax):
	case errors.As(err, new(*protocolError)):
		condition = err.(*protocolError).condition
	default:
		return err // the network's; nobody listens
	}
	b, at := c.begin(amqp.FrameAMQP, 0)
	c.send(amqp.AppendClosing(b, amqp.CodeClose, 0, amqp.Error{Condition: condition, Description: err.Error()}), at)
	return err
}

// protocolError ends a connection whose client broke a rule of the protocol.
type protocolError struct {
	condition amqp.Symbol
	text      string
}

func (e *protocolError) Error() string { return e.text }

func notAllowed(format string, args ...any) error {
	return &protocolError{"amqp:not-allowed", fmt.Sprintf(format, args...)}
}

// frame applies one frame.
func (c *conn) frame(f amqp.Frame) error {
	r := amqp.NewReader(f.Body)
	code, fields, err := r.Composite()
	if err != nil {
		return err
	}
	switch code {
	case amqp.CodeOpen:
		return c.open(&fields)
	case amqp.CodeClose:
		b, at := c.begin(amqp.FrameAMQP, 0)
		c.send(amqp.AppendClosing(b, amqp.CodeClose, 0, amqp.Error{}), at)
		return errEnd
	case amqp.CodeBegin:
		return c.beginSession(f.Channel, &fields)
	}
	c.s.mu.Lock()
	ch := c.channels[f.Channel]
	c.s.mu.Unlock()
	if ch == nil && (code == amqp.CodeEnd || code == amqp.CodeDetach) {
		// The vendor's library lets these pass: a session's begin or end may have been
		// given up (SB-F-55).
		c.s.tracef("frame 0x%x on channel %d, which has no session: ignored", code, f.Channel)
		return nil
	}
	if ch == nil {
		return notAllowed("frame 0x%x on channel %d, which has no session", code, f.Channel)
	}
	switch code {
	case amqp.CodeTransfer:
		return ch.transfer(&fields, r.Rest())
	case amqp.CodeDisposition:
		return ch.disposition(&fields)
	case amqp.CodeFlow:
		return ch.flow(&fields)
	case amqp.CodeAttach:
		return ch.attach(&fields)
	case amqp.CodeDetach:
		return ch.detach(&fields)
	case amqp.CodeEnd:
		c.endSession(ch)
		return nil
	}
	return fmt.Errorf("%w: performative 0x%x", amqp.ErrSyntax, code)
}

func (c *conn) open(fields *amqp.Fields) error {
	o, err := amqp.ReadOpen(fields)
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	c.peerFrame = maxFrame
	if o.MaxFrameSize > 0 {
		c.peerFrame = min(max(o.MaxFrameSize, 512), maxFrame)
	}
	c.s.mu.Unlock()
	beat := idle
	if o.IdleTimeout > 0 {
		beat = min(beat, time.Duration(o.IdleTimeout)*time.Millisecond/2)
	}
	c.beat.Store(int64(max(beat, time.Millisecond)))
	c.s.tracef("open %s", o.Container)
	b, at := c.begin(amqp.FrameAMQP, 0)
	c.send(amqp.Open{Container: "onceline-servicebus", MaxFrameSize: maxFrame, ChannelMax: channelMax,
		IdleTimeout: uint32(idle / time.Millisecond)}.Append(b), at)
	return nil
}

func (c *conn) beginSession(number uint16, fields *amqp.Fields) error {
	g, err := amqp.ReadBegin(fields)
	if err != nil {
		return err
	}
	if number > channelMax {
		return notAllowed("channel %d is above the maximum of %d", number, channelMax)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.channels[number] != nil {
		return notAllowed("channel %d has a session already", number)
	}
	ch := newChannel(c, number, g)
	c.channels[number] = ch
	b, at := c.begin(amqp.FrameAMQP, number)
	c.send(amqp.Begin{RemoteChannel: number, NextOutgoingID: ch.nextOut, IncomingWindow: window,
		OutgoingWindow: window, HandleMax: handleMax}.Append(b), at)
	return nil
}

func (c *conn) endSession(ch *channel) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	ch.end(c.s.clock.Now())
	delete(c.channels, ch.number)
	b, at := c.begin(amqp.FrameAMQP, ch.number)
	c.send(amqp.AppendClosing(b, amqp.CodeEnd, 0, amqp.Error{}), at)
}
