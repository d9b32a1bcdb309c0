package crashes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// consumer is a process that consumes, as its cell sees it.
type consumer struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	err  tail
	done chan struct{} // closed when all that it has said is read and it is gone
}

// startConsumer starts one whose events go to a channel, the last of which is ended.
func startConsumer(name string, spec consumerSpec, events chan<- event) (*consumer, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &consumer{name: name, cmd: exec.Command(exe), done: make(chan struct{})}
	// It does one thing at a time, as many others do, for a second: more threads would
	// only turn, and its start is most of what there is to collect.
	c.cmd.Env = append(os.Environ(), consumerEnv+"="+string(raw), "GOMAXPROCS=1", "GOGC=400", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	c.cmd.Stderr = &c.err
	// In a group of its own it doesn't get the interrupt of a terminal, and isn't woken
	// when the group of a shell that has ended is.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.cmd.SysProcAttr)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a consumer: %w", err)
	}
	go func() {
		defer close(c.done)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			e := event{Event: failed, Note: in.Text()}
			_ = json.Unmarshal(in.Bytes(), &e)
			e.from = c
			events <- e
		}
		last := event{Event: ended, from: c}
		if err := c.cmd.Wait(); err != nil {
			last.Note = strings.TrimSpace(err.Error() + " " + c.err.String())
		}
		events <- last
	}()
	return c, nil
}

// tell sends a command. A process that is gone doesn't hear it.
func (c *consumer) tell(cmd command) {
	b, err := json.Marshal(cmd)
	if err == nil {
		_, _ = c.in.Write(append(b, '\n'))
	}
}

func (c *consumer) kill()   { _ = c.cmd.Process.Signal(syscall.SIGKILL) }
func (c *consumer) freeze() { _ = c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *consumer) thaw()   { _ = c.cmd.Process.Signal(syscall.SIGCONT) }

// leave lets it drain and end.
func (c *consumer) leave() { _ = c.in.Close() }

// frozen waits until the process has stopped, which a signal brings about a little
// later.
func (c *consumer) frozen(ctx context.Context) error {
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			return nil // no such place here
		}
		if i := strings.LastIndexByte(string(stat), ')'); i >= 0 && strings.HasPrefix(string(stat[i+1:]), " T") {
			return nil
		}
		if !pause(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// tail keeps the beginning of what a process prints on its standard error.
type tail struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() < 4096 {
		t.b.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
