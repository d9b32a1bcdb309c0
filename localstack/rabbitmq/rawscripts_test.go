package rabbitmq_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/url"
	"os"
	"time"

	wire "github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

func init() { scripts["frames"] = scriptFrames }

// exchange of frames on a connection of its own: what is sent, and all that comes
// back.
func (s *script) frames(what string, opened bool, send ...[]byte) {
	s.t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	nc, err := net.Dial("tcp", u.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	r := &raw{Conn: nc}
	if opened {
		if err := r.open(0); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, b := range send {
		if _, err := nc.Write(b); err != nil {
			s.t.Fatal(err)
		}
	}
	if opened && !*record { // one more, which is answered if the connection still is open
		_, _ = nc.Write(methodFrame(last, wire.ChannelOpen, 0))
	}
	for {
		if *record { // a real broker's channels overtake each other, and it takes its time to hang up
			_ = nc.SetReadDeadline(time.Now().Add(4 * time.Second))
		}
		m, d, err := r.method()
		switch {
		case err == nil && r.channel == last, *record && errors.Is(err, os.ErrDeadlineExceeded):
			s.printf("%s: open", what)
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.t.Fatalf("%s: neither an answer nor the end", what)
		case err != nil:
			if len(r.in) == 8 && string(r.in[:4]) == "AMQP" {
				s.printf("%s: header %v", what, r.in[4:])
			}
			s.printf("%s: end", what)
			return
		}
		switch m {
		case wire.ConnectionClose, wire.ChannelClose:
			code, text := d.Uint16(), string(d.Short())
			class, method := d.Uint16(), d.Uint16()
			s.printf("%s: %s %d %s (%d.%d)", what, m, code, text, class, method)
			if m == wire.ConnectionClose {
				_, _ = nc.Write(methodFrame(0, wire.ConnectionCloseOk))
			}
		default:
			s.printf("%s: method %d.%d", what, m.Class(), m.Number())
		}
	}
}

// last is the channel by which a script asks whether a connection still is open.
const last = 999

func frame(kind byte, channel uint16, payload ...byte) []byte {
	return wire.EndFrame(append(wire.BeginFrame(nil, kind, channel), payload...), 0)
}

func contentHeader(channel, class uint16, size uint64) []byte {
	b := binary.BigEndian.AppendUint16(nil, class)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint64(b, size)
	return frame(wire.FrameHeader, channel, append(b, 0, 0)...)
}

func publishTo(channel uint16, key string) []byte {
	fields := wire.AppendShort([]byte{0, 0, 0}, key)
	return methodFrame(channel, wire.BasicPublish, append(fields, 0)...)
}

func scriptFrames(s *script) {
	open := methodFrame(1, wire.ChannelOpen, 0)
	s.frames("another protocol", false, []byte("HTTP/1.1"))
	s.frames("another version", false, []byte("AMQP\x01\x01\x00\x0a"))
	s.frames("a method before channel.open", true, methodFrame(1, wire.BasicQos, 0, 0, 0, 0, 0, 1, 0))
	s.frames("a second channel.open", true, open, open)
	s.frames("a short method", true, open, frame(wire.FrameMethod, 1, 0, 60))
	s.frames("short fields", true, open, methodFrame(1, wire.BasicQos, 0, 0))
	s.frames("connection.open again", true, methodFrame(0, wire.ConnectionOpen, 1, '/', 0, 0))
	s.frames("a channel method on channel 0", true, methodFrame(0, wire.BasicQos, 0, 0, 0, 0, 0, 1, 0))
	s.frames("a method where a header is due", true, open, publishTo(1, "x"), methodFrame(1, wire.BasicQos, 0, 0, 0, 0, 0, 1, 0))
	s.frames("a header of another class", true, open, publishTo(1, "x"), contentHeader(1, 50, 1))
	s.frames("a header by itself", true, open, contentHeader(1, 60, 1))
	s.frames("a body by itself", true, open, frame(wire.FrameBody, 1, 'x'))
	s.frames("a body where a header is due", true, open, publishTo(1, "x"), frame(wire.FrameBody, 1, 'x'))
	s.frames("a header where a body is due", true, open, publishTo(1, "x"), contentHeader(1, 60, 1), contentHeader(1, 60, 1))
	s.frames("an empty body frame", true, open, publishTo(1, "x"), contentHeader(1, 60, 1), frame(wire.FrameBody, 1), frame(wire.FrameBody, 1, 'x'))
	s.frames("a frame over the limit", true, open, frame(wire.FrameBody, 1, make([]byte, 4097)...))
	s.frames("a frame a little over the limit", true, open, publishTo(1, "x"), contentHeader(1, 60, 4096), frame(wire.FrameBody, 1, make([]byte, 4096)...))
	s.frames("a bad end of a frame", true, append(frame(wire.FrameHeartbeat, 0)[:7], 0))
	s.frames("a heartbeat", true, frame(wire.FrameHeartbeat, 0))
	s.frames("a heartbeat on a channel", true, open, frame(wire.FrameHeartbeat, 1))
	s.frames("an unknown frame type", true, open, frame(9, 1, 'x'))
	s.frames("channel.close of no channel", true, methodFrame(1, wire.ChannelClose, 0, 200, 0, 0, 0, 0, 0))
	s.frames("channel.flow off", true, open, methodFrame(1, wire.ChannelFlow, 0))
	s.frames("channel.flow on", true, open, methodFrame(1, wire.ChannelFlow, 1))
	s.frames("access.request", true, open, methodFrame(1, wire.AccessRequest, append(wire.AppendShort(nil, "/data"), 0)...))
	s.frames("prefetch of a size", true, open, methodFrame(1, wire.BasicQos, 0, 0, 0, 9, 0, 1, 0))
	s.frames("bad properties", true, open, publishTo(1, "x"), frame(wire.FrameHeader, 1, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 9, 'x'))

	hello := wire.Protocol[:]
	tune := func(channels uint16, frame uint32) []byte {
		b := binary.BigEndian.AppendUint16(nil, channels)
		b = binary.BigEndian.AppendUint32(b, frame)
		return methodFrame(0, wire.ConnectionTuneOk, append(b, 0, 0)...)
	}
	s.frames("a wrong password", false, hello, startOk("guest", "wrong"))
	s.frames("tuned to small frames", false, hello, startOk("guest", "guest"), tune(0, 100))
	s.frames("tuned to large frames", false, hello, startOk("guest", "guest"), tune(10, 1<<20))
	s.frames("tuned to no limit of frames", false, hello, startOk("guest", "guest"), tune(10, 0))
	s.frames("tuned to many channels", false, hello, startOk("guest", "guest"), tune(65535, 4096))
	s.frames("opened before tuned", false, hello, startOk("guest", "guest"), methodFrame(0, wire.ConnectionOpen, 1, '/', 0, 0))
	s.frames("no such vhost", false, hello, startOk("guest", "guest"), tune(10, 4096), methodFrame(0, wire.ConnectionOpen, 2, '/', 'x', 0, 0))
	few := [][]byte{hello, startOk("guest", "guest"), tune(2, 4096), methodFrame(0, wire.ConnectionOpen, 1, '/', 0, 0)}
	for id := range uint16(3) {
		few = append(few, methodFrame(id+1, wire.ChannelOpen, 0))
	}
	s.frames("too many channels", false, few...)
}
