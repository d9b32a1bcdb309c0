package localstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// StartRedis runs the Valkey or Redis that is installed on this machine, and returns
// when it takes clients; where there is neither it returns an error that is
// [ErrNotInstalled]. It writes each command to its log before it answers
// (appendfsync always), so that what it has answered outlives Kill.
func StartRedis(ctx context.Context, options ...ServerOption) (*Database, error) {
	return startRedis(ctx, newServerConfig(options), nil)
}

// startRedis runs one server, with what more says of arguments for its port, and the
// one that clients connect to.
func startRedis(ctx context.Context, c serverConfig, more func(port, entry int) ([]string, error)) (*Database, error) {
	path, version, err := findServer(ctx, "Valkey or Redis", "valkey-server or redis-server", "valkey-server", "redis-server")
	if err != nil {
		return nil, err
	}
	b := &singleServer{
		name: filepath.Base(path) + " " + version, config: c,
		ready: func(ctx context.Context, port int) bool {
			return says(ctx, port, []byte("PING\r\n"), func(b []byte) bool { return b[0] == '+' })
		},
	}
	b.command = func(dir string, port int) (serverCommand, error) {
		args := []string{"--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"}
		if more != nil {
			extra, err := more(port, b.entry)
			if err != nil {
				return serverCommand{}, err
			}
			args = append(args, extra...)
		}
		return serverCommand{name: "redis", path: path, dir: dir, log: filepath.Join(dir, "server.log"), args: args}, nil
	}
	return openDatabase(ctx, "redis", version, b, func(addr string) string { return "redis://" + addr + "/0" })
}

// RedisCluster is a cluster of Valkey or Redis servers that share the slots, without
// replicas: while one is down, its slots are. Its methods are safe for concurrent use.
type RedisCluster struct{ nodes []*Database }

// hashSlots is how many slots a cluster has.
const hashSlots = 16384

// StartRedisCluster runs a cluster of that many servers, at least three, each as
// [StartRedis] does, and returns when all of them say that it is whole. It needs Redis 7
// or Valkey. Clients are sent from node to node by the addresses through which faults
// reach them; the nodes talk to each other directly, so Freeze and Slow don't concern that.
func StartRedisCluster(ctx context.Context, nodes int, options ...ServerOption) (_ *RedisCluster, err error) {
	if nodes < 3 {
		return nil, fmt.Errorf("localstack: redis: a cluster of %d nodes, it takes 3", nodes)
	}
	c := &RedisCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
		}
	}()
	base := newServerConfig(options)
	real := make([][2]int, nodes) // of each node, its own port and that for other nodes
	for n := range nodes {
		config := base
		if base.port != 0 {
			config.port = base.port + n
		}
		if base.dataDir != "" {
			config.dataDir = filepath.Join(base.dataDir, fmt.Sprint("node-", n))
		}
		d, err := startRedis(ctx, config, func(port, entry int) ([]string, error) {
			var bus []int
			if real[n][1] != 0 {
				bus = []int{real[n][1]}
			}
			bus, err := keepPorts(bus, 1)
			if err != nil {
				return nil, err
			}
			real[n] = [2]int{port, bus[0]}
			return []string{"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus[0]), "--cluster-node-timeout", "2000",
				"--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", fmt.Sprint(entry), "--cluster-announce-bus-port", fmt.Sprint(bus[0])}, nil
		})
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, d)
	}
	for n := range nodes {
		commands := []string{
			fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", n+1),
			fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", n*hashSlots/nodes, (n+1)*hashSlots/nodes-1),
		}
		if n > 0 {
			commands = append(commands, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d %d", real[0][0], real[0][1]))
		}
		for _, command := range commands {
			said, err := redisSays(ctx, real[n][0], command)
			// A node with data of its own has its place.
			if err == nil && said != "OK" && base.dataDir == "" {
				err = errors.New(said)
			}
			if err != nil {
				return c, fmt.Errorf("localstack: redis: node %d: %s: %w", n, command, err)
			}
		}
	}
	return c, c.Await(ctx)
}

// Nodes returns the servers, which can be killed, restarted, frozen and cut off one by
// one; [RedisCluster.Close] closes them.
func (c *RedisCluster) Nodes() []*Database { return c.nodes }

// URL returns the addresses of all nodes, in the form that clients take for a cluster:
// redis://HOST?addr=HOST&addr=HOST.
func (c *RedisCluster) URL() string {
	var b strings.Builder
	for n, addr := range c.Addresses() {
		b.WriteString([]string{"redis://", "?addr=", "&addr="}[min(n, 2)] + addr)
	}
	return b.String()
}

// Addresses returns host:port of each node.
func (c *RedisCluster) Addresses() []string {
	addrs := make([]string, len(c.nodes))
	for n, d := range c.nodes {
		addrs[n] = strings.TrimSuffix(strings.TrimPrefix(d.URL(), "redis://"), "/0")
	}
	return addrs
}

// Await blocks until every node says that it knows all others and that all slots are
// served, which takes seconds after a node was down; ctx and three minutes bound
// it.
func (c *RedisCluster) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverReady, fmt.Errorf("the cluster isn't whole within %v", serverReady))
	defer cancel()
	for n, d := range c.nodes {
		for last := ""; ; {
			said, err := redisSays(ctx, d.server.process.listening(), "CLUSTER INFO")
			if err == nil && strings.Contains(said, "cluster_state:ok") && strings.Contains(said, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.nodes))) {
				break
			}
			if last = said; err != nil {
				last = err.Error()
			}
			if !pauseFor(ctx, serverPoll) {
				return fmt.Errorf("localstack: redis: node %d: %w; it said: %s", n, context.Cause(ctx), last)
			}
		}
	}
	return nil
}

// Close stops all servers and removes their data. Closing again returns nil.
func (c *RedisCluster) Close(ctx context.Context) error {
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for n, d := range c.nodes {
		all.Go(func() { errs[n] = d.Close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// listening is the server's own port.
func (b *singleServer) listening() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.port
}

// redisSays sends a command of plain words and returns the answer: what a status or a
// string says, or the text of an error.
func redisSays(ctx context.Context, port int, command string) (string, error) {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", loopback(port))
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	if kind != '$' {
		return rest, nil
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 || n > 1<<20 {
		return "", fmt.Errorf("a string of %q bytes", rest)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}
