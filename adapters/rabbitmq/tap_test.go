package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// tap is a proxy that sees the broker's frames, can hold back or change them, and
// can say something in the broker's place.
type tap struct {
	addr string
	// change returns what goes to the client in place of a frame of the broker.
	change func(frame []byte) []byte

	mu    sync.Mutex
	conns []*tapped
	wg    sync.WaitGroup
	made  int
	shut  bool
}

type tapped struct {
	client, server net.Conn
	mu             sync.Mutex // of writes to the client
}

func newTap(t testing.TB, to string, change func(frame []byte) []byte) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: l.Addr().String(), change: change}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			x := &tapped{client: c, server: s}
			p.mu.Lock()
			p.made++
			dead := p.shut
			p.conns = append(p.conns, x)
			p.mu.Unlock()
			if dead {
				x.cut()
			}
			p.wg.Go(func() {
				_, _ = io.Copy(s, c)
				x.cut()
			})
			p.wg.Go(func() {
				p.frames(x)
				x.cut()
			})
		}
	})
	t.Cleanup(func() {
		p.mu.Lock()
		p.shut = true
		p.mu.Unlock()
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (x *tapped) cut() {
	_ = x.client.Close()
	_ = x.server.Close()
}

// cut closes all connections, and returns how many have been made so far.
func (p *tap) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.conns {
		x.cut()
	}
	p.conns = nil
	return p.made
}

func (p *tap) frames(x *tapped) {
	r := bufio.NewReader(x.server)
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(r, head); err != nil {
			return
		}
		rest := make([]byte, int(binary.BigEndian.Uint32(head[3:]))+1)
		if _, err := io.ReadFull(r, rest); err != nil {
			return
		}
		frame := append(head, rest...)
		if p.change != nil {
			frame = p.change(frame)
		}
		if x.write(frame) != nil {
			return
		}
	}
}

func (x *tapped) write(frame []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err := x.client.Write(frame)
	return err
}

// say sends a method on channel 0 to all clients, as if the broker did.
func (p *tap) say(class, method uint16, args ...byte) {
	payload := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), method)
	payload = append(payload, args...)
	frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(payload)))
	frame = append(append(frame, payload...), 0xCE)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.conns {
		_ = x.write(frame) // a client that is gone hears nothing
	}
}

// method is the class and method of a method frame, or 0, 0.
func method(frame []byte) (class, method uint16) {
	if frame[0] != 1 || len(frame) < 12 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:])
}
