package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// bridged are two brokers in this process, and what the command needs to know of them.
func bridged(t *testing.T) (stack *localstack.Stack, rabbit, nats string) {
	t.Helper()
	stack, err := localstack.Start(t.Context(), localstack.RabbitMQName, localstack.NATSName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return stack, stack.URL(localstack.RabbitMQName), stack.URL(localstack.NATSName)
}

// TestBridgeBothWays: what is moved in one direction isn't moved back, is refused by the
// far side or dead-lettered, and the numbers and exit codes say so.
func TestBridgeBothWays(t *testing.T) {
	t.Parallel()
	_, rabbit, nats := bridged(t)
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, got := onceline(t.Context(), args...)
		if got != code {
			t.Fatalf("%v: exit %d: %s%s", args, got, stdout, stderr)
		}
		return stdout, stderr
	}
	there := []string{"bridge", "--from", rabbit, "--from-topic", "orders", "--subscription", "orders/bridge", "--to", nats, "--topic", "orders", "--ensure", "--dead-letter", "/dead"}
	back := []string{"bridge", "--from", nats, "--from-topic", "orders", "--subscription", "orders/back", "--to", rabbit, "--topic", "orders", "--copies", "--ensure"}
	// A run ends with its last message, without waiting for another one. What is there and
	// shouldn't be comes before those of the next run, and is in its numbers.
	done := func(args []string, n int) []string {
		return append(args[:len(args):len(args)], "--drain", "--wait", "30s", "--count", fmt.Sprint(n))
	}

	stdout, stderr := run(0, append(there[:len(there):len(there)], "--drain", "--wait", "100ms")...)
	if !strings.HasPrefix(stderr, "rabbitmq to nats: exactly once, within the window. ") || !strings.HasPrefix(stdout, "moved 0 ") {
		t.Errorf("%s%s", stdout, stderr)
	}
	run(0, "pub", "--url", rabbit, "--topic", "orders", "--id-prefix", "p", "--key", "k", "--header", "a=b", "one", "two")
	if stdout, _ = run(0, done(there, 2)...); !strings.HasPrefix(stdout, "moved 2 (2 stored") {
		t.Error(stdout)
	}
	// The other way: refused without --copies, and nothing goes back with it.
	if _, stderr = run(report.ExitUsage, append(back[:len(back)-2:len(back)-2], "--ensure")...); !strings.Contains(stderr, "--copies says") || strings.Contains(stderr, "--inbox makes none") {
		t.Error(stderr)
	}
	if stdout, stderr = run(0, done(back, 2)...); !strings.HasPrefix(stdout, "moved 0 (") || !strings.Contains(stdout, "2 looped") || !strings.HasPrefix(stderr, "WARNING: there will be copies: nats to rabbitmq: at least once. ") {
		t.Errorf("%s%s", stdout, stderr)
	}
	run(0, "pub", "--url", nats, "--topic", "orders", "--id-prefix", "q", "three")
	if stdout, _ = run(0, done(back, 1)...); !strings.HasPrefix(stdout, "moved 1 (") {
		t.Error(stdout)
	}
	if stdout, _ = run(0, done(there, 1)...); !strings.Contains(stdout, "moved 0 (") || !strings.Contains(stdout, "1 looped") {
		t.Error(stdout)
	}
	stdout, _ = run(0, "sub", "--url", nats, "--subscription", "orders/look", "--topic", "orders", "--ensure", "--json", "--count", "3")
	for _, want := range []string{`"id":"p-1","key":"k","body":"one","headers":[{"key":"a","value":"b"},{"key":"bridge-path","value":"` + strings.NewReplacer(":", "%3A", "/", "%2F").Replace(strings.TrimSuffix(rabbit, "/")) + `%2Forders"}]`, `"id":"q-1"`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %s in %s", want, stdout)
		}
	}

	// What the far side never takes: 2 MiB are too large for it.
	run(0, "pub", "--url", rabbit, "--topic", "orders", "--id-prefix", "large", strings.Repeat("x", 2<<20))
	if _, stderr = run(report.ExitDifference, done(there, 1)...); !strings.Contains(stderr, `stopped: bridge: message "large-1" (key ""): `) || !strings.Contains(stderr, "too large") {
		t.Error(stderr)
	}
	if stdout, stderr = run(report.ExitDifference, append(done(there, 1), "--refused", "dead-letter")...); !strings.Contains(stdout, "1 dead-lettered") {
		t.Error(stdout, stderr)
	}
	run(0, "pub", "--url", rabbit, "--topic", "orders", "--id-prefix", "last", "four")
	if stdout, _ = run(0, done(there, 1)...); !strings.HasPrefix(stdout, "moved 1 (1 stored") || !strings.Contains(stdout, "0 dead-lettered") {
		t.Error(stdout)
	}
}

// TestBridgeThroughDatabase: the messages are in the outbox, and "onceline relay" or the
// bridge itself sends them.
func TestBridgeThroughDatabase(t *testing.T) {
	t.Parallel()
	_, rabbit, nats := bridged(t)
	path := filepath.Join(t.TempDir(), "bridge.db")
	base := []string{"bridge", "--from", rabbit, "--from-topic", "orders", "--subscription", "orders/bridge", "--ensure", "--topic", "far", "--inbox", path, "--drain"}
	empty := []string{"--wait", "100ms"}
	three := []string{"--wait", "30s", "--count", "3"} // ends with the third
	if _, stderr, code := onceline(t.Context(), base...); code != report.ExitUnknown || !strings.Contains(stderr, "no such file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	base = append(base, "--migrate")
	base = base[:len(base):len(base)]
	if stdout, stderr, code := onceline(t.Context(), append(base, empty...)...); code != 0 || !strings.Contains(stderr, "rabbitmq to the outbox of far: exactly once. ") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	pub := []string{"pub", "--url", rabbit, "--topic", "orders", "--id-prefix", "p", "--quiet", "one", "two", "three"}
	for i := range 2 { // RabbitMQ stores them again
		if _, stderr, code := onceline(t.Context(), pub...); code != 0 {
			t.Fatal(stderr)
		}
		want := []string{"moved 3 (3 stored", "moved 3 (0 stored, 3 duplicate"}[i]
		if stdout, stderr, code := onceline(t.Context(), append(base, three...)...); code != 0 || !strings.HasPrefix(stdout, want) || !strings.Contains(stdout, "backlog: 3 waiting") {
			t.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
	}
	if stdout, stderr, code := onceline(t.Context(), "sub", "--url", nats, "--subscription", "far/look", "--topic", "far", "--ensure", "--wait", "50ms"); code != 0 {
		t.Fatal(stdout, stderr)
	}
	// A bridge that has a far side sends what is there already, too.
	stdout, stderr, code := onceline(t.Context(), append(append(base, empty...), "--to", nats)...)
	if code != 0 || !strings.Contains(stderr, "rabbitmq to nats: exactly once, or held. ") || !strings.Contains(stdout, "relay: sent 3 (3 stored") || !strings.Contains(stdout, "backlog: 0 waiting") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if stdout, _, code := onceline(t.Context(), "sub", "--url", nats, "--subscription", "far/look", "--count", "3", "--wait", "1s"); code != 0 || strings.Count(stdout, "\n") != 3 {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

// TestBridgeCopies: what goes to Kafka without an inbox, or around its transactions, is
// announced as copies, and refused unless they are asked for; with an inbox there are none.
func TestBridgeCopies(t *testing.T) {
	t.Parallel()
	stack, err := localstack.Start(t.Context(), localstack.NATSName, localstack.KafkaName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	const warning = "WARNING: there will be copies: nats to kafka: at least once. "
	base := []string{"bridge", "--from", stack.URL(localstack.NATSName), "--from-topic", "orders", "--subscription", "orders/bridge", "--to", stack.URL(localstack.KafkaName), "--topic", "orders", "--ensure"}
	inbox := []string{"--inbox", filepath.Join(t.TempDir(), "bridge.db"), "--migrate"}
	for _, c := range []struct {
		args             []string
		code             int
		begins, contains string
	}{
		{nil, report.ExitUsage, warning, "of a message: --inbox makes none, and --copies says"},
		{[]string{"--copies", "--check"}, 0, warning, "An inbox of the bridge's own (--inbox) makes it exactly once"},
		{append(inbox, "--no-transactions"), report.ExitUsage, warning, "of a message: --copies says"},
		{append(inbox, "--check"), 0, "nats to kafka: exactly once. ", "must read committed messages only"},
	} {
		_, stderr, code := onceline(t.Context(), append(base[:len(base):len(base)], c.args...)...)
		if code != c.code || !strings.HasPrefix(stderr, c.begins) || !strings.Contains(stderr, c.contains) {
			t.Errorf("%v: exit %d: %s", c.args, code, stderr)
		}
	}
}

func TestBridgeUsage(t *testing.T) {
	t.Parallel()
	good := map[string]string{"--from": "mem://bridge-usage", "--subscription": "orders/bridge", "--to": "mem://bridge-usage-far", "--topic": "orders"}
	for _, c := range []struct {
		change string // flags, in place of those above
		code   int
		says   string
	}{
		{"--from=", report.ExitUsage, "no source"},
		{"--subscription=", report.ExitUsage, "--subscription is missing"},
		{"--topic=", report.ExitUsage, "--topic is missing"},
		{"--to=", report.ExitUsage, "nowhere"},
		{"--refused=send", report.ExitUsage, "--refused"},
		{"--late=never", report.ExitUsage, "--late"},
		{"--late=send --inbox=x.db", report.ExitUsage, "holds late messages"},
		{"--ids=hash", report.ExitUsage, "--ids"},
		{"--ensure", report.ExitUsage, "--from-topic"},
		{"--ordered", report.ExitUsage, "for --ensure"},
		{"--schema=x", report.ExitUsage, "for --inbox"},
		{"--wait=1s", report.ExitUsage, "for --drain"},
		{"--no-path --to-place=x", report.ExitUsage, "--no-path"},
		{"--batch=0", report.ExitUsage, "above zero"},
		{"--lanes=65", report.ExitUsage, "from 1 to 64"},
		{"--patience=-1s", report.ExitUsage, "above zero"},
		{"--to=ftp://u:secret@h", report.ExitUsage, "no adapter"},
		{"--to=nats://u:secret@127.0.0.1:1", report.ExitUnknown, "--to"},
		{"--inbox=mysql://u:secret@h/d", report.ExitUnknown, "not found"},
		{"", report.ExitUnknown, "not found"},
	} {
		flags := map[string]string{}
		for k, v := range good {
			flags[k] = v
		}
		for _, f := range strings.Fields(c.change) {
			name, value, ok := strings.Cut(f, "=")
			if !ok {
				value = "true"
			}
			flags[name] = value
		}
		args := []string{"bridge"}
		for k, v := range flags {
			args = append(args, fmt.Sprintf("%s=%s", k, v))
		}
		stdout, stderr, code := onceline(t.Context(), args...)
		if code != c.code || !strings.Contains(stderr, c.says) || stdout != "" || strings.Contains(stderr, "secret") {
			t.Errorf("%s: exit %d: %s%s", c.change, code, stdout, stderr)
		}
	}
}
