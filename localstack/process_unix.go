//go:build unix

package localstack

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// serverProcess is one run of a server: a process and all of its descendants, in a
// process group of their own.
type serverProcess struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{} // closed after the process has been waited for
	err       error         // its exit, readable then
}

// watched runs a program beside a guard that kills the whole group when the pipe
// on descriptor 3 ends, that is when the process which holds its other end has
// ended, however it did. The signal that Linux sends on a parent's death would
// reach the program alone and not its children, and would be sent as well when no
// more than the thread that started it ends.
const watched = `(trap '' HUP INT TERM; read _ <&3; kill -9 0) </dev/null >/dev/null 2>&1 & exec "$@" 3<&-`

// run starts the server in a process group of its own. It ends when this process
// does.
func (c serverCommand) run() (*serverProcess, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("localstack: %s: %w", c.name, err)
	}
	defer log.Close()
	guard, pulse, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("localstack: %s: %w", c.name, err)
	}
	defer guard.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", watched, c.name, c.path}, c.args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	cmd.Env = append(os.Environ(), c.env...)
	cmd.ExtraFiles = []*os.File{guard}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.as != nil {
		uid, _ := strconv.ParseUint(c.as.Uid, 10, 32) // numbers, on Unix systems
		gid, _ := strconv.ParseUint(c.as.Gid, 10, 32)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if err := cmd.Start(); err != nil {
		_ = pulse.Close()
		return nil, fmt.Errorf("localstack: %s: %w", c.name, err)
	}
	p := &serverProcess{name: c.name, log: c.log, cmd: cmd, exited: make(chan struct{})}
	go func() { // ends with the process
		p.err = cmd.Wait()
		// What is left of the group: the guard, and what the server left behind.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = pulse.Close()
		close(p.exited)
	}()
	return p, nil
}

func (p *serverProcess) pid() int { return p.cmd.Process.Pid }

func (p *serverProcess) terminate() { p.ask(syscall.SIGTERM) }

// interrupt asks for a stop that does not wait for clients, where there is one.
func (p *serverProcess) interrupt() { p.ask(syscall.SIGINT) }

// ask sends a signal, which a paused process gets when it goes on. What has ended
// needs none.
func (p *serverProcess) ask(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

// kill sends SIGKILL to the group and waits for the end of the process. It is an
// error when the process had ended by itself before.
func (p *serverProcess) kill() error {
	select {
	case <-p.exited:
		return fmt.Errorf("localstack: %s had ended by itself: %w%s", p.name, p.exit(), p.said())
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
	return nil
}

// pauseProcess stops a process without ending it, as a long pause of its machine
// would.
func pauseProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// unpauseProcess lets it go on.
func unpauseProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func (p *serverProcess) pause() error   { return pauseProcess(p.cmd.Process) }
func (p *serverProcess) unpause() error { return unpauseProcess(p.cmd.Process) }
