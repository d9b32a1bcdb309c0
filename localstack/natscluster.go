package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsNodeName is the name by which a child runs one node of a cluster.
const natsNodeName = "nats-node"

// natsNodePrefix begins the name of each node; its number follows.
const natsNodePrefix = "node-"

// natsNode is one node of a cluster, as it is told to its child process.
type natsNode struct {
	natsConfig
	Name    string
	Client  int   // its port for clients
	Inner   int   // its port for other nodes
	Routes  []int // the ports by which all nodes reach each other
	Cluster int   // which of them is its own
}

// natsNodeBackend runs a node in this process, which is the child.
type natsNodeBackend struct {
	node   natsNode
	server *server.Server
}

func (b *natsNodeBackend) start(_ context.Context, dir string) error {
	n := b.node
	var routes []*url.URL
	for i, port := range n.Routes {
		if i != n.Cluster {
			routes = append(routes, &url.URL{Scheme: "nats-route", Host: loopback(port)})
		}
	}
	s, err := server.NewServer(&server.Options{
		ServerName: n.Name, Host: "127.0.0.1", Port: n.Client, ClientAdvertise: n.Advertise,
		Cluster: server.ClusterOpts{Name: "onceline", Host: "127.0.0.1", Port: n.Inner, Advertise: loopback(n.Routes[n.Cluster]), PoolSize: -1, NoAdvertise: true},
		Routes:  routes, JetStream: true, StoreDir: dir, SyncAlways: n.SyncAlways,
		MaxPayload: n.MaxPayload, Username: n.User, Password: n.Password, Authorization: n.Token,
		NoLog: true, NoSigs: true, DisableShortFirstPing: true,
	})
	if err != nil {
		return fmt.Errorf("localstack: nats %s: %w", n.Name, err)
	}
	var log natsLog
	s.SetLogger(&log, false, false)
	s.Start()
	if !s.ReadyForConnections(natsReady) || !s.JetStreamEnabled() || log.failure() != nil {
		s.Shutdown()
		return errors.Join(fmt.Errorf("localstack: nats %s did not start", n.Name), log.failure())
	}
	b.server = s
	return nil
}

func (b *natsNodeBackend) stop(ctx context.Context) error {
	return waitFor(ctx, "nats to stop", func() { b.server.Shutdown(); b.server.WaitForShutdown() })
}

func (b *natsNodeBackend) direct() string { return "" }

// NATSCluster is a cluster of NATS servers with JetStream, each in a process of its
// own. It implements [Emulator].
type NATSCluster struct {
	*emulator
	backend *natsCluster
}

// StartNATSCluster runs a cluster of that many NATS servers, three for streams with
// three replicas, in child processes, and returns when JetStream has a leader and
// answers on every node. The children are this program once more, as with
// [StartChild]. The nodes are called node-0, node-1 and so on, which is what a
// stream's leader is told by.
//
// Kill sends SIGKILL to all nodes at once; KillNode to one. The nodes talk to each
// other directly, so neither faults nor Freeze concern that.
func StartNATSCluster(ctx context.Context, nodes int, options ...NATSOption) (*NATSCluster, error) {
	if marked := os.Getenv(childEnv); marked != "" {
		return nil, fmt.Errorf("localstack: this process is itself a child emulator (%s): main or TestMain must begin with localstack.RunIfChild", marked)
	}
	if nodes < 1 {
		return nil, fmt.Errorf("localstack: nats: %d nodes, must be at least 1", nodes)
	}
	var c natsConfig
	for _, o := range options {
		o(&c)
	}
	b := &natsCluster{config: c}
	e := &emulator{
		name: NATSName, real: true, backend: b,
		versions: map[string]string{"nats-server": server.VERSION},
		checkAPI: func(string) error { return errNoAPI },
	}
	port := c.front
	for n := range nodes {
		child := &childBackend{spec: childSpec{Name: natsNodeName}}
		p, err := listen(port, func(net.Addr) (net.Conn, error) { return child.dial(0) }, func(l *link) { serveNATS(l, &e.faults, &e.trace) })
		if err != nil {
			return nil, errors.Join(err, e.Close(context.Background()))
		}
		e.proxies = append(e.proxies, p)
		child.spec.NATSNode = natsNode{natsConfig: c, Name: fmt.Sprint(natsNodePrefix, n), Cluster: n}
		child.spec.NATSNode.Advertise = p.addr()
		b.nodes = append(b.nodes, child)
		if port != 0 {
			port++
		}
	}
	if c.partitionable && nodes > 1 {
		of := make([]int, nodes)
		for n := range of {
			of[n] = n
		}
		var err error
		if b.mesh, err = newMesh(nodes, b.started, of, func(n int) (net.Conn, error) { return net.Dial("tcp", loopback(b.port(nodes+n))) }); err != nil {
			return nil, errors.Join(err, e.Close(context.Background()))
		}
		e.between = b.mesh
	}
	if err := e.open(ctx, c.dataDir); err != nil {
		return nil, err
	}
	return &NATSCluster{e, b}, nil
}

// Pids returns the process IDs of the nodes, 0 for one that does not run.
func (c *NATSCluster) Pids() []int { return c.backend.pids() }

func (b *natsCluster) pids() []int {
	ids := make([]int, len(b.nodes))
	for n, child := range b.nodes {
		if p := child.current(); p != nil {
			ids[n] = p.cmd.Process.Pid
		}
	}
	return ids
}

// started returns the process IDs of the nodes from the moment that they are started,
// for they reach for each other before they are ready.
func (b *natsCluster) started() []int {
	ids := make([]int, len(b.nodes))
	for n, child := range b.nodes {
		child.mu.Lock()
		ids[n] = child.pid
		child.mu.Unlock()
	}
	return ids
}

// port returns one of the ports; 0 before the first start.
func (b *natsCluster) port(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n >= len(b.ports) {
		return 0
	}
	return b.ports[n]
}

// NATSPartitionable puts proxies between the nodes of a cluster, as [Partitionable]
// does. It means nothing to a server of one node.
func NATSPartitionable() NATSOption {
	return func(c *natsConfig) { c.partitionable = true }
}

// Partition cuts a node off from the others, in both directions, until
// [NATSCluster.Heal]: what they send to each other is held back, and nobody is told.
// Clients reach all nodes as before. The cluster must be [NATSPartitionable].
func (c *NATSCluster) Partition(n int) error {
	return c.atNode(n, func(*childBackend) error { return c.backend.mesh.isolate(n) })
}

// Heal ends [NATSCluster.Partition].
func (c *NATSCluster) Heal(n int) error {
	return c.atNode(n, func(*childBackend) error { c.backend.mesh.rejoin(n); return nil })
}

// KillNode sends SIGKILL to a node, counted from 0, and leaves it down.
func (c *NATSCluster) KillNode(ctx context.Context, n int) error {
	return c.atNode(n, func(b *childBackend) error { return b.kill(ctx) })
}

// StopNode stops a node cleanly and leaves it down.
func (c *NATSCluster) StopNode(ctx context.Context, n int) error {
	return c.atNode(n, func(b *childBackend) error { return b.stop(ctx) })
}

// PauseNode stops a node's process without ending it, which to the others looks
// like a broken network until [NATSCluster.ResumeNode].
func (c *NATSCluster) PauseNode(n int) error {
	return c.atNode(n, func(b *childBackend) error { return b.signal(pauseProcess) })
}

// ResumeNode ends [NATSCluster.PauseNode].
func (c *NATSCluster) ResumeNode(n int) error {
	return c.atNode(n, func(b *childBackend) error { return b.signal(unpauseProcess) })
}

// StartNode starts a node that is down on its data, and returns when JetStream
// answers on it.
func (c *NATSCluster) StartNode(ctx context.Context, n int) error {
	return c.atNode(n, func(b *childBackend) error {
		if b.current() != nil {
			return nil
		}
		if err := b.start(ctx, filepath.Join(c.dir, b.spec.NATSNode.Name)); err != nil {
			return err
		}
		return c.backend.await(ctx, b)
	})
}

func (c *NATSCluster) atNode(n int, do func(*childBackend) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	if n < 0 || n >= len(c.backend.nodes) {
		return fmt.Errorf("localstack: nats: no node %d, there are %d", n, len(c.backend.nodes))
	}
	return do(c.backend.nodes[n])
}

// current returns the process that runs now, nil when there is none.
func (b *childBackend) current() *childProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

func (b *childBackend) signal(do func(*os.Process) error) error {
	p := b.current()
	if p == nil {
		return fmt.Errorf("localstack: child %s does not run", b.spec.Name)
	}
	return do(p.cmd.Process)
}

// natsCluster is the backend: the nodes, each a child.
type natsCluster struct {
	config natsConfig
	nodes  []*childBackend
	mesh   *mesh // between the nodes; nil without NATSPartitionable

	mu    sync.Mutex
	ports []int // of each node for clients, then of each for the others
}

func (b *natsCluster) start(ctx context.Context, dir string) error {
	ports, err := keepPorts(b.ports, 2*len(b.nodes))
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.ports = ports
	b.mu.Unlock()
	errs := make([]error, len(b.nodes))
	var wg sync.WaitGroup
	for n, child := range b.nodes {
		node := &child.spec.NATSNode
		node.Client, node.Inner, node.Routes = ports[n], ports[len(b.nodes)+n], ports[len(b.nodes):]
		if b.mesh != nil {
			node.Routes = make([]int, len(b.nodes))
			for other := range node.Routes {
				node.Routes[other] = b.mesh.port(other)
			}
		}
		home := filepath.Join(dir, child.spec.NATSNode.Name)
		if err := os.MkdirAll(home, 0o700); err != nil {
			return fmt.Errorf("localstack: nats: %w", err)
		}
		wg.Go(func() { errs[n] = child.start(ctx, home) })
	}
	wg.Wait()
	err = errors.Join(errs...)
	for _, child := range b.nodes {
		if err == nil {
			err = b.await(ctx, child)
		}
	}
	if err != nil {
		return errors.Join(err, b.end(ctx))
	}
	return nil
}

// await asks a node until its JetStream answers, for which the cluster needs a
// leader.
func (b *natsCluster) await(ctx context.Context, child *childBackend) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverReady, fmt.Errorf("JetStream has no leader within %v", serverReady))
	defer cancel()
	tick := time.NewTicker(serverPoll)
	defer tick.Stop()
	for {
		if b.answers(ctx, child.spec.NATSNode.Client) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("localstack: nats %s: %w", child.spec.NATSNode.Name, context.Cause(ctx))
		}
	}
}

func (b *natsCluster) answers(ctx context.Context, port int) bool {
	nc, err := nats.Connect("nats://"+loopback(port), nats.Timeout(time.Second), nats.NoReconnect(),
		nats.UserInfo(b.config.User, b.config.Password), nats.Token(b.config.Token))
	if err != nil {
		return false
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	return err == nil
}

func (b *natsCluster) stop(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	var wg sync.WaitGroup
	for n, child := range b.nodes {
		wg.Go(func() { errs[n] = child.stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// kill sends SIGKILL to all nodes that run.
func (b *natsCluster) kill(ctx context.Context) error {
	if !slices.ContainsFunc(b.nodes, func(c *childBackend) bool { return c.current() != nil }) {
		return errors.New("localstack: nats does not run")
	}
	return b.end(ctx)
}

func (b *natsCluster) end(ctx context.Context) error {
	var errs []error
	for _, child := range b.nodes {
		if child.current() != nil {
			errs = append(errs, child.kill(ctx))
		}
	}
	return errors.Join(errs...)
}

// direct returns the nodes' own ports.
func (b *natsCluster) direct() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var addrs []string
	for n := range b.nodes {
		if n < len(b.ports) {
			addrs = append(addrs, loopback(b.ports[n]))
		}
	}
	return strings.Join(addrs, ",")
}

var _ killer = (*natsCluster)(nil)
