package localstack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// childEnv marks a process as an emulator's child; its value is the emulator.
const childEnv = "ONCELINE_EMULATOR"

// childReady begins the line by which a child says that its broker is ready. The
// ports that it listens on follow as JSON.
const childReady = "ONCELINE-READY "

// childPatience bounds the start of a child, as long as the context does not.
const childPatience = 10 * time.Second

// childSpec is what a child reads from its first line of input. It comes that
// way, and not in the environment, because it can hold a password.
type childSpec struct {
	Name  string
	Dir   string
	NATS  natsConfig
	Kafka kafkaConfig

	NATSNode natsNode
}

// ChildOption is an option of [StartChild]: a [NATSOption] for "nats", a
// [KafkaOption] for "kafka".
type ChildOption interface{ child(*childOptions) }

type childOptions struct {
	nats  []NATSOption
	kafka []KafkaOption
}

func (o NATSOption) child(c *childOptions)  { c.nats = append(c.nats, o) }
func (o KafkaOption) child(c *childOptions) { c.kafka = append(c.kafka, o) }

// Child is an emulator whose broker runs in a process of its own. It implements
// [Emulator]; the fault proxy stays in this process, and so does the address.
//
// Kill sends SIGKILL and starts a new process on the same data. What had reached
// the operating system survives that, and nothing else does. Restart closes the
// child's input, on which it stops cleanly.
type Child struct {
	*emulator
	process *childBackend
}

// Pid returns the process ID of the broker that runs now, 0 when there is none.
func (c *Child) Pid() int {
	c.process.mu.Lock()
	defer c.process.mu.Unlock()
	if c.process.running == nil {
		return 0
	}
	return c.process.running.cmd.Process.Pid
}

// StartChild runs the emulator of that name in a child process and returns when
// it is ready for clients. The child is this program once more, so main, or
// TestMain, must begin with [RunIfChild]; StartChild returns an error that says
// so when the child does not report as ready within 10 seconds. The child ends
// when this process does, however that ends.
func StartChild(ctx context.Context, name string, options ...ChildOption) (*Child, error) {
	if marked := os.Getenv(childEnv); marked != "" {
		return nil, fmt.Errorf("localstack: this process is itself a child emulator (%s): main or TestMain must begin with localstack.RunIfChild", marked)
	}
	var all childOptions
	for _, o := range options {
		o.child(&all)
	}
	b := &childBackend{spec: childSpec{Name: name}}
	var e *emulator
	var dir string
	var err error
	switch {
	case name == NATSName && len(all.kafka) == 0:
		for _, o := range all.nats {
			o(&b.spec.NATS)
		}
		dir = b.spec.NATS.dataDir
		if e, err = newNATS(b, b.spec.NATS.front, func(net.Addr) (net.Conn, error) { return b.dial(0) }); err == nil {
			b.spec.NATS.Advertise = e.proxies[0].addr()
			b.hasDirect = true
		}
	case name == KafkaName && len(all.nats) == 0:
		if b.spec.Kafka, err = newKafkaConfig(all.kafka); err != nil {
			return nil, err
		}
		b.groups.init(b.spec.Kafka.GroupConfigs)
		dir = b.spec.Kafka.dataDir
		var addrs []string
		if e, addrs, err = newKafka(b, &b.groups, b.spec.Kafka.Brokers, b.spec.Kafka.front, func(n int, _ net.Addr) (net.Conn, error) { return b.dial(n) }); err == nil {
			b.spec.Kafka.Advertise = addrs
		}
	case name == NATSName || name == KafkaName:
		err = fmt.Errorf("localstack: %s was given options of another emulator", name)
	default:
		err = fmt.Errorf("localstack: no emulator named %q, there are %s", name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	if err := e.open(ctx, dir); err != nil {
		return nil, err
	}
	return &Child{e, b}, nil
}

// childBackend runs a broker in a child process. The ports stay the same from
// the first start on.
type childBackend struct {
	spec      childSpec
	groups    groupConfigs // Kafka alone
	hasDirect bool

	mu      sync.Mutex
	pid     int // of the process that was started last
	running *childProcess
	ports   []int
}

// childProcess is one run of a child.
type childProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *tail
	exited chan struct{} // closed after the process has been waited for
	err    error         // its exit, readable then
}

func (b *childBackend) start(ctx context.Context, dir string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("localstack: child %s: %w", b.spec.Name, err)
	}
	b.spec.Dir, b.spec.Kafka.GroupConfigs = dir, b.groups.snapshot()
	spec, err := json.Marshal(b.spec)
	if err != nil {
		return fmt.Errorf("localstack: child %s: %w", b.spec.Name, err)
	}
	p := &childProcess{cmd: exec.Command(exe), stderr: new(tail), exited: make(chan struct{})}
	// A child built with the race detector would sleep for a second at its end.
	p.cmd.Env = append(os.Environ(), childEnv+"="+b.spec.Name, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.cmd.Stderr = p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("localstack: child %s: %w", b.spec.Name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("localstack: child %s: %w", b.spec.Name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("localstack: child %s: %w", b.spec.Name, err)
	}
	b.mu.Lock()
	b.pid = p.cmd.Process.Pid
	b.mu.Unlock()
	line := make(chan string, 1)
	go func() { // ends with the process, whose output it drains
		defer close(p.exited)
		r := bufio.NewReader(out)
		first, _ := r.ReadString('\n')
		line <- first
		_, _ = io.Copy(io.Discard, r)
		p.err = p.cmd.Wait()
	}()
	_, err = p.stdin.Write(append(spec, '\n'))
	if err != nil {
		// The child is gone or does not read; its first line says more.
		err = fmt.Errorf("sending the configuration: %w", err)
	}
	ports, err := awaitReady(ctx, line, err)
	if err != nil {
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("localstack: child %s did not start (does main or TestMain begin with localstack.RunIfChild?): %w%s", b.spec.Name, err, p.stderr.suffix())
	}
	b.mu.Lock()
	b.running, b.ports = p, ports
	b.mu.Unlock()
	b.spec.Kafka.Ports = ports
	b.spec.NATS.Port = ports[0]
	return nil
}

// awaitReady waits for a child's first line and returns the ports in it.
func awaitReady(ctx context.Context, line <-chan string, sendErr error) ([]int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, childPatience, fmt.Errorf("not ready within %v", childPatience))
	defer cancel()
	select {
	case s := <-line:
		rest, ok := strings.CutPrefix(s, childReady)
		if !ok {
			return nil, errors.Join(fmt.Errorf("its output begins with %q", strings.TrimSpace(s)), sendErr)
		}
		var ports []int
		if err := json.Unmarshal([]byte(rest), &ports); err != nil || len(ports) == 0 {
			return nil, fmt.Errorf("its ports are %q", strings.TrimSpace(rest))
		}
		return ports, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), sendErr)
	}
}

func (b *childBackend) dial(n int) (net.Conn, error) {
	b.mu.Lock()
	ports, running := b.ports, b.running
	b.mu.Unlock()
	if running == nil || n >= len(ports) {
		return nil, net.ErrClosed
	}
	return net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[n])))
}

func (b *childBackend) direct() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.hasDirect || len(b.ports) == 0 {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.ports[0]))
}

// end takes the running process away, so that it is ended once.
func (b *childBackend) end() *childProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.running
	b.running = nil
	return p
}

// stop lets the child stop cleanly, and kills it when the context ends first.
func (b *childBackend) stop(ctx context.Context) error {
	p := b.end()
	if p == nil {
		return nil
	}
	_ = p.stdin.Close()
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("localstack: child %s: %w%s", b.spec.Name, p.err, p.stderr.suffix())
		}
		return nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("localstack: child %s was killed, it had not stopped: %w", b.spec.Name, context.Cause(ctx))
	}
}

// kill sends SIGKILL and waits for the end of the process.
func (b *childBackend) kill(context.Context) error {
	p := b.end()
	if p == nil {
		return fmt.Errorf("localstack: child %s does not run", b.spec.Name)
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	_ = p.stdin.Close()
	if errors.Is(err, os.ErrProcessDone) {
		err = fmt.Errorf("localstack: child %s had ended by itself: %w%s", b.spec.Name, p.err, p.stderr.suffix())
	}
	return err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 4 << 10 // bytes

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailSize {
		t.b = bytes.Clone(t.b[len(t.b)-tailSize:])
	}
	return len(p), nil
}

// suffix returns what was written, to be appended to an error's text.
func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.b)); s != "" {
		return "; it wrote: " + s
	}
	return ""
}
