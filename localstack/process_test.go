//go:build unix

package localstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentEnv makes this program no test but the parent of a server in the folder
// that it names, for TestServerEndsWithItsParent to kill.
const parentEnv = "LOCALSTACK_TEST_PARENT"

func init() {
	dir := os.Getenv(parentEnv)
	if dir == "" {
		return
	}
	// A server with a child of its own, as a script around one is.
	p, err := serverCommand{name: "sleeper", path: "/bin/sh", args: []string{"-c", `sleep 600 & echo $! >child; wait`}, dir: dir, log: filepath.Join(dir, "log")}.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("started", p.pid())
	<-p.exited
	os.Exit(0)
}

// However the process that started a server ends, the server and all its children
// end too.
func TestServerEndsWithItsParent(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var server int
	lines := bufio.NewScanner(out)
	for server == 0 && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "started %d", &server)
	}
	child := 0
	within(t, "the child's number", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "child"))
		child, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return child != 0
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range []int{server, child} {
		within(t, "the end of the server", func() bool { return !running(pid) })
	}
}

func TestServerProcess(t *testing.T) {
	dir := t.TempDir()
	start := func(script string) *serverProcess {
		t.Helper()
		p, err := serverCommand{name: "script", path: "/bin/sh", args: []string{"-c", script}, dir: dir, log: filepath.Join(dir, "log")}.run()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	never := func(context.Context) bool { return false }

	failed := start("echo no licence; exit 3")
	if err := failed.await(t.Context(), never); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no licence") {
		t.Errorf("a server that ends while it starts: %v", err)
	}
	if err := failed.kill(); err == nil {
		t.Error("a server that had ended was killed")
	}

	deaf := start("trap '' TERM; echo on >up; while :; do sleep 0.05; done")
	within(t, "the trap", func() bool { _, err := os.Stat(filepath.Join(dir, "up")); return err == nil })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := deaf.await(ctx, never); !errors.Is(err, context.DeadlineExceeded) || !deaf.alive() {
		t.Errorf("waiting for a server: %v", err)
	}
	if err := deaf.stop(ctx); !errors.Is(err, context.DeadlineExceeded) || deaf.alive() {
		t.Errorf("a server that does not stop: %v", err)
	}
	if err := deaf.stop(t.Context()); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	var none *serverProcess
	if err := none.stop(t.Context()); err != nil || none.alive() {
		t.Errorf("a server that was never started: %v", err)
	}
	kind := start("sleep 600")
	pid := kind.pid()
	if err := kind.stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	within(t, "its end", func() bool { return !running(pid) })
}

// running says whether a process is there, and is not just waiting to be buried.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(b), ") Z ")
}

// within polls until it is so, for at most 10 s.
func within(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestJavaVersion(t *testing.T) {
	for out, want := range map[string]int{
		`openjdk version "17.0.15" 2025-04-15`: 17, `java version "1.8.0_292"`: 8, `openjdk version "21-ea" 2023`: 21, "nonsense": 0,
	} {
		if _, major := javaVersion(out); major != want {
			t.Errorf("%q is %d, want %d", out, major, want)
		}
	}
}
