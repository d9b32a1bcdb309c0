package localstack_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
)

// local skips a test that runs a real server, unless such tests are wanted; what
// the server needs must be there then.
func local(t *testing.T) {
	t.Helper()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs a real server: set ONCELINE_LOCAL=1, and have installed what docs and errors ask for")
	}
}

// steps collects what Progress tells.
type steps struct {
	mu    sync.Mutex
	lines []string
}

func (s *steps) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *steps) saw(t *testing.T, words ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.lines, "\n")
	for _, w := range words {
		if !strings.Contains(all, w) {
			t.Errorf("progress never said %q: %s", w, all)
		}
	}
}

// startReal runs a start, and closes the server at the test's end.
func startReal[E localstack.Emulator](t *testing.T, start func(context.Context) (E, error)) E {
	t.Helper()
	local(t)
	began := time.Now()
	e, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %v: ready in %v", e.Name(), e.Versions(), time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		t.Logf("closed in %v", time.Since(began).Round(time.Millisecond))
	})
	return e
}

// gone fails the test if a process is still there.
func gone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there", pid)
	}
}

// resident returns the memory of a process in MiB, as Linux counts it.
func resident(pid int) string {
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/status")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}

// untilLost returns a context for a request that a fault will strike. It ends when
// there is no answer to wait for any more.
func untilLost(t *testing.T, i *localstack.Injection) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	f := i.Fault()
	if f.Cut || f.Kind != localstack.LoseRequest && f.Kind != localstack.LoseResponse {
		return ctx
	}
	go func() {
		defer cancel()
		wait := i.WaitHit
		if f.Kind == localstack.LoseResponse {
			wait = i.WaitApplied
		}
		_ = wait(ctx) // the test asks for itself
	}()
	return ctx
}
