package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// kafkaServer is the backend: the nodes of a real Kafka cluster.
type kafkaServer struct {
	config          kafkaServerConfig
	java, classPath string
	classes         *classArchive // nil for none
	groups          groupConfigs  // told to the proxies; Kafka keeps them by itself
	settled         bool          // topics and group configs were made

	mesh *mesh // between the nodes; nil without Partitionable

	mu    sync.Mutex
	nodes []*serverProcess
	ports []int // of each node: for clients, for the others, for controllers
}

func (b *kafkaServer) node(n int) *serverProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[n]
}

func (b *kafkaServer) running() []*serverProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.nodes)
}

// Each node's ports, by their place.
const (
	kafkaClientPort = iota
	kafkaInnerPort
	kafkaControllerPort
	kafkaPorts
)

func (b *kafkaServer) port(node, which int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ports) == 0 {
		return 0
	}
	return b.ports[node*kafkaPorts+which]
}

// between makes the mesh: each node has two ports for the others.
func (b *kafkaServer) between() (err error) {
	if !b.config.partitionable || len(b.nodes) < 2 {
		return nil
	}
	of := make([]int, kafkaMeshed*len(b.nodes))
	for port := range of {
		of[port] = port / kafkaMeshed
	}
	b.mesh, err = newMesh(len(b.nodes), func() []int { return pids(b.running()) }, of, func(port int) (net.Conn, error) {
		return net.Dial("tcp", loopback(b.port(port/kafkaMeshed, kafkaInnerPort+port%kafkaMeshed)))
	})
	return err
}

// kafkaMeshed is how many of a node's ports are for the other nodes: those from
// kafkaInnerPort on.
const kafkaMeshed = kafkaPorts - kafkaInnerPort

// reached returns the port by which other nodes reach one.
func (b *kafkaServer) reached(node, which int) int {
	if b.mesh == nil {
		return b.port(node, which)
	}
	return b.mesh.port(node*kafkaMeshed + which - kafkaInnerPort)
}

func (b *kafkaServer) dial(broker int, _ net.Addr) (net.Conn, error) {
	return net.Dial("tcp", loopback(b.port(broker, kafkaClientPort)))
}

// direct returns the listeners by which the brokers reach each other.
func (b *kafkaServer) direct() string {
	addrs := make([]string, len(b.nodes))
	for n := range addrs {
		addrs[n] = loopback(b.port(n, kafkaInnerPort))
	}
	return strings.Join(addrs, ",")
}

func (b *kafkaServer) start(ctx context.Context, dir string) error {
	ports, err := keepPorts(b.ports, len(b.nodes)*kafkaPorts)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.ports = ports
	b.mu.Unlock()
	all := make([]int, len(b.nodes))
	for n := range all {
		all[n] = n
	}
	if err := b.startNodes(ctx, dir, all...); err != nil {
		return errors.Join(err, b.end())
	}
	if !b.settled {
		if err := b.settle(ctx); err != nil {
			return errors.Join(err, b.end())
		}
		b.settled = true
	}
	b.config.progress("Apache Kafka %s: ready", b.config.release)
	return nil
}

// startNodes starts the nodes and waits until the cluster has all that run.
func (b *kafkaServer) startNodes(ctx context.Context, dir string, nodes ...int) error {
	for _, n := range nodes {
		if err := b.startNode(ctx, dir, n); err != nil {
			return err
		}
	}
	running := 0
	for n := range b.nodes {
		if b.node(n).alive() {
			running++
		}
	}
	admin, err := b.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, n := range nodes {
		if err := b.node(n).await(ctx, func(ctx context.Context) bool {
			return accepting(ctx, b.port(n, kafkaClientPort)) && kafkaNodes(ctx, admin) >= running
		}); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts the process of one node, on formatted data.
func (b *kafkaServer) startNode(ctx context.Context, dir string, n int) error {
	name := fmt.Sprintf("kafka node %d", n)
	home := filepath.Join(dir, fmt.Sprintf("node-%d", n))
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("localstack: %s: %w", name, err)
	}
	file, log := filepath.Join(home, "server.properties"), filepath.Join(home, "server.log")
	if err := os.WriteFile(file, b.properties(n, filepath.Join(home, "data")), 0o600); err != nil {
		return fmt.Errorf("localstack: %s: %w", name, err)
	}
	java := append([]string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
	}, b.config.jvm...)
	sharing := b.config.sharing(ctx, b.classes)
	if err := b.format(ctx, home, java, file, log, n); err != nil {
		return err
	}
	java = append(append(java, sharing...), "-cp", b.classPath)
	b.config.progress("Apache Kafka %s: starting node %d", b.config.release, n)
	p, err := serverCommand{name: name, path: b.java, log: log, dir: home, args: append(java, "kafka.Kafka", file)}.run()
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.nodes[n] = p
	b.mu.Unlock()
	return nil
}

// properties are a node's configuration file.
func (b *kafkaServer) properties(n int, data string) []byte {
	var voters []string
	for v := range b.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", v, loopback(b.reached(v, kafkaControllerPort))))
	}
	client, inner := loopback(b.port(n, kafkaClientPort)), loopback(b.port(n, kafkaInnerPort))
	lines := []string{
		"process.roles=broker,controller",
		fmt.Sprint("node.id=", n),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("listeners=CLIENT://%s,INNER://%s,CONTROLLER://%s", client, inner, loopback(b.port(n, kafkaControllerPort))),
		fmt.Sprintf("advertised.listeners=CLIENT://%s,INNER://%s,CONTROLLER://%s", b.config.kafka.Advertise[n],
			loopback(b.reached(n, kafkaInnerPort)), loopback(b.reached(n, kafkaControllerPort))),
		"listener.security.protocol.map=CLIENT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name=INNER",
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + data,
	}
	for k, v := range b.config.kafka.Configs {
		lines = append(lines, k+"="+v)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// stragglers is how long those nodes have that are left without a quorum.
const stragglers = 5 * time.Second

// stop stops all nodes side by side. A node tells the controllers that it stops, and
// waits five minutes for an answer: where most of them are gone already there is none.
// So those that are left then are killed; what they have written is kept.
func (b *kafkaServer) stop(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	gone := make(chan struct{}, len(b.nodes))
	var stopping sync.WaitGroup
	for n := range b.nodes {
		stopping.Go(func() {
			errs[n] = b.node(n).stop(ctx)
			gone <- struct{}{}
		})
	}
	for range len(b.nodes) - len(b.nodes)/2 { // then there is no majority
		<-gone
	}
	late := time.AfterFunc(stragglers, func() { _ = b.end() })
	stopping.Wait()
	late.Stop()
	return errors.Join(errs...)
}

// discard ends all nodes by SIGKILL: three of them take over 5 s to stop.
func (b *kafkaServer) discard(context.Context) error { return b.end() }

// kill sends SIGKILL to all nodes that run.
func (b *kafkaServer) kill(context.Context) error {
	return killAll("kafka", b.running())
}

// end kills what runs.
func (b *kafkaServer) end() error {
	var errs []error
	for n := range b.nodes {
		if p := b.node(n); p.alive() {
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(errs...)
}

var (
	_ killer    = (*kafkaServer)(nil)
	_ discarder = (*kafkaServer)(nil)
)
