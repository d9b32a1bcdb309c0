package localstack_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/onceline/onceline/localstack"
)

// Java servers archive their classes at the first start and map them from then on, and
// do so anew where the archive is damaged.
func TestRealServersShareClasses(t *testing.T) {
	local(t)
	for _, server := range []struct {
		name  string
		start func(context.Context, ...localstack.ServerOption) (localstack.Emulator, func() int, error)
	}{
		{"kafka", func(ctx context.Context, options ...localstack.ServerOption) (localstack.Emulator, func() int, error) {
			var all []localstack.KafkaServerOption
			for _, o := range options {
				all = append(all, o)
			}
			e, err := localstack.StartKafkaServer(ctx, all...)
			return e, func() int { return e.Pids()[0] }, err
		}},
		{"elasticmq", func(ctx context.Context, options ...localstack.ServerOption) (localstack.Emulator, func() int, error) {
			e, err := localstack.StartElasticMQ(ctx, options...)
			return e, func() int { return e.Pid() }, err
		}},
		{"pubsub", func(ctx context.Context, options ...localstack.ServerOption) (localstack.Emulator, func() int, error) {
			e, err := localstack.StartPubSubEmulator(ctx, options...)
			return e, func() int { return e.Pid() }, err
		}},
	} {
		t.Run(server.name, func(t *testing.T) {
			cache := t.TempDir()
			var told steps
			var pid func() int
			start := func(t *testing.T) {
				startReal(t, func(ctx context.Context) (e localstack.Emulator, err error) {
					e, pid, err = server.start(ctx, localstack.CacheDir(cache), localstack.Progress(told.add))
					return e, err
				})
			}
			archives := func() []string {
				files, err := filepath.Glob(filepath.Join(cache, "classes", "*"))
				if err != nil {
					t.Fatal(err)
				}
				return files
			}
			t.Run("first", func(t *testing.T) {
				start(t)
				told.saw(t, "archiving")
				if files := archives(); len(files) != 1 || !maps(t, pid(), files[0]) {
					t.Errorf("not mapped: %v", files)
				}
			})
			if server.name != "pubsub" { // which is the quickest
				return
			}
			t.Run("damaged", func(t *testing.T) { // a JVM would die of it
				file := archives()[0]
				whole, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, whole[:len(whole)/2], 0o600); err != nil {
					t.Fatal(err)
				}
				start(t)
				if files := archives(); len(files) != 1 || files[0] == file || !maps(t, pid(), files[0]) {
					t.Errorf("not mapped: %v, was %s", files, file)
				}
			})
		})
	}
}

// maps reports whether a process has mapped a file, and skips the test where that
// can't be known.
func maps(t *testing.T, pid int, file string) bool {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("what a process maps is known on Linux")
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(file))
}
