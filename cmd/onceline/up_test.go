package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// guarded is a buffer that is written to and read at the same time.
type guarded struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) { g.mu.Lock(); defer g.mu.Unlock(); return g.b.Write(p) }
func (g *guarded) String() string              { g.mu.Lock(); defer g.mu.Unlock(); return g.b.String() }

// up runs the command until the test has seen what it wants.
type up struct {
	t       *testing.T
	ready   string
	out     guarded
	err     guarded
	cancel  context.CancelFunc
	ended   chan int
	Brokers []endpoint `json:"brokers"`
}

func startUp(t *testing.T, args ...string) *up {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	u := &up{t: t, ready: filepath.Join(t.TempDir(), "ready.json"), cancel: cancel, ended: make(chan int, 1)}
	args = append([]string{"up", "--ready-file", u.ready}, args...)
	go func() { u.ended <- run(ctx, args, &u.out, &u.err) }()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(u.ready)
		if err == nil {
			if err := json.Unmarshal(b, u); err != nil {
				t.Fatal(err)
			}
			return u
		}
		select {
		case code := <-u.ended:
			t.Fatalf("exit %d: %s", code, u.err.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatal("not ready")
		}
	}
}

// stop interrupts it.
func (u *up) stop() {
	u.t.Helper()
	u.cancel()
	if code := <-u.ended; code != 0 || !strings.HasSuffix(u.err.String(), "stopped\n") {
		u.t.Errorf("exit %d: %s", code, u.err.String())
	}
	if _, err := os.Stat(u.ready); !os.IsNotExist(err) {
		u.t.Errorf("the ready file is left: %v", err)
	}
}

// TestUp: all brokers, each with a URL at which pub and sub work.
func TestUp(t *testing.T) {
	t.Parallel()
	u := startUp(t, "--free-ports", "--verbose")
	t.Cleanup(u.stop)
	if len(u.Brokers) != len(localstack.Names()) {
		t.Fatalf("%+v", u.Brokers)
	}
	subscriptions := map[string][2]string{ // topic and subscription
		"sqs": {"orders", "orders"}, "pubsub": {"orders", "orders-sub"}, "servicebus": {"orders", "orders"},
		"rabbitmq": {"orders", "orders/billing"}, "nats": {"orders", "ORDERS/billing"}, "kafka": {"orders", "orders/billing"},
	}
	for _, b := range u.Brokers {
		t.Run(b.Broker, func(t *testing.T) {
			t.Parallel()
			if len(b.Env) == 0 || !strings.Contains(u.out.String(), b.URL) || !strings.Contains(u.out.String(), b.Env[0].Name+"=") {
				t.Errorf("%+v isn't told:\n%s", b, u.out.String())
			}
			s := subscriptions[b.Broker]
			sub := []string{"sub", "--url", b.URL, "--topic", s[0], "--subscription", s[1], "--ensure"}
			if _, stderr, code := onceline(t.Context(), append(sub, "--wait", "10ms")...); code != 0 {
				t.Fatal(stderr)
			}
			if stdout, stderr, code := onceline(t.Context(), "pub", "--url", b.URL, "--topic", s[0], "hello"); code != 0 || strings.HasPrefix(stdout, "Refused") {
				t.Fatal(stdout, stderr)
			}
			if stdout, stderr, code := onceline(t.Context(), append(sub, "--count", "1", "--wait", "20s")...); code != 0 || stdout != "hello\n" {
				t.Fatalf("exit %d: %q %s", code, stdout, stderr)
			}
			if !strings.Contains(u.err.String(), " "+b.Broker+" ") {
				t.Errorf("no request of %s is traced", b.Broker)
			}
		})
	}
}

func TestUpPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().(*net.TCPAddr).Port
	// A port that must be had, and can't.
	if stdout, stderr, code := onceline(t.Context(), "up", "sqs", "--port", "sqs="+strconv.Itoa(taken)); code != report.ExitUnknown || stdout != "" || !strings.Contains(stderr, "in use") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	l.Close()
	u := startUp(t, "sqs", "--port", "sqs="+strconv.Itoa(taken), "--env")
	if !strings.Contains(u.out.String(), "export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:"+strconv.Itoa(taken)+"\n") {
		t.Error(u.out.String())
	}
	u.stop()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"pulsar"}, "there are: sqs"},
		{[]string{"sqs", "sqs"}, "twice"},
		{[]string{"sqs", "--port", "nats=4222"}, "--port nats=4222"},
		{[]string{"sqs", "--port", "sqs=0"}, "not a port"},
		{[]string{"sqs", "--port", "sqs=70000"}, "not a port"},
		{[]string{"sqs", "--json", "--env"}, "one of the two"},
		{[]string{"sqs", "nats", "--port", "sqs=7777", "--port", "nats=7777"}, "another broker"},
	} {
		if _, stderr, code := onceline(t.Context(), append([]string{"up"}, c.args...)...); code != report.ExitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, stderr)
		}
	}
}

// TestUsualPorts: what is taken is left alone, and no two brokers get one port.
func TestUsualPorts(t *testing.T) {
	t.Parallel()
	taken := map[int]bool{}
	rabbit, bus := usual(localstack.RabbitMQName, taken), usual(localstack.ServiceBusName, taken)
	if len(rabbit) == 0 || len(bus) == 0 || rabbit[0] != 0 && rabbit[0] == bus[0] {
		t.Errorf("%v and %v", rabbit, bus)
	}
	if got := usual(localstack.SQSName, map[int]bool{9324: true}); len(got) != 1 || got[0] != 0 {
		t.Errorf("%v", got)
	}
}

// TestUpRemovesStaleReadyFile: one that a killed run has left would mislead.
func TestUpRemovesStaleReadyFile(t *testing.T) {
	t.Parallel()
	stale := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(stale, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, code := onceline(t.Context(), "up", "sqs", "sqs", "--ready-file", stale); code != report.ExitUsage {
		t.Errorf("exit %d", code)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

func TestUpReadyFileFails(t *testing.T) {
	t.Parallel()
	code := run(t.Context(), []string{"up", "sqs", "--free-ports", "--ready-file", filepath.Join(t.TempDir(), "no", "such", "folder")}, io.Discard, io.Discard)
	if code != report.ExitUnknown {
		t.Errorf("exit %d", code)
	}
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://127.0.0.1:1/a_b": "http://127.0.0.1:1/a_b",
		"a;b":                    "'a;b'",
		"it's":                   `'it'\''s'`,
	} {
		if got := shellQuote(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
