package stream

import (
	"bytes"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decodeEarly is decode before the connection is open.
func (c *conn) decodeEarly(f *frame) act {
	switch f.key {
	case cmdSaslHandshake:
		return func() bool {
			c.answer(f, codeOK, func(b []byte) []byte { return putStr(putStr(put32(b, 2), "PLAIN"), "EXTERNAL") })
			return true
		}
	case cmdSaslAuthenticate:
		mechanism, response := f.c.str(), bytes.Clone(f.c.bytes())
		return func() bool { return c.authenticate(f, mechanism, response) }
	case cmdOpen:
		vhost := f.c.str()
		if c.step < stepTuned {
			return nil
		}
		return func() bool { return c.open(f, vhost) }
	case cmdTune, cmdTune | responseBit:
		frameMax, heartbeat := f.c.u32(), f.c.u32()
		if c.step != stepAuthenticated {
			return nil
		}
		return func() bool {
			c.tune(frameMax, heartbeat)
			return true
		}
	case cmdPeerProperties, cmdHeartbeat, cmdClose:
		return c.decodeUpkeep(f)
	}
	return nil
}

// decodeUpkeep is decode for what may come at any step.
func (c *conn) decodeUpkeep(f *frame) act {
	switch f.key {
	case cmdPeerProperties:
		f.c.props()
		return func() bool {
			c.answer(f, codeOK, func(b []byte) []byte {
				b = put32(b, 3)
				b = putStr(putStr(b, "product"), "RabbitMQ")
				b = putStr(putStr(b, "version"), c.server.opts.version)
				return putStr(putStr(b, "platform"), "onceline")
			})
			return true
		}
	case cmdHeartbeat:
		return func() bool { return true }
	case cmdClose:
		f.c.u16()
		f.c.raw()
		return func() bool {
			c.answer(f, codeOK, nil)
			c.closing = true
			return true
		}
	case cmdClose | responseBit:
		return func() bool {
			c.closing = true
			return true
		}
	case cmdExchangeVersions:
		if !c.server.since(3, 11) {
			return nil
		}
		for n := f.c.u32(); n > 0 && !f.c.bad; n-- {
			k, _, most := f.c.u16(), f.c.u16(), f.c.u16()
			if k == cmdDeliver && most >= 2 {
				c.deliverV2 = true
			}
		}
		return func() bool {
			c.answer(f, codeOK, putVersions)
			return true
		}
	}
	return nil
}

// putVersions lists the commands with the versions that are known.
func putVersions(b []byte) []byte {
	at := len(b)
	b = put32(b, 0)
	n := 0
	for k := cmdDeclarePublisher; k <= cmdStreamStats; k++ {
		most := uint16(1)
		switch k {
		case cmdPublishConfirm, cmdPublishError, cmdMetadataUpdate:
			continue
		case cmdPublish, cmdDeliver:
			most = 2
		}
		b = put16(put16(put16(b, uint16(k)), 1), most)
		n++
	}
	copy(b[at:], put32(nil, uint32(n)))
	return b
}

func (c *conn) authenticate(f *frame, mechanism string, response []byte) bool {
	refuse := func(code uint16) bool {
		c.answer(f, code, nil)
		c.closing = true
		return false
	}
	if c.step >= stepAuthenticated {
		return refuse(codeSaslError)
	}
	switch mechanism {
	case "PLAIN":
		parts := strings.SplitN(string(response), "\x00", 3)
		if len(parts) != 3 {
			return refuse(codeSaslError)
		}
		if may := c.server.opts.authenticate; may != nil && !may(parts[1], parts[2]) {
			return refuse(codeAuthFailure)
		}
	case "EXTERNAL":
	default:
		return refuse(codeSaslMechanism)
	}
	c.step = stepAuthenticated
	c.answer(f, codeOK, nil)
	c.send(cmdTune, func(b []byte) []byte {
		return put32(put32(b, c.server.opts.frameMax), uint32(c.server.opts.heartbeat/time.Second))
	})
	return true
}

func (c *conn) tune(frameMax, heartbeat uint32) {
	smaller := func(a, b uint32) uint32 {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	c.frameMax = smaller(frameMax, c.server.opts.frameMax)
	// Either side may turn heartbeats off.
	if own := uint32(c.server.opts.heartbeat / time.Second); own > 0 && heartbeat > 0 {
		c.heartbeat = time.Duration(min(own, heartbeat)) * time.Second
	}
	c.step = stepTuned
}

func (c *conn) open(f *frame, vhost string) bool {
	c.vhost, c.step = vhost, stepOpen
	host, port := c.address()
	c.answer(f, codeOK, func(b []byte) []byte {
		b = put32(b, 2)
		b = putStr(putStr(b, "advertised_host"), host)
		return putStr(putStr(b, "advertised_port"), strconv.Itoa(port))
	})
	return true
}

// address is what the client is told to connect to.
func (c *conn) address() (string, int) {
	if o := &c.server.opts; o.host != "" {
		return o.host, o.port
	}
	host, port, err := net.SplitHostPort(c.nc.LocalAddr().String())
	n, _ := strconv.Atoi(port)
	if err != nil {
		return "localhost", 5552 // a connection in memory
	}
	return host, n
}

// since reports whether the server says to be of that version or a later one.
func (s *Server) since(major, minor int) bool {
	parts := strings.Split(s.opts.version, ".")
	have := make([]int, 2)
	for i := range min(len(parts), 2) {
		have[i], _ = strconv.Atoi(parts[i])
	}
	return slices.Compare(have, []int{major, minor}) >= 0
}
