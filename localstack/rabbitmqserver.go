package localstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"time"
)

// rabbitServerConfig is what a real RabbitMQ is started with.
type rabbitServerConfig struct {
	serverConfig
	nodes   int
	conf    map[string]string
	tick    time.Duration
	plugins []string
}

// RabbitMQServerOption is an option of [StartRabbitMQServer]: a [ServerOption], or
// one of the functions that return a RabbitMQServerOption.
type RabbitMQServerOption interface{ rabbitServer(*rabbitServerConfig) }

func (o ServerOption) rabbitServer(c *rabbitServerConfig) { o(&c.serverConfig) }

type rabbitServerOption func(*rabbitServerConfig)

func (o rabbitServerOption) rabbitServer(c *rabbitServerConfig) { o(c) }

// RabbitMQNodes sets the number of nodes of the cluster; the default is 1. A
// cluster pauses its minorities (cluster_partition_handling).
func RabbitMQNodes(n int) RabbitMQServerOption {
	return rabbitServerOption(func(c *rabbitServerConfig) { c.nodes = n })
}

// RabbitMQConfig sets entries of rabbitmq.conf, over this package's.
func RabbitMQConfig(entries map[string]string) RabbitMQServerOption {
	return rabbitServerOption(func(c *rabbitServerConfig) { maps.Copy(c.conf, entries) })
}

// RabbitMQChannelTick sets how often a channel looks for deliveries whose consumer
// timeout has run out. The default is RabbitMQ's own, one minute. The timeout itself
// is consumer_timeout of [RabbitMQConfig], in milliseconds.
func RabbitMQChannelTick(every time.Duration) RabbitMQServerOption {
	return rabbitServerOption(func(c *rabbitServerConfig) { c.tick = every })
}

// RabbitMQPlugins turns on plugins beside rabbitmq_stream.
func RabbitMQPlugins(names ...string) RabbitMQServerOption {
	return rabbitServerOption(func(c *rabbitServerConfig) { c.plugins = append(c.plugins, names...) })
}

// RabbitMQServer is the vendor's RabbitMQ, one process for each node. It implements
// [Emulator].
type RabbitMQServer struct {
	*emulator
	backend *rabbitServer
}

// StartRabbitMQServer runs the RabbitMQ that is installed on this machine, by
// default one node, in child processes, and returns when it is ready for clients.
// It takes the server that the variable ONCELINE_RABBITMQ_SERVER names, that of the
// distribution's package, or that on PATH; where there is none it returns an error
// that is [ErrNotInstalled]. Nothing of an installed service is touched: names,
// ports and folders are its own. A node takes some 8 s to start and 140 MB of
// memory.
//
// Clients of AMQP 0-9-1 and of the stream protocol come in by the same port, which
// is also the one that streams advertise. The user is RabbitMQ's own, guest. Faults
// concern both protocols; see the faults of package localstack/rabbitmq, whose
// rules hold here too, but that a delayed request holds up its whole connection,
// and that Match finds a publish by a queue when it was bound by a client of this
// emulator.
//
// Kill sends SIGKILL to all nodes at once. DirectURL leads to the nodes' own ports,
// which take AMQP alone.
func StartRabbitMQServer(ctx context.Context, options ...RabbitMQServerOption) (*RabbitMQServer, error) {
	c := rabbitServerConfig{nodes: 1, conf: map[string]string{}, plugins: []string{"rabbitmq_stream"}}
	for _, o := range options {
		o.rabbitServer(&c)
	}
	if c.nodes < 1 {
		return nil, fmt.Errorf("localstack: rabbitmq: %d nodes, must be at least 1", c.nodes)
	}
	b := &rabbitServer{config: c, nodes: make([]*serverProcess, c.nodes)}
	var err error
	if b.program, b.epmd, err = findRabbitMQ(); err != nil {
		return nil, err
	}
	e := &emulator{name: RabbitMQName, real: true, backend: b, checkAPI: checkRabbitAPI}
	front := &rabbitFront{faults: &e.faults, trace: &e.trace}
	port := c.port
	for n := range c.nodes {
		p, err := listen(port, func(net.Addr) (net.Conn, error) { return b.dial(n), nil }, func(l *link) { serveRabbit(l, front) })
		if err != nil {
			return nil, errors.Join(err, e.Close(context.Background()))
		}
		e.proxies = append(e.proxies, p)
		b.fronts = append(b.fronts, p.ln.Addr().(*net.TCPAddr).Port)
		if port != 0 {
			port++
		}
	}
	err = b.between()
	e.between = b.mesh
	if err != nil {
		return nil, errors.Join(err, e.Close(context.Background()))
	}
	if err := e.open(ctx, c.dataDir); err != nil {
		return nil, err
	}
	e.versions = map[string]string{"rabbitmq": b.version}
	return &RabbitMQServer{e, b}, nil
}

// findRabbitMQ returns the paths of the server and of Erlang's port mapper.
func findRabbitMQ() (server, epmd string, err error) {
	needs := func(what string) error {
		return fmt.Errorf("%w: there is no %s: install RabbitMQ, on Debian the package rabbitmq-server, or set ONCELINE_RABBITMQ_SERVER", ErrNotInstalled, what)
	}
	if server = os.Getenv("ONCELINE_RABBITMQ_SERVER"); server != "" {
		if _, err := exec.LookPath(server); err != nil {
			return "", "", needs(server)
		}
	} else {
		// What Debian puts on PATH changes to the service's user first.
		for _, at := range []string{"/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"} {
			if server, err = exec.LookPath(at); err == nil {
				break
			}
		}
		if err != nil {
			return "", "", needs("rabbitmq-server")
		}
	}
	if _, err = exec.LookPath("erl"); err != nil {
		return "", "", needs("erl on PATH")
	}
	if epmd, err = exec.LookPath("epmd"); err != nil {
		return "", "", needs("epmd on PATH")
	}
	return server, epmd, nil
}

// Pids returns the process IDs of the nodes, 0 for one that does not run.
func (r *RabbitMQServer) Pids() []int { return pids(r.backend.running()) }

// KillNode sends SIGKILL to a node, counted from 0, and leaves it down.
func (r *RabbitMQServer) KillNode(n int) error {
	return r.atNode(n, func(p *serverProcess) error { return p.kill() })
}

// StopNode stops a node cleanly and leaves it down.
func (r *RabbitMQServer) StopNode(ctx context.Context, n int) error {
	return r.atNode(n, func(p *serverProcess) error { return p.stop(ctx) })
}

// PauseNode stops a node's process without ending it, which to the others looks
// like a broken network until [RabbitMQServer.ResumeNode].
func (r *RabbitMQServer) PauseNode(n int) error { return r.atNode(n, (*serverProcess).pause) }

// ResumeNode ends [RabbitMQServer.PauseNode].
func (r *RabbitMQServer) ResumeNode(n int) error { return r.atNode(n, (*serverProcess).unpause) }

// Partition cuts a node off from the others, in both directions, until
// [RabbitMQServer.Heal]: what they send to each other is held back, and nobody is
// told, so that it takes them [RabbitMQPartitionTick] to notice. Clients reach all
// nodes as before. The connections by which streams are replicated are their own:
// RabbitMQ closes them when it has noticed. The cluster must be [Partitionable].
func (r *RabbitMQServer) Partition(n int) error {
	return r.atNode(n, func(*serverProcess) error { return r.backend.mesh.isolate(n) })
}

// Heal ends [RabbitMQServer.Partition].
func (r *RabbitMQServer) Heal(n int) error {
	return r.atNode(n, func(*serverProcess) error { r.backend.mesh.rejoin(n); return nil })
}

// StartNode starts a node that is down on its data, and returns when it takes
// clients.
func (r *RabbitMQServer) StartNode(ctx context.Context, n int) error {
	return r.atNode(n, func(p *serverProcess) error {
		if p.alive() {
			return nil
		}
		return r.backend.startNodes(ctx, n)
	})
}

func (r *RabbitMQServer) atNode(n int, do func(*serverProcess) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return err
	}
	if n < 0 || n >= len(r.proxies) {
		return fmt.Errorf("localstack: rabbitmq: no node %d, there are %d", n, len(r.proxies))
	}
	return do(r.backend.running()[n])
}
