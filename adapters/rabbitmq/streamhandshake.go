package rabbitmq

import (
	"fmt"
	"strconv"
	"time"
)

// open is the handshake, question by question.
func (l *streamLink) open(s *settings) error {
	name := s.name
	if name == "" {
		name = "onceline"
	}
	c, err := l.ask(scPeerProperties, func(b []byte) []byte {
		return putProps(b, "product", "onceline", "platform", "Go", "connection_name", name)
	})
	if err != nil {
		return err
	}
	l.props = c.props()
	if c, err = l.ask(scSaslHandshake, nil); err != nil {
		return err
	}
	mechanism, secret := "PLAIN", "\x00"+s.user+"\x00"+s.password
	if s.external {
		mechanism, secret = "EXTERNAL", ""
	}
	offered := false
	for n := c.u32(); n > 0 && !c.bad; n-- {
		offered = c.str() == mechanism || offered
	}
	if !offered {
		return fmt.Errorf("%s: %w", mechanism, codeSaslMechanism)
	}
	if _, err = l.ask(scSaslAuthenticate, func(b []byte) []byte {
		return append(put32(putStr(b, mechanism), uint32(len(secret))), secret...)
	}); err != nil {
		return err
	}
	if err := l.tune(s.heartbeat); err != nil {
		return err
	}
	if c, err = l.ask(scOpen, func(b []byte) []byte { return putStr(b, s.vhost) }); err != nil {
		return err
	}
	where := c.props()
	l.host = where["advertised_host"]
	l.port, _ = strconv.Atoi(where["advertised_port"])
	return nil
}

// tune takes the server's limits, with our heartbeat if it is shorter.
func (l *streamLink) tune(heartbeat time.Duration) error {
	key, body, err := l.next(nil)
	if err != nil {
		return err
	}
	c := streamCursor{b: body}
	frameMax, beat := c.u32(), c.u32()
	if key != scTune || c.bad {
		return fmt.Errorf("tune: %w", errFrame)
	}
	if own := uint32(heartbeat / time.Second); own > 0 && (beat == 0 || own < beat) {
		beat = own
	}
	l.beat = time.Duration(beat) * time.Second
	l.frameMax = int(min(frameMax, 1<<30))
	if frameMax == 0 {
		l.frameMax = maxControl
	}
	_, err = l.nc.Write(putFrame(nil, scTune|scResponse, func(b []byte) []byte { return put32(put32(b, frameMax), beat) }))
	return err
}

// ask is a question of the handshake, whose answer is the next frame.
func (l *streamLink) ask(key uint16, build func(b []byte) []byte) (streamCursor, error) {
	l.id++
	if _, err := l.nc.Write(putRequest(nil, key, l.id, build)); err != nil {
		return streamCursor{}, err
	}
	for {
		got, body, err := l.next(nil)
		if err != nil {
			return streamCursor{}, err
		}
		c := streamCursor{b: body}
		switch {
		case got == scHeartbeat:
			continue
		case got == scClose:
			c.u32()
			return c, fmt.Errorf("the broker closes the connection: %w", streamCode(c.u16()))
		case got != key|scResponse || c.u32() != l.id:
			return c, errFrame
		}
		if code := streamCode(c.u16()); code != codeOK || c.bad {
			return c, code
		}
		return c, nil
	}
}
