package rabbitmq

import (
	"io"
	"net"
)

// sniff reads the first bytes of a connection, which tell its protocol.
func sniff(nc net.Conn) ([]byte, error) {
	first := make([]byte, 4)
	if _, err := io.ReadFull(nc, first); err != nil {
		return nil, err
	}
	return first, nil
}

// prefixed is a connection of which some bytes have been read already.
type prefixed struct {
	net.Conn
	head []byte
}

// Read returns those bytes first.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
