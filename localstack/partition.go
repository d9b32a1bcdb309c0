package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// ErrPartition is returned by Partition where a node can't be cut off: on systems
// where it can't be told whose a connection is, and on clusters that were started
// without the option.
var ErrPartition = errors.New("localstack: nodes can't be cut off")

// Replication says who holds an entity of a cluster: a partition of Kafka, a queue or
// stream of RabbitMQ, a stream of NATS.
type Replication struct {
	Leader int // the node, counted from 0
	InSync int // the nodes which have it, the leader included
}

// Partitionable puts proxies between the nodes of a cluster, so that Partition can
// cut one off. It needs Linux, and means nothing to a server of one node. Clusters of
// NATS have [NATSPartitionable].
func Partitionable() ServerOption { return func(c *serverConfig) { c.partitionable = true } }

// mesh stands between the nodes of a cluster. Each port by which a node is reached by
// the others is behind a proxy, and each connection has a gate by the two nodes that
// it joins. Who has dialed is told by the operating system.
//
// A shut gate holds back the bytes of both directions and new connections, as a
// network does that drops packets: nobody is told, and what was sent before arrives
// when it opens, unless it was given up on.
type mesh struct {
	pids  func() []int // of the nodes
	ports []meshPort

	mu    sync.Mutex
	from  map[string]int // whose an accepted connection is, by its address
	gates [][]*gate      // by the lower node, and the higher one
}

// meshPort is the proxy of one port of a node.
type meshPort struct {
	node  int
	proxy *proxy
}

// newMesh opens a proxy for each port: of says whose it is, and dial connects to it.
func newMesh(nodes int, pids func() []int, of []int, dial func(port int) (net.Conn, error)) (*mesh, error) {
	m := &mesh{pids: pids, from: map[string]int{}, gates: make([][]*gate, nodes)}
	for i := range m.gates {
		m.gates[i] = make([]*gate, nodes)
		for j := range m.gates[i] {
			m.gates[i][j] = new(gate)
		}
	}
	for port, node := range of {
		p, err := listen(0, func(client net.Addr) (net.Conn, error) {
			if g := m.arrive(client, port, node); g != nil {
				g.pass(nil)
			}
			return dial(port)
		}, func(l *link) { m.serve(l, node) })
		if err != nil {
			return nil, errors.Join(err, m.close(context.Background()))
		}
		m.ports = append(m.ports, meshPort{node, p})
		p.resume()
	}
	return m, nil
}

// port returns the port of 127.0.0.1 by which the other nodes reach one.
func (m *mesh) port(n int) int { return m.ports[n].proxy.ln.Addr().(*net.TCPAddr).Port }

// gate is that of two nodes.
func (m *mesh) gate(a, b int) *gate { return m.gates[min(a, b)][max(a, b)] }

// arrive finds out which node has dialed, and returns the gate between it and node,
// or nil if it is none of them.
func (m *mesh) arrive(client net.Addr, port, node int) *gate {
	addr, ok := client.(*net.TCPAddr)
	if !ok {
		return nil
	}
	from := ownerOf(addr.Port, m.port(port), m.pids())
	if from < 0 || from == node {
		return nil
	}
	m.mu.Lock()
	m.from[client.String()] = from
	m.mu.Unlock()
	return m.gate(from, node)
}

func (m *mesh) serve(l *link, node int) {
	client := l.client.RemoteAddr().String()
	m.mu.Lock()
	from, known := m.from[client]
	delete(m.from, client)
	m.mu.Unlock()
	if known {
		l.gate = m.gate(from, node)
	}
	whole := func(b []byte) (int, fate) { return len(b), forward }
	l.both(
		func() { pump(l.client, &door{link: l, conn: l.server}, whole) },
		func() { pump(l.server, &door{link: l, conn: l.client}, whole) },
	)
}

// isolate shuts the gates between a node and all others.
func (m *mesh) isolate(node int) error {
	if m == nil {
		return fmt.Errorf("%w: the cluster was started without the option that it takes", ErrPartition)
	}
	if err := canTellOwners(); err != nil {
		return fmt.Errorf("%w: %w", ErrPartition, err)
	}
	for other := range m.gates {
		if other != node {
			m.gate(node, other).close()
		}
	}
	return nil
}

// rejoin opens the gates of a node.
func (m *mesh) rejoin(node int) {
	if m == nil {
		return
	}
	for other := range m.gates {
		m.gate(node, other).open()
	}
}

func (m *mesh) close(ctx context.Context) error {
	if m == nil {
		return nil
	}
	errs := make([]error, 0, len(m.ports))
	for node := range m.gates {
		m.rejoin(node)
	}
	for _, p := range m.ports {
		errs = append(errs, p.proxy.close(ctx))
	}
	return errors.Join(errs...)
}
