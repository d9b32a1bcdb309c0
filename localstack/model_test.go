package localstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// echo is the smallest model: it answers each line with the line and the number
// of restarts that it has seen.
type echo struct {
	faults fault.Set
	clock  *clock.Clock
	wg     sync.WaitGroup

	mu       sync.Mutex
	restarts int
	from     net.Listener
	conns    map[net.Conn]struct{}
}

func newEcho() *echo { return &echo{clock: clock.New(), conns: map[net.Conn]struct{}{}} }

func (e *echo) Faults() *fault.Set  { return &e.faults }
func (e *echo) Clock() *clock.Clock { return e.clock }

func (e *echo) Serve(l net.Listener) error {
	e.mu.Lock()
	e.from = l
	e.mu.Unlock()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		e.mu.Lock()
		e.conns[c] = struct{}{}
		e.mu.Unlock()
		e.wg.Go(func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				e.mu.Lock()
				n := e.restarts
				e.mu.Unlock()
				if _, err := fmt.Fprintf(c, "%s %d\n", lines.Text(), n); err != nil {
					return
				}
			}
		})
	}
}

func (e *echo) Restart(bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restarts++
	e.cut()
}

// cut closes the connections; mu is held.
func (e *echo) cut() {
	for c := range e.conns {
		_ = c.Close()
		delete(e.conns, c)
	}
}

func (e *echo) Close(ctx context.Context) error {
	e.clock.Close()
	e.mu.Lock()
	var err error
	if e.from != nil { // it may have been closed before it served
		err = e.from.Close()
	}
	e.cut()
	e.mu.Unlock()
	if err != nil {
		return err
	}
	return waitFor(ctx, "echo", e.wg.Wait)
}

func startEcho(t *testing.T) *modelled {
	t.Helper()
	m, err := serve("echo", newEcho(), new(tracer), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// echoClient is a connection to an echo.
type echoClient struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dialEcho(t *testing.T, m *modelled) echoClient {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(m.URL(), "echo://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return echoClient{t, c, bufio.NewReader(c)}
}

func (c echoClient) say(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		c.t.Fatal(err)
	}
}

func (c echoClient) hear(want string) {
	c.t.Helper()
	got, err := c.in.ReadString('\n')
	if err != nil || got != want+"\n" {
		c.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

func TestModelKeepsItsAddress(t *testing.T) {
	m := startEcho(t)
	old := dialEcho(t, m)
	old.say("a")
	old.hear("a 0")
	if err := m.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := old.in.ReadString('\n'); err == nil {
		t.Error("a connection has outlived the restart")
	}
	again := dialEcho(t, m)
	again.say("b")
	again.hear("b 1")
	if n := m.Disconnect(); n != 1 {
		t.Errorf("%d connections were closed, want 1", n)
	}
}

func TestModelFreezes(t *testing.T) {
	m := startEcho(t)
	c := dialEcho(t, m)
	c.say("a")
	c.hear("a 0")
	m.Freeze()
	c.say("b")
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if line, err := c.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %q, %v from a frozen broker", line, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	m.Thaw()
	c.hear("b 0")
}

// TestModelSlow: what passes takes its time, by piece and by size, until it is fast
// again; and Close doesn't wait for what is on its way.
func TestModelSlow(t *testing.T) {
	m := startEcho(t)
	c := dialEcho(t, m)
	asks := func(s string) time.Duration {
		begin := time.Now()
		c.say(s)
		c.hear(s + " 0")
		return time.Since(begin)
	}
	m.Slow(Slowness{Delay: 50 * time.Millisecond})
	if took := asks("a"); took < 100*time.Millisecond {
		t.Errorf("there and back took %s with 50 ms each way", took)
	}
	m.Slow(Slowness{BytesPerSecond: 10_000})
	if took := asks(strings.Repeat("b", 1000)); took < 200*time.Millisecond {
		t.Errorf("1000 bytes there and back took %s at 10,000 bytes a second", took)
	}
	m.Slow(Slowness{})
	if took := asks("c"); took > 40*time.Millisecond && took > asks("d")+40*time.Millisecond {
		t.Errorf("a network that is fast again took %s", took)
	}
	m.Slow(Slowness{Delay: time.Hour})
	c.say("e")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestModelClosesFrozen(t *testing.T) {
	m := startEcho(t)
	c := dialEcho(t, m)
	m.Freeze()
	c.say("a")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.Restart(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed emulator restarts: %v", err)
	}
}
