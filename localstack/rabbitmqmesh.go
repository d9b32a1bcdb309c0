package localstack

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// RabbitMQPartitionTick is Erlang's net_ticktime in a cluster that is [Partitionable]:
// a node that says nothing for so long, a quarter more or less, is taken for down. It
// is 60 s by default.
const RabbitMQPartitionTick = 4 * time.Second

// ticks are the arguments of a node whose silence is noticed soon.
func (b *rabbitServer) ticks() string {
	if b.mesh == nil {
		return ""
	}
	return fmt.Sprintf(" -kernel net_ticktime %d", int(RabbitMQPartitionTick/time.Second))
}

// between makes the mesh. A node learns from the port mapper where another one
// listens, so the mapper is behind a proxy that names the mesh's ports.
func (b *rabbitServer) between() (err error) {
	if !b.config.partitionable || b.config.nodes < 2 {
		return nil
	}
	of := make([]int, b.config.nodes)
	for n := range of {
		of[n] = n
	}
	if b.mesh, err = newMesh(len(of), func() []int { return pids(b.running()) }, of, func(n int) (net.Conn, error) {
		return net.Dial("tcp", loopback(b.port(n, rabbitDistPort)))
	}); err != nil {
		return err
	}
	p, err := listen(0, func(net.Addr) (net.Conn, error) {
		b.mu.Lock()
		port := b.ports[0]
		b.mu.Unlock()
		return net.Dial("tcp", loopback(port))
	}, b.serveMapper)
	if err != nil {
		return err
	}
	b.lookup = p
	b.mesh.ports = append(b.mesh.ports, meshPort{-1, p})
	p.resume()
	return nil
}

// The port mapper's protocol, as far as its answers name ports.
const (
	mapperNames      = 110 // a request; the answer begins with the mapper's port in four bytes
	mapperPortPlease = 122 // a request, with a node's short name
	mapperPort2Resp  = 119 // its answer: this byte, 0 for success, the port in two bytes
	mapperMost       = 1024
)

// serveMapper passes a connection on as it is, but for the ports in the answers: nodes
// are named by the mesh's, and a client takes no answer of a mapper on another port
// than it asked.
func (b *rabbitServer) serveMapper(l *link) {
	request := make([]byte, mapperMost) // its length in two bytes, and what it is
	n, err := io.ReadAtLeast(l.client, request, 3)
	if err != nil {
		return
	}
	if _, err := l.server.Write(request[:n]); err != nil {
		return
	}
	if kind := request[2]; kind == mapperPortPlease || kind == mapperNames {
		answer := make([]byte, mapperMost)
		got, err := io.ReadAtLeast(l.server, answer, 4)
		if err != nil && err != io.ErrUnexpectedEOF { // that nobody has the name is said in two bytes
			return
		}
		node := b.named(string(request[3:n]))
		switch {
		case got < 4:
		case kind == mapperNames:
			binary.BigEndian.PutUint32(answer, uint32(b.mapperPort()))
		case answer[0] == mapperPort2Resp && answer[1] == 0 && node >= 0:
			binary.BigEndian.PutUint16(answer[2:], uint16(b.mesh.port(node)))
		}
		if _, err := l.client.Write(answer[:got]); err != nil {
			return
		}
	}
	whole := func(b []byte) (int, fate) { return len(b), forward }
	l.both(
		func() { pump(l.client, &door{link: l, conn: l.server}, whole) },
		func() { pump(l.server, &door{link: l, conn: l.client}, whole) },
	)
}

// named returns the node of that short name, -1 for none.
func (b *rabbitServer) named(short string) int {
	for n := range b.config.nodes {
		if host := strings.TrimSuffix(rabbitNode(n), rabbitNodeHost); host == short {
			return n
		}
	}
	return -1
}
