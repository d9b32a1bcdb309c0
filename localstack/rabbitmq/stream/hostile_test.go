package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzFrames sends anything to an open connection: nothing may panic, hang the
// server or keep others from being served.
func FuzzFrames(f *testing.F) {
	for key := uint16(0); key < 32; key++ {
		f.Add(end(append(begin(nil, key), 0, 0, 0, 1, 0, 1, 's', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0))
	}
	f.Add(end(append(begin(nil, cmdPublish), 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0), 0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 1, 0, 1})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := New(Heartbeat(0))
		here, there := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.ServeConn(there)
		}()
		go io.Copy(io.Discard, here)
		here.SetDeadline(time.Now().Add(5 * time.Second))
		for _, frame := range [][]byte{
			end(append(put32(begin(nil, cmdSaslAuthenticate), 1), append(putStr(nil, "EXTERNAL"), 0, 0, 0, 0)...), 0),
			end(put32(put32(begin(nil, cmdTune), 1<<20), 0), 0),
			end(putStr(put32(begin(nil, cmdOpen), 2), "/"), 0),
			end(put32(putStr(put32(begin(nil, cmdCreate), 3), "s"), 0), 0),
			end(putStr(putStr(append(put32(begin(nil, cmdDeclarePublisher), 4), 0), "r"), "s"), 0),
			data,
		} {
			if _, err := here.Write(frame); err != nil {
				break // it was closed
			}
		}
		here.Close()
		<-served
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever is read back from a chunk is what was published, byte for byte.
func FuzzPublish(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02hi"), uint16(1))
	f.Add([]byte("\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x90\x00\x02\x00\x00\x00\x09\x00\x00\x00\x03abc"), uint16(1))
	f.Add([]byte("\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01f\x00\x00\x00\x02hi"), uint16(2))
	f.Fuzz(func(t *testing.T, body []byte, version uint16) {
		fr := frame{key: cmdPublish, version: version, c: cursor{b: body}}
		_, entries := publishFrame(&fr)
		if fr.c.bad {
			return
		}
		rest := body[5:]
		for _, e := range entries {
			if id := binary.BigEndian.Uint64(rest); id != e.id || e.records == 0 {
				t.Fatalf("ID %d as %d, of %d records", id, e.id, e.records)
			}
			rest = rest[8:]
			if version >= 2 {
				n := int(int16(binary.BigEndian.Uint16(rest)))
				rest = rest[2+max(n, 0):]
			}
			if !bytes.HasPrefix(rest, e.data) {
				t.Fatalf("entry %x isn't %x", e.data, rest)
			}
			rest = rest[len(e.data):]
		}
	})
}

// Bytes before a connection is open are bounded, and a client that says nothing
// the protocol knows is let go.
func TestHostileClientsAreLetGo(t *testing.T) {
	for name, first := range map[string][]byte{
		"a frame of 4 GiB":     {0xff, 0xff, 0xff, 0xff, 0, 17, 0, 1},
		"a frame of nothing":   {0, 0, 0, 0, 0, 17, 0, 1},
		"HTTP":                 []byte("GET / HTTP/1.1\r\n\r\n"),
		"publish before Open":  end(append(begin(nil, cmdPublish), 0, 0, 0, 0, 0), 0),
		"an unknown command":   end(begin(nil, 999), 0),
		"a map without an end": end(append(begin(nil, cmdPeerProperties), 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff), 0),
		"open without tune":    end(putStr(put32(begin(nil, cmdOpen), 1), "/"), 0),
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := serve(t)
			nc, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := nc.Write(first); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(nc); err != nil && !isReset(err) {
				t.Errorf("the connection is there: %x, %v", b, err)
			}
		})
	}
}

func isReset(err error) bool {
	ne, ok := err.(net.Error)
	return ok && !ne.Timeout()
}
