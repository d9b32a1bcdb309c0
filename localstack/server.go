package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ErrNotInstalled is returned by the functions that run a real server (StartKafkaServer,
// StartRabbitMQServer, …) when this machine lacks what the server needs. The
// error's text says what to install.
var ErrNotInstalled = errors.New("localstack: not installed")

// serverConfig is what all real servers can be told.
type serverConfig struct {
	report   func(string)
	port     int
	dataDir  string
	cacheDir string

	partitionable bool
}

// ServerOption changes how a real server is run. Every function that starts one
// takes it.
type ServerOption func(*serverConfig)

// Progress calls f with a line whenever a start reaches a step that may take
// seconds: resolving what is to be run, starting, ready. f is called in the
// goroutine of the caller of Start, Restart or Kill and must not block. By default
// nobody is told.
func Progress(f func(step string)) ServerOption {
	return func(c *serverConfig) { c.report = f }
}

// ServerPort makes clients connect to this port of 127.0.0.1; further nodes of a
// cluster get those after it. By default they are free ones.
func ServerPort(port int) ServerOption { return func(c *serverConfig) { c.port = port } }

// ServerDataDir keeps the server's data in dir, and leaves it there at Close. By
// default they are in a temporary directory that Close removes.
func ServerDataDir(dir string) ServerOption { return func(c *serverConfig) { c.dataDir = dir } }

// CacheDir keeps what was downloaded or resolved in dir. The default is the folder
// "onceline" in the user's cache directory. Several processes may share it.
func CacheDir(dir string) ServerOption { return func(c *serverConfig) { c.cacheDir = dir } }

func (c *serverConfig) progress(format string, a ...any) {
	if c.report != nil {
		c.report(fmt.Sprintf(format, a...))
	}
}

// cache returns a folder of that name below the cache directory, and makes it.
func (c *serverConfig) cache(name string) (string, error) {
	dir := c.cacheDir
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("localstack: no cache directory, use CacheDir: %w", err)
		}
		dir = filepath.Join(user, "onceline")
	}
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("localstack: cache: %w", err)
	}
	return dir, nil
}

// serverCommand is a server to be run.
type serverCommand struct {
	name string // for errors
	path string
	args []string
	env  []string   // beside this process's; nil for those alone
	dir  string     // "" for this process's
	log  string     // the file that gets what the server writes; it is appended to
	as   *user.User // whom it runs as; nil for whom this process does
}

// Bounds of a server's life, as long as no context ends before.
const (
	serverReady = 3 * time.Minute
	serverStop  = 30 * time.Second
	serverPoll  = 25 * time.Millisecond
)

// await polls until the server is ready. It ends early with the context, after
// serverReady, and when the server has exited; the server goes on in the first two
// cases, and is for the caller to end.
func (p *serverProcess) await(ctx context.Context, ready func(ctx context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverReady, fmt.Errorf("not ready within %v", serverReady))
	defer cancel()
	tick := time.NewTicker(serverPoll)
	defer tick.Stop()
	for {
		if ready(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("localstack: %s ended while it started: %w%s", p.name, p.exit(), p.said())
		case <-ctx.Done():
			return fmt.Errorf("localstack: %s: %w%s", p.name, context.Cause(ctx), p.said())
		}
	}
}

// exit returns how the process ended; it may be asked for after that.
func (p *serverProcess) exit() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// said returns the end of what the server wrote, to be appended to an error.
func (p *serverProcess) said() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailSize {
		_, _ = f.Seek(-tailSize, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, tailSize))
	if s := strings.TrimSpace(string(b)); s != "" {
		return "; it wrote: " + s
	}
	return ""
}

// stop ends the process cleanly, and by SIGKILL when the context or serverStop
// ends first. Without effect on nil and on one that has ended.
func (p *serverProcess) stop(ctx context.Context) error {
	return p.stopBy(ctx, nil)
}

// stopBy is stop by another way to ask than SIGTERM.
func (p *serverProcess) stopBy(ctx context.Context, ask func(*serverProcess)) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, serverStop, fmt.Errorf("not stopped within %v", serverStop))
	defer cancel()
	select {
	case <-p.exited:
		return nil // whoever killed it knows, or the next start will tell
	default:
	}
	if ask == nil {
		ask = (*serverProcess).terminate
	}
	ask(p)
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("localstack: %s was killed, it had not stopped: %w%s", p.name, context.Cause(ctx), p.said())
	}
}

// alive reports whether the process runs; false on nil.
func (p *serverProcess) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// pids returns the process IDs of those that run.
func pids(nodes []*serverProcess) []int {
	ids := make([]int, len(nodes))
	for n, p := range nodes {
		if p.alive() {
			ids[n] = p.pid()
		}
	}
	return ids
}

// killAll sends SIGKILL to what runs, which must be something.
func killAll(name string, nodes []*serverProcess) error {
	var errs []error
	running := 0
	for _, p := range nodes {
		if p.alive() {
			running++
			errs = append(errs, p.kill())
		}
	}
	if running == 0 {
		return fmt.Errorf("localstack: %s does not run", name)
	}
	return errors.Join(errs...)
}

// accepting reports whether something listens on a port of 127.0.0.1.
func accepting(ctx context.Context, port int) bool {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", loopback(port))
	return err == nil && c.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Servers' ports are below those that systems give to the clients' ends of
// connections (from 32768 on Linux, from 49152 elsewhere): a server listens seconds
// after its port was chosen, and until then a connection of anybody could take it.
const (
	lowestPort = 16384
	manyPorts  = 16384
)

// portAt counts on from a random place, so that no port is chosen twice in a row,
// and other processes choose elsewhere.
var portAt atomic.Uint32

func init() { portAt.Store(rand.Uint32N(manyPorts)) }

// listenLow listens on the next of these ports that is free.
func listenLow() (net.Listener, error) {
	for range 1000 {
		port := lowestPort + int(portAt.Add(1)%manyPorts)
		if ln, err := net.Listen("tcp", loopback(port)); err == nil {
			return ln, nil
		}
	}
	return net.Listen("tcp", loopback(0))
}

// freePorts returns n ports of 127.0.0.1 that nobody listens on.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		ln, err := listenLow()
		if err != nil {
			return nil, fmt.Errorf("localstack: %w", err)
		}
		defer ln.Close() // all are held until all are had, so that they differ
		ports[i] = ln.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// keepPorts returns the ports if they are free still, and else as many others. A
// server's ports stay the same as far as nothing took them while it was down.
func keepPorts(ports []int, n int) ([]int, error) {
	for _, port := range ports {
		if !free(port) {
			return freePorts(n)
		}
	}
	if len(ports) == n {
		return ports, nil
	}
	return freePorts(n)
}
