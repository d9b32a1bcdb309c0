package localstack

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// echoing is a server that sends back what it gets.
func echoing(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().(*net.TCPAddr).Port
}

// meshOf is a mesh of two nodes, of which the second listens. This process is the node
// of that number, if it is one.
func meshOf(t *testing.T, self int) *mesh {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("whose a connection is can't be told here")
	}
	port := echoing(t)
	pids := []int{0, 0}
	if self >= 0 {
		pids[self] = os.Getpid()
	}
	m, err := newMesh(2, func() []int { return pids }, []int{1}, func(int) (net.Conn, error) { return net.Dial("tcp", loopback(port)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := m.close(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

func meshDial(t *testing.T, m *mesh) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", loopback(m.port(0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func meshSend(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// meshGets wants the text within 5 s; heldBack wants nothing for a moment.
func meshGets(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got[:n], err, want)
	}
}

func heldBack(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v; want none", n, err)
	}
}

func TestMeshCutsOff(t *testing.T) {
	m := meshOf(t, 0)
	c := meshDial(t, m)
	meshSend(t, c, "a")
	meshGets(t, c, "a")
	if err := m.isolate(1); err != nil {
		t.Fatal(err)
	}
	meshSend(t, c, "b")
	heldBack(t, c)
	late := meshDial(t, m)
	meshSend(t, late, "c")
	heldBack(t, late)
	m.rejoin(1)
	meshGets(t, c, "b") // late and not lost, as over a network that dropped packets
	meshGets(t, late, "c")
	// The other end of the same link.
	if err := m.isolate(0); err != nil {
		t.Fatal(err)
	}
	meshSend(t, c, "d")
	heldBack(t, c)
	m.rejoin(0)
	meshGets(t, c, "d")
}

// A node reaches itself, and whoever is none of the nodes reaches all.
func TestMeshLetsOthersThrough(t *testing.T) {
	for name, self := range map[string]int{"the node itself": 1, "none of the nodes": -1} {
		t.Run(name, func(t *testing.T) {
			m := meshOf(t, self)
			if err := m.isolate(1); err != nil {
				t.Fatal(err)
			}
			c := meshDial(t, m)
			meshSend(t, c, "a")
			meshGets(t, c, "a")
		})
	}
}

// Closing a mesh frees what it holds back.
func TestMeshClosesWhileItHolds(t *testing.T) {
	m := meshOf(t, 0)
	c := meshDial(t, m)
	meshSend(t, c, "a")
	meshGets(t, c, "a")
	if err := m.isolate(1); err != nil {
		t.Fatal(err)
	}
	meshSend(t, c, "b")
	meshSend(t, meshDial(t, m), "c")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := m.close(ctx); err != nil {
		t.Error(err)
	}
}

func TestWithoutMeshNobodyIsCutOff(t *testing.T) {
	var m *mesh
	if err := m.isolate(0); !errors.Is(err, ErrPartition) {
		t.Errorf("isolate: %v", err)
	}
	m.rejoin(0)
	if err := m.close(t.Context()); err != nil {
		t.Error(err)
	}
}
