package localstack

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fronted is a broker that somebody else runs, behind a front.
type fronted struct{ serverFront }

func (fronted) start(context.Context, string) error  { return nil }
func (f fronted) stop(ctx context.Context) error     { return f.close(ctx) }
func (fronted) direct() string                       { return "" }
func (f fronted) reach(c net.Addr) (net.Conn, error) { return f.dial(c) }

// ProxyOfPubSub puts the front of the Pub/Sub emulator in front of a broker, for
// tests.
func ProxyOfPubSub(t *testing.T, url string) Emulator {
	t.Helper()
	e := &emulator{name: PubSubName, checkAPI: checkPubSubAPI}
	front, err := newPubSubFront(strings.TrimPrefix(url, "pubsub://"), e)
	if err != nil {
		t.Fatal(err)
	}
	return openFronted(t, e, front)
}

// ProxyOfSQS does so with that of the servers of the SQS API.
func ProxyOfSQS(t *testing.T, url string) *Server {
	t.Helper()
	e := &emulator{name: SQSName, checkAPI: checkSQSAPI}
	front := newSQSFront(strings.TrimPrefix(url, "sqs://"), &e.faults, &e.trace)
	openFronted(t, e, front)
	return &Server{e, &singleServer{front: func(string) (serverFront, error) { return front, nil }}}
}

func openFronted(t *testing.T, e *emulator, front serverFront) *emulator {
	t.Helper()
	b := fronted{front}
	p, err := listen(0, b.reach, servePlain)
	if err != nil {
		t.Fatal(err)
	}
	e.proxies, e.backend = []*proxy{p}, b
	if err := e.open(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAStartThatWillDoLater: a server that ends as it starts is started again where its
// last words say that it will do, and else is an error at once.
func TestAStartThatWillDoLater(t *testing.T) {
	const script = `n=$(cat starts 2>/dev/null || echo 0); n=$((n+1)); echo $n >starts
		[ $n -lt 3 ] && { echo "the memory is in use"; exit 1; }; touch ready; exec sleep 60`
	for again, want := range map[string]string{"in use": "3", "something else": "1"} {
		t.Run(again, func(t *testing.T) {
			dir := t.TempDir()
			file := func(name string) string {
				b, _ := os.ReadFile(filepath.Join(dir, name)) // "" if it isn't there
				return strings.TrimSpace(string(b))
			}
			b := &singleServer{name: "a script",
				command: func(dir string, _ int) (serverCommand, error) {
					return serverCommand{name: "sh", path: "/bin/sh", args: []string{"-c", script}, dir: dir, log: filepath.Join(dir, "log")}, nil
				},
				ready: func(context.Context, int) bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil },
				again: func(said string) bool { return strings.Contains(said, again) },
			}
			err := b.start(t.Context(), dir)
			if (err == nil) != (want == "3") || file("starts") != want {
				t.Errorf("%s starts, %v", file("starts"), err)
			}
			if err := b.stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
