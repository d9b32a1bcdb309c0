package rabbitmq

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// greet answers the protocol header.
func (c *conn) greet(header [8]byte) {
	if header != amqp.Protocol {
		c.send(func(b []byte) []byte { return append(b, amqp.Protocol[:]...) })
		c.state = ended
		return
	}
	c.state = starting
	version := c.s.release.Version()
	properties := amqp.Table{
		{Name: "capabilities", Value: amqp.Table{
			{Name: "publisher_confirms", Value: true},
			{Name: "exchange_exchange_bindings", Value: true},
			{Name: "basic.nack", Value: true},
			{Name: "consumer_cancel_notify", Value: true},
			{Name: "connection.blocked", Value: true},
			{Name: "consumer_priorities", Value: true},
			{Name: "authentication_failure_close", Value: true},
			{Name: "per_consumer_qos", Value: true},
			{Name: "direct_reply_to", Value: true},
		}},
		{Name: "cluster_name", Value: "onceline"},
		{Name: "information", Value: "An emulator, in the manner of RabbitMQ " + version},
		{Name: "platform", Value: "Go"},
		{Name: "product", Value: "RabbitMQ"},
		{Name: "version", Value: version},
	}
	c.method(0, amqp.ConnectionStart, func(b []byte) []byte {
		b = append(b, 0, 9)
		b = properties.Append(b)
		b = amqp.AppendLong(b, c.mechanisms())
		return amqp.AppendLong(b, "en_US")
	})
}

// mechanisms are the ways to log in. A certificate is one where the peer has
// shown one that was verified.
func (c *conn) mechanisms() string {
	if c.certificate() != "" {
		return "PLAIN AMQPLAIN EXTERNAL"
	}
	return "PLAIN AMQPLAIN"
}

// certificate returns the common name of the peer's verified certificate, or "".
func (c *conn) certificate() string {
	t, ok := c.nc.(*tls.Conn)
	if !ok {
		return ""
	}
	chains := t.ConnectionState().VerifiedChains
	if len(chains) == 0 || len(chains[0]) == 0 {
		return ""
	}
	return chains[0][0].Subject.CommonName
}

// handshake handles the methods of a connection.
func (c *conn) handshake(m amqp.Method, d *amqp.Decoder) *exception {
	switch {
	case m == amqp.ConnectionClose:
		c.teardown()
		c.method(0, amqp.ConnectionCloseOk, nil)
		c.leave()
	case m == amqp.ConnectionStartOk && c.state == starting:
		return c.startOk(d)
	case m == amqp.ConnectionTuneOk && c.state == tuning:
		return c.tuneOk(d)
	case m == amqp.ConnectionOpen && c.state == opening:
		return c.open(string(d.Short()))
	case m == amqp.ConnectionUpdateSecret && c.state == running:
		c.method(0, amqp.ConnectionUpdateSecretOk, nil)
	default:
		return refuse(amqp.ChannelError, "unexpected method in connection state %s", c.state)
	}
	return nil
}

// String returns the state's name as RabbitMQ has it in its errors.
func (s connState) String() string {
	return [...]string{"handshake", "starting", "tuning", "opening", "running", "closing", "closed"}[s]
}

func (c *conn) startOk(d *amqp.Decoder) *exception {
	properties := d.Table()
	mechanism := string(d.Short())
	response := d.Long()
	if d.Err() != nil {
		return nil
	}
	if v, ok := properties.Get("capabilities"); ok {
		capabilities, _ := v.(amqp.Table)
		can, _ := capabilities.Get("consumer_cancel_notify")
		c.canCancel = can == true
		can, _ = capabilities.Get("authentication_failure_close")
		c.canRefuse = can == true
	}
	var ok bool
	switch mechanism {
	case "PLAIN":
		if parts := bytes.SplitN(response, []byte{0}, 3); len(parts) == 3 {
			c.user = string(parts[1])
			ok = c.s.Authenticate(c.user, string(parts[2]))
		}
	case "AMQPLAIN":
		login, err := amqp.ParseTable(response)
		user, _ := login.Get("LOGIN")
		password, _ := login.Get("PASSWORD")
		u, uok := user.(string)
		p, pok := password.(string)
		c.user = u
		ok = err == nil && uok && pok && c.s.Authenticate(u, p)
	case "EXTERNAL":
		c.user = c.certificate()
		ok = c.user != "" && c.s.user(c.user) != nil
	default:
		return refuse(amqp.CommandInvalid, "unknown authentication mechanism '%s'", mechanism)
	}
	if !ok {
		return c.refuseLogin(mechanism)
	}
	c.state = tuning
	c.method(0, amqp.ConnectionTune, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, c.s.channelMax)
		b = binary.BigEndian.AppendUint32(b, uint32(c.s.settings.frameMax))
		return binary.BigEndian.AppendUint16(b, c.s.heartbeat)
	})
	return nil
}

// refuseLogin tells a client that asked for it why it is hung up on; any other
// sees the end of the connection alone.
func (c *conn) refuseLogin(mechanism string) *exception {
	if c.canRefuse {
		c.sendClose(refuse(amqp.AccessRefused, "Login was refused using authentication mechanism %s. "+
			"For details see the broker logfile.", mechanism))
	}
	return &exception{}
}

func (c *conn) tuneOk(d *amqp.Decoder) *exception {
	channels, frame, heartbeat := int(d.Uint16()), int(d.Uint32()), d.Uint16()
	limit := c.s.settings.frameMax
	switch {
	case d.Err() != nil:
		return nil
	case frame != 0 && frame < amqp.FrameMin:
		return refuse(amqp.NotAllowed, "negotiated frame_max = %d is lower than the minimum allowed value (%d)", frame, amqp.FrameMin)
	case limit != 0 && (frame == 0 || frame > limit):
		return refuse(amqp.NotAllowed, "negotiated frame_max = %s is higher than the maximum allowed value (%d)", orNoLimit(frame), limit)
	case c.s.channelMax != 0 && (channels == 0 || channels > int(c.s.channelMax)):
		return refuse(amqp.NotAllowed, "negotiated channel_max = %s is higher than the maximum allowed value (%d)", orNoLimit(channels), c.s.channelMax)
	}
	c.frameMax, c.channelMax = frame, channels
	c.state = opening
	c.startHeart(time.Duration(heartbeat) * time.Second)
	return nil
}

func (c *conn) open(name string) *exception {
	v := c.s.vhosts[name]
	switch {
	case v == nil:
		return refuse(amqp.NotAllowed, "vhost %s not found", name)
	case !c.s.MayOpen(c.user, name):
		return refuse(amqp.NotAllowed, "access to vhost '%s' refused for user '%s'", name, c.user)
	}
	c.vhost = v
	c.state = running
	c.method(0, amqp.ConnectionOpenOk, func(b []byte) []byte { return append(b, 0) })
	return nil
}

// orNoLimit writes a limit as RabbitMQ does, for whom 0 is none.
func orNoLimit(n int) string {
	if n == 0 {
		return "0 (no limit)"
	}
	return strconv.Itoa(n)
}
