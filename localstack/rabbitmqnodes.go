package localstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// rabbitServer is the backend: the nodes of a real RabbitMQ cluster, and the port
// mapper by which they find each other.
type rabbitServer struct {
	config        rabbitServerConfig
	program, epmd string
	fronts        []int // the proxies' ports
	version       string
	dir           string

	mesh   *mesh  // between the nodes; nil without Partitionable
	lookup *proxy // of the mapper then

	mu     sync.Mutex
	mapper *serverProcess
	nodes  []*serverProcess
	ports  []int // the mapper's, and of each node: AMQP, streams, distribution
}

// Each node's ports, by their place.
const (
	rabbitAMQPPort = iota
	rabbitStreamPort
	rabbitDistPort
	rabbitPorts
)

func (b *rabbitServer) port(node, which int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ports) == 0 {
		return 0
	}
	return b.ports[1+node*rabbitPorts+which]
}

func (b *rabbitServer) running() []*serverProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.nodes)
}

// dial returns a connection that chooses between a node's ports by the first bytes
// of the client.
func (b *rabbitServer) dial(node int) net.Conn {
	return newChosenConn(func(first []byte) (net.Conn, error) {
		if len(first) > 0 && first[0] == amqp.Protocol[0] {
			return net.Dial("tcp", loopback(b.port(node, rabbitAMQPPort)))
		}
		return net.Dial("tcp", loopback(b.port(node, rabbitStreamPort)))
	})
}

func (b *rabbitServer) direct() string {
	addrs := make([]string, b.config.nodes)
	for n := range addrs {
		addrs[n] = loopback(b.port(n, rabbitAMQPPort))
	}
	return strings.Join(addrs, ",")
}

// mapperPort is the port by which nodes ask for each other.
func (b *rabbitServer) mapperPort() int {
	if b.lookup != nil {
		return b.lookup.ln.Addr().(*net.TCPAddr).Port
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ports[0]
}

func (b *rabbitServer) start(ctx context.Context, dir string) error {
	b.dir = dir
	if b.mapper.alive() {
		b.mu.Lock()
		mine := b.ports[1:] // the mapper holds the first
		b.mu.Unlock()
		others, err := keepPorts(mine, len(mine))
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.ports = append(b.ports[:1:1], others...)
		b.mu.Unlock()
	} else if err := b.startMapper(); err != nil {
		return err
	}
	all := make([]int, b.config.nodes)
	for n := range all {
		all[n] = n
	}
	err := error(nil)
	if _, missing := os.Stat(filepath.Join(dir, "node-0", "data")); missing != nil {
		// What the others join has to be there.
		err, all = b.startNodes(ctx, 0), all[1:]
	}
	if err == nil {
		err = b.startNodes(ctx, all...)
	}
	if err != nil {
		return errors.Join(err, b.end())
	}
	b.config.progress("RabbitMQ %s: ready", b.version)
	return nil
}

// startMapper runs a port mapper of ours, so that no other one on the machine
// learns of the nodes, and none is left behind.
func (b *rabbitServer) startMapper() error {
	ports, err := freePorts(1 + b.config.nodes*rabbitPorts)
	if err != nil {
		return err
	}
	p, err := serverCommand{
		name: "epmd", path: b.epmd, log: filepath.Join(b.dir, "epmd.log"), dir: b.dir,
		args: []string{"-port", fmt.Sprint(ports[0]), "-address", "127.0.0.1"},
	}.run()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mapper, b.ports = p, ports
	return nil
}

// startNodes starts nodes and waits until they take clients.
func (b *rabbitServer) startNodes(ctx context.Context, nodes ...int) error {
	if err := b.mapper.await(ctx, func(ctx context.Context) bool { return accepting(ctx, b.ports[0]) }); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := b.startNode(n); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := b.running()[n].await(ctx, func(ctx context.Context) bool {
			version := amqpVersion(ctx, b.port(n, rabbitAMQPPort))
			if version == "" || !accepting(ctx, b.port(n, rabbitStreamPort)) {
				return false
			}
			b.version = version
			return true
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *rabbitServer) startNode(n int) error {
	home := filepath.Join(b.dir, fmt.Sprintf("node-%d", n))
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("localstack: rabbitmq: %w", err)
	}
	files := map[string]string{
		"rabbitmq.conf":   b.conf(n),
		"advanced.config": b.advanced(),
		"enabled_plugins": "[" + strings.Join(b.config.plugins, ",") + "].\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("localstack: rabbitmq: %w", err)
		}
	}
	b.config.progress("RabbitMQ: starting node %d", n)
	p, err := serverCommand{
		name: fmt.Sprintf("rabbitmq node %d", n), path: b.program, dir: home, log: filepath.Join(home, "server.log"),
		env: append(b.environment(),
			"RUNNING_UNDER_SYSTEMD=true", // the node itself gets our signals
			"NOTIFY_SOCKET=",
			"RABBITMQ_CONF_ENV_FILE="+filepath.Join(home, "none"),
			"RABBITMQ_NODENAME="+rabbitNode(n),
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			fmt.Sprint("RABBITMQ_NODE_PORT=", b.port(n, rabbitAMQPPort)),
			fmt.Sprint("RABBITMQ_DIST_PORT=", b.port(n, rabbitDistPort)),
			"RABBITMQ_MNESIA_BASE="+filepath.Join(home, "data"),
			"RABBITMQ_LOG_BASE="+home,
			"RABBITMQ_LOGS=-",
			"RABBITMQ_PID_FILE="+filepath.Join(home, "pid"),
			"RABBITMQ_CONFIG_FILE="+filepath.Join(home, "rabbitmq.conf"),
			"RABBITMQ_ADVANCED_CONFIG_FILE="+filepath.Join(home, "advanced.config"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(home, "enabled_plugins"),
			"RABBITMQ_GENERATED_CONFIG_DIR="+filepath.Join(home, "generated"),
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}"+b.ticks()+" +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
		),
	}.run()
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.nodes[n] = p
	b.mu.Unlock()
	return nil
}

// environment is what all programs have that talk to the nodes.
func (b *rabbitServer) environment() []string {
	return []string{
		"HOME=" + b.dir, // of all nodes, for they share the cookie there
		"ERL_EPMD_ADDRESS=127.0.0.1",
		fmt.Sprint("ERL_EPMD_PORT=", b.mapperPort()),
	}
}

// The parts of a node's name around its number.
const (
	rabbitNodePrefix = "onceline"
	rabbitNodeHost   = "@localhost"
)

func rabbitNode(n int) string { return fmt.Sprint(rabbitNodePrefix, n, rabbitNodeHost) }

// conf is a node's rabbitmq.conf.
func (b *rabbitServer) conf(n int) string {
	entries := map[string]string{
		"log.console.level":        "warning",
		"disk_free_limit.absolute": "1MB",
		"stream.listeners.tcp.1":   loopback(b.port(n, rabbitStreamPort)),
		"stream.advertised_host":   "127.0.0.1",
		"stream.advertised_port":   fmt.Sprint(b.fronts[n]),
	}
	if b.config.nodes > 1 {
		entries["cluster_formation.peer_discovery_backend"] = "classic_config"
		entries["cluster_partition_handling"] = "pause_minority"
		// A new node joins the first one, which waits for nobody.
		entries["cluster_formation.classic_config.nodes.1"] = rabbitNode(0)
		if n > 0 {
			entries["cluster_formation.classic_config.nodes.2"] = rabbitNode(n)
		}
	}
	maps.Copy(entries, b.config.conf)
	var lines []string
	for k, v := range entries {
		lines = append(lines, k+" = "+v+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (b *rabbitServer) advanced() string {
	if b.config.tick <= 0 {
		return "[].\n"
	}
	return fmt.Sprintf("[{rabbit, [{channel_tick_interval, %d}]}].\n", b.config.tick.Milliseconds())
}

// stop stops all nodes side by side, and then the mapper.
func (b *rabbitServer) stop(ctx context.Context) error {
	nodes := b.running()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for n, p := range nodes {
		wg.Go(func() { errs[n] = p.stop(ctx) })
	}
	wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mapper.alive() {
		errs = append(errs, b.mapper.kill()) // it has nothing to save
	}
	return errors.Join(errs...)
}

// discard ends all nodes, and the mapper, by SIGKILL: a clean stop takes a second.
func (b *rabbitServer) discard(context.Context) error { return b.end() }

// kill sends SIGKILL to all nodes that run; the mapper forgets them by itself.
func (b *rabbitServer) kill(context.Context) error {
	return killAll("rabbitmq", b.running())
}

// end kills what runs.
func (b *rabbitServer) end() error {
	var errs []error
	for _, p := range append(b.running(), b.mapper) {
		if p.alive() {
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(errs...)
}

var (
	_ killer    = (*rabbitServer)(nil)
	_ discarder = (*rabbitServer)(nil)
)

// amqpVersion asks a server of AMQP 0-9-1 for its version; "" when it doesn't
// answer yet.
func amqpVersion(ctx context.Context, port int) string {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", loopback(port))
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(amqp.Protocol[:]); err != nil {
		return ""
	}
	buf := make([]byte, 0, amqp.FrameMin)
	for {
		f, n, err := amqp.ParseFrame(buf, amqp.FrameMin)
		if err != nil {
			return ""
		}
		if n > 0 {
			dec := amqp.NewDecoder(f.Payload)
			if amqp.Method(dec.Uint32()) != amqp.ConnectionStart {
				return ""
			}
			dec.Uint16() // the protocol's version
			version, _ := dec.Table().Get("version")
			s, _ := version.(string)
			return s
		}
		n, err = c.Read(buf[len(buf):cap(buf)])
		if err != nil || n == 0 {
			return ""
		}
		buf = buf[:len(buf)+n]
	}
}
