package localstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// archiveOf is an archive of a server that isn't one, and counts its starts.
func archiveOf(t *testing.T, dir string, write string) (*classArchive, *atomic.Int32) {
	t.Helper()
	java, jar := filepath.Join(dir, "java"), filepath.Join(dir, "a.jar")
	for _, file := range []string{java, jar} {
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var starts atomic.Int32
	return &classArchive{name: "s-1", who: "S", java: java, version: "17.0.1", classPath: jar, train: func(_ context.Context, _ string, jvm []string) error {
		starts.Add(1)
		if write == "" {
			return nil
		}
		file, ok := strings.CutPrefix(jvm[0], "-XX:ArchiveClassesAtExit=")
		if !ok {
			return errors.New("no archive was asked for")
		}
		return os.WriteFile(file, []byte(write), 0o600)
	}}, &starts
}

// forget makes this process know no more of archives than a new one.
func forget() {
	archiving.Lock()
	defer archiving.Unlock()
	clear(archiving.of)
}

func mapped(t *testing.T, args []string) string {
	t.Helper()
	if len(args) == 0 {
		return ""
	}
	file, ok := strings.CutPrefix(args[0], "-XX:SharedArchiveFile=")
	if _, err := os.Stat(file); !ok || err != nil {
		t.Errorf("%v: %v", args, err)
	}
	return file
}

func TestClassArchive(t *testing.T) {
	dir := t.TempDir()
	c := &serverConfig{cacheDir: dir}
	a, starts := archiveOf(t, dir, "classes")
	var wg sync.WaitGroup
	for range 8 { // servers of one process wait for the first
		wg.Go(func() {
			if mapped(t, c.sharing(t.Context(), a)) == "" {
				t.Error("no archive")
			}
		})
	}
	wg.Wait()
	first := mapped(t, c.sharing(t.Context(), a))
	forget()
	if again := mapped(t, c.sharing(t.Context(), a)); again != first || starts.Load() != 1 {
		t.Errorf("%s, %s by another process, after %d starts", first, again, starts.Load())
	}

	// A damaged one is made anew, by who knew it and by who didn't.
	for n, other := range []bool{false, true} {
		if err := os.WriteFile(first, []byte("damage"), 0o600); err != nil {
			t.Fatal(err)
		}
		if other {
			forget()
		}
		if mapped(t, c.sharing(t.Context(), a)) != first || starts.Load() != int32(n+2) {
			t.Errorf("a damaged archive, another process %v: %d starts", other, starts.Load())
		}
		if b, err := os.ReadFile(first); err != nil || string(b) != "classes" {
			t.Errorf("%q, %v", b, err)
		}
	}

	// Other JARs need another, and what is stale of others goes then.
	stale := filepath.Join(dir, "classes", "s-1-making-x")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * archiveStale)
	if err := errors.Join(os.Chtimes(stale, long, long), os.WriteFile(a.classPath, []byte("newer"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if second := mapped(t, c.sharing(t.Context(), a)); second == first || second == "" || starts.Load() != 4 {
		t.Errorf("%s, %s with another JAR, after %d starts", first, second, starts.Load())
	}
	left, err := os.ReadDir(filepath.Join(dir, "classes"))
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// Where no archive can be had the servers start without, and don't try each time.
func TestNoClassArchive(t *testing.T) {
	dir := t.TempDir()
	c := &serverConfig{cacheDir: dir}
	none, starts := archiveOf(t, dir, "")
	for n, want := range []int32{1, 1} {
		if args := c.sharing(t.Context(), none); args != nil || starts.Load() != want {
			t.Errorf("process %d: %v after %d starts", n, args, starts.Load())
		}
		forget()
	}
	failing, starts := archiveOf(t, t.TempDir(), "classes")
	failing.train = func(context.Context, string, []string) error { starts.Add(1); return errors.New("it didn't start") }
	for n, want := range []int32{1, 1, 2} {
		if args := c.sharing(t.Context(), failing); args != nil || starts.Load() != want {
			t.Errorf("call %d: %v after %d starts", n, args, starts.Load())
		}
		if n == 1 {
			forget()
		}
	}
	old, starts := archiveOf(t, t.TempDir(), "classes")
	old.version = "11.0.2"
	if args := c.sharing(t.Context(), old); args != nil || starts.Load() != 0 {
		t.Errorf("Java 11: %v after %d starts", args, starts.Load())
	}

	// An end of the context is no failure: the next one makes it.
	late, starts := archiveOf(t, t.TempDir(), "classes")
	ctx, cancel := context.WithCancel(t.Context())
	write := late.train
	late.train = func(ctx context.Context, dir string, jvm []string) error {
		if starts.Load() == 0 {
			starts.Add(1)
			cancel()
			return ctx.Err()
		}
		return write(ctx, dir, jvm)
	}
	if args := c.sharing(ctx, late); args != nil {
		t.Errorf("%v after the context's end", args)
	}
	if args := c.sharing(t.Context(), late); args == nil || starts.Load() != 2 {
		t.Errorf("%v after %d starts", args, starts.Load())
	}
	left, err := filepath.Glob(filepath.Join(dir, "classes", "*making*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// Two processes that make an archive at once both have a whole one.
func TestClassArchiveOfTwo(t *testing.T) {
	dir := t.TempDir()
	c := &serverConfig{cacheDir: dir}
	a, _ := archiveOf(t, dir, "mine")
	b, _ := archiveOf(t, dir, "theirs")
	mine := a.train
	a.train = func(ctx context.Context, dir string, jvm []string) error { // the other one is done before
		forget()
		if mapped(t, c.sharing(ctx, b)) == "" {
			t.Error("no archive")
		}
		return mine(ctx, dir, jvm)
	}
	file := mapped(t, c.sharing(t.Context(), a))
	if text, err := os.ReadFile(file); err != nil || string(text) != "theirs" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestJavaMajor(t *testing.T) {
	for version, want := range map[string]int{"17.0.15": 17, "21": 21, "1.8.0_292": 8, "22-ea": 22, "": 0, "x": 0} {
		if got := javaMajor(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}
