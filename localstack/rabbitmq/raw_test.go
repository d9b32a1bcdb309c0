package rabbitmq_test

import (
	"io"
	"net"
	"time"

	wire "github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// raw speaks frames by hand, for what no client sends.
type raw struct {
	net.Conn
	in      []byte
	buf     []byte // what in is a part of
	channel uint16 // of the last frame
}

// frame reads the next frame.
func (r *raw) frame() (wire.Frame, error) {
	for {
		f, n, err := wire.ParseFrame(r.in, 1<<20)
		if err != nil {
			return f, err
		}
		if n > 0 {
			r.in, r.channel = r.in[n:], f.Channel
			return f, nil
		}
		if r.buf == nil {
			r.buf = make([]byte, 256<<10)
		}
		r.in = r.buf[:copy(r.buf, r.in)]
		n, err = r.Read(r.buf[len(r.in):])
		if r.in = r.buf[:len(r.in)+n]; err != nil {
			return f, err
		}
	}
}

// method reads frames until one holds a method.
func (r *raw) method() (wire.Method, wire.Decoder, error) {
	for {
		f, err := r.frame()
		if err != nil {
			return 0, wire.Decoder{}, err
		}
		if f.Type == wire.FrameMethod {
			d := wire.NewDecoder(f.Payload)
			return wire.Method(d.Uint32()), d, nil
		}
	}
}

// methodFrame makes the frame of a method.
func methodFrame(channel uint16, m wire.Method, fields ...byte) []byte {
	b := wire.BeginFrame(nil, wire.FrameMethod, channel)
	b = append(b, byte(m>>24), byte(m>>16), byte(m>>8), byte(m))
	return wire.EndFrame(append(b, fields...), 0)
}

func startOk(user, password string) []byte {
	fields := wire.Table{}.Append(nil)
	fields = wire.AppendShort(fields, "PLAIN")
	fields = wire.AppendLong(fields, "\x00"+user+"\x00"+password)
	return methodFrame(0, wire.ConnectionStartOk, wire.AppendShort(fields, "en_US")...)
}

// open opens a connection, with a frame limit of 4096 bytes and a heartbeat.
func (r *raw) open(heartbeat byte) error {
	steps := [][]byte{
		wire.Protocol[:],
		startOk("guest", "guest"),
		append(methodFrame(0, wire.ConnectionTuneOk, 7, 0xff, 0, 0, 0x10, 0, 0, heartbeat),
			methodFrame(0, wire.ConnectionOpen, 1, '/', 0, 0)...),
	}
	for _, s := range steps {
		if _, err := r.Write(s); err != nil {
			return err
		}
		if _, _, err := r.method(); err != nil {
			return err
		}
	}
	return nil
}

// silentClient opens a connection whose header has been sent, and returns how long
// it took until the server hung up.
func silentClient(nc net.Conn, begin time.Time) time.Duration {
	r := &raw{Conn: nc}
	defer nc.Close()
	if _, _, err := r.method(); err != nil {
		return 0
	}
	for _, s := range [][]byte{
		startOk("guest", "guest"), methodFrame(0, wire.ConnectionTuneOk, 7, 0xff, 0, 0, 0x10, 0, 0, 10),
		methodFrame(0, wire.ConnectionOpen, 1, '/', 0, 0),
	} {
		if _, err := r.Write(s); err != nil {
			return 0
		}
	}
	_, _ = io.Copy(io.Discard, nc)
	return time.Since(begin)
}
