package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack"
)

// withInput runs the program with a standard input.
func withInput(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetIn(stdin)
	code = execute(ctx, root, args, &out, &errs)
	return out.String(), errs.String(), code
}

// startNATS returns the URL of a broker of the test's own.
func startNATS(t *testing.T) string {
	t.Helper()
	e, err := localstack.StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e.URL()
}

func TestPubSub(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	sub := []string{"sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure"}
	if stdout, stderr, code := onceline(t.Context(), append(sub, "--wait", "100ms")...); code != 0 || stdout != "" || stderr != "" {
		t.Fatalf("nothing to receive: exit %d: %s%s", code, stdout, stderr)
	}

	// Lines: a second run with the same prefix stores nothing again.
	pub := []string{"pub", "--url", url, "--topic", "orders", "--id-prefix", "p", "--header", "a=b=c"}
	for _, verdict := range []string{"Stored", "Duplicate"} {
		stdout, stderr, code := withInput(t.Context(), strings.NewReader("one\n\nthree"), pub...)
		if code != 0 || stderr != "" || strings.Count(stdout, verdict) != 3 || !strings.Contains(stdout, "p-3 at 3\n") {
			t.Fatalf("%s: exit %d: %s%s", verdict, code, stdout, stderr)
		}
	}
	// Bodies of the command line, with a prefix of their own that is told.
	stdout, stderr, code := onceline(t.Context(), "pub", "--url", url, "--topic", "orders", "--key", "k", "four", "five")
	if code != 0 || strings.Count(stdout, "Stored") != 2 || !strings.Contains(stderr, "--id-prefix") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}

	// Looked at, they stay; then all of them as JSON.
	if stdout, stderr, code := onceline(t.Context(), append(sub, "--count", "1", "--settle", "none")...); code != 0 || stdout != "one\n" || stderr != "" {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	stdout, stderr, code = onceline(t.Context(), append(sub, "--count", "5", "--json", "-v")...)
	if code != 0 || strings.Count(stderr, "Confirmed") != 5 {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	seen := map[string]line{}
	for _, text := range strings.Split(strings.TrimSpace(stdout), "\n") {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		seen[l.Body] = l
	}
	if l := seen["three"]; l.ID != "p-3" || l.Headers[0].Key != "a" || l.Headers[0].Value != "b=c" || l.Attempt < 1 || l.Position == nil || l.Lease == nil || l.Time == nil {
		t.Errorf("%+v", l)
	}
	if l := seen["one"]; l.Attempt != 2 {
		t.Errorf("looked at before: attempt %d", l.Attempt)
	}
	if seen["four"].Key != "k" || len(seen) != 5 {
		t.Errorf("%+v", seen)
	}

	// What sub prints, pub reads.
	again, stderr, code := withInput(t.Context(), strings.NewReader(stdout), "pub", "--url", url, "--topic", "copies", "--ensure", "--json")
	if code != 0 || stderr != "" || strings.Count(again, `"verdict":"Stored"`) != 5 || !strings.Contains(again, `"id":"p-3"`) {
		t.Errorf("exit %d: %s%s", code, again, stderr)
	}
}

func TestPubRefused(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	stdout, stderr, code := withInput(t.Context(), strings.NewReader(`{"id":"1","body":"a"}`+"\n\n"+`{"body":"no ID"}`+"\n"),
		"pub", "--url", url, "--topic", "orders", "--ensure", "--json", "--quiet")
	if code != report.ExitDifference || stderr != "" || strings.Count(stdout, "\n") != 1 || !strings.Contains(stdout, `"verdict":"Refused"`) || !strings.Contains(stdout, "no ID") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	for input, says := range map[string]string{
		`{"id":"1","boddy":"a"}`:                      "unknown field",
		`{"id":"1"} {"id":"2"}`:                       "more than one",
		`{"id":"1","body":"a","body_base64":"aGk="}`:  "both body",
		`{"id":"2","headers":[{"key":"a","value":1}]`: "line 1",
	} {
		stdout, stderr, code := withInput(t.Context(), strings.NewReader(input), "pub", "--url", url, "--topic", "orders", "--json")
		if code != report.ExitUsage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit %d: %s%s", input, code, stdout, stderr)
		}
	}
}

func TestPubSubUsage(t *testing.T) {
	t.Setenv(urlEnv, "")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"pub", "x"}, report.ExitUsage, "--topic"},
		{[]string{"pub", "--topic", "t", "x"}, report.ExitUsage, urlEnv},
		{[]string{"pub", "--topic", "t", "--url", "ftp://user:secret@x", "x"}, report.ExitUsage, "no adapter"},
		{[]string{"pub", "--topic", "t", "--url", "nats://127.0.0.1:9?nonsense=1", "x"}, report.ExitUsage, "nonsense"},
		{[]string{"pub", "--topic", "t", "--url", "nats://127.0.0.1:9", "x"}, report.ExitUnknown, "unavailable"},
		{[]string{"pub", "--topic", "t", "--url", "nats://x", "--header", "a", "x"}, report.ExitUsage, "NAME=VALUE"},
		{[]string{"pub", "--topic", "t", "--url", "nats://x", "--json", "--id-prefix", "a"}, report.ExitUsage, "own id"},
		{[]string{"sub", "--url", "nats://x"}, report.ExitUsage, "--subscription"},
		{[]string{"sub", "--url", "nats://x", "--subscription", "s", "--settle", "eat"}, report.ExitUsage, "dead-letter or none"},
		{[]string{"sub", "--url", "nats://x", "--subscription", "s", "--ensure"}, report.ExitUsage, "--topic"},
		{[]string{"sub", "--url", "nats://x", "--subscription", "s", "--delay", "1s"}, report.ExitUsage, "--settle nack"},
		{[]string{"sub", "--url", "nats://127.0.0.1:9", "--subscription", "s/c"}, report.ExitUnknown, "unavailable"},
	} {
		stdout, stderr, code := onceline(t.Context(), c.args...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "secret") {
			t.Errorf("%v: exit %d: %s%s", c.args, code, stdout, stderr)
		}
	}
}

func TestSubNotFound(t *testing.T) {
	t.Parallel()
	_, stderr, code := onceline(t.Context(), "sub", "--url", startNATS(t), "--subscription", "NO/c")
	if code != report.ExitUnknown || !strings.Contains(stderr, "not found") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestFollowEndsWithInterrupt: what was printed is settled, and the end is no
// failure. pub with an input that never ends stops too.
func TestFollowEndsWithInterrupt(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sub := []string{"sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure"}
	if _, stderr, code := onceline(t.Context(), append(sub, "--wait", "100ms")...); code != 0 {
		t.Fatal(stderr)
	}
	in, feed := io.Pipe()
	ended := make(chan string, 1)
	go func() {
		_, stderr, code := withInput(ctx, in, "pub", "--url", url, "--topic", "orders", "--id-prefix", "p")
		ended <- fmt.Sprint(code, stderr)
	}()
	if _, err := io.WriteString(feed, "one\n"); err != nil {
		t.Fatal(err)
	}
	first := newNotify()
	subEnded := make(chan int, 1)
	go func() { subEnded <- run(ctx, append(sub, "--follow"), first, io.Discard) }()
	select {
	case <-first.written:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
	cancel()
	if code := <-subEnded; code != 0 {
		t.Errorf("sub: exit %d", code)
	}
	if s := <-ended; !strings.HasPrefix(s, fmt.Sprint(report.ExitUnknown)) {
		t.Errorf("pub: %s", s)
	}
	feed.Close() // lets pub's reader go
	if stdout, _, code := onceline(t.Context(), append(sub, "--wait", "100ms")...); code != 0 || stdout != "" {
		t.Errorf("exit %d: it came again: %s", code, stdout)
	}
}

// notify is a writer that tells of the first write.
type notify struct{ written chan struct{} }

func newNotify() *notify { return &notify{make(chan struct{}, 1)} }

func (n *notify) Write(b []byte) (int, error) {
	select {
	case n.written <- struct{}{}:
	default:
	}
	return len(b), nil
}

// TestSubPrintsBeforeItSettles: what can't be printed isn't settled.
func TestSubPrintsBeforeItSettles(t *testing.T) {
	t.Parallel()
	bubbletest.Run(t, func(t *testing.T) {
		b := memory.New()
		defer b.Close()
		c := b.Conn()
		defer c.Close(t.Context())
		if err := c.Ensure(t.Context(), broker.Entity{Topic: "t", Subscription: "t/s"}); err != nil {
			t.Fatal(err)
		}
		p, err := c.OpenPublisher(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), broker.Message{ID: "1", Body: []byte{0xff}}); err != nil {
			t.Fatal(err)
		}
		f := subFlags{subscription: "t/s", settle: "ack", batch: 10, wait: time.Second, json: true}
		r, err := c.OpenReceiver(t.Context(), "t/s")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.receive(t.Context(), r, broken{}, io.Discard); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err = c.OpenReceiver(t.Context(), "t/s"); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if failed, err := f.receive(t.Context(), r, &out, io.Discard); failed != 0 || err != nil || !strings.Contains(out.String(), `"body_base64":"/w=="`) {
			t.Errorf("%d, %v: %s", failed, err, out.String())
		}
		m, err := parseLine(bytes.TrimSpace(out.Bytes()))
		if err != nil || m.ID != "1" || !bytes.Equal(m.Body, []byte{0xff}) {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestPubOldEvents: the time of a message that is read says nothing of the window.
func TestPubOldEvents(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	in := strings.NewReader(`{"id":"1","body":"a","time":"2020-01-02T03:04:05Z"}` + "\n")
	stdout, stderr, code := withInput(t.Context(), in, "pub", "--url", url, "--topic", "orders", "--ensure", "--json")
	if code != 0 || !strings.Contains(stdout, `"verdict":"Stored"`) {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// TestSubDeadLetters: the wishes of --ensure reach the broker.
func TestSubDeadLetters(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	sub := []string{"sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure", "--dead-letter", "dead", "--lease", "20s"}
	if _, stderr, code := onceline(t.Context(), append(sub, "--wait", "10ms")...); code != 0 {
		t.Fatal(stderr)
	}
	if _, stderr, code := onceline(t.Context(), "pub", "--url", url, "--topic", "orders", "poison"); code != 0 {
		t.Fatal(stderr)
	}
	if stdout, stderr, code := onceline(t.Context(), append(sub, "--count", "1", "--settle", "dead-letter", "--reason", "bad")...); code != 0 || stdout != "poison\n" {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	stdout, stderr, code := onceline(t.Context(), "sub", "--url", url, "--subscription", "dead/c", "--topic", "dead", "--ensure", "--count", "1", "--json")
	if code != 0 || !strings.Contains(stdout, `"body":"poison"`) || !strings.Contains(stdout, "bad") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	// A clash and a name that can't be are errors of the command line.
	if _, stderr, code := onceline(t.Context(), append(sub[:7:7], "--ensure", "--lease", "30s", "--wait", "10ms")...); code != report.ExitUsage || !strings.Contains(stderr, "conflict") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := onceline(t.Context(), "sub", "--url", url, "--subscription", "nostream"); code != report.ExitUsage || !strings.Contains(stderr, "invalid") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestSubWarnsOfIDs: IDs that are hashes of their bodies are told of, and no other.
func TestSubWarnsOfIDs(t *testing.T) {
	t.Parallel()
	url := startNATS(t)
	var input strings.Builder
	for n := range 5 {
		body := fmt.Sprint("body ", n)
		fmt.Fprintf(&input, "{\"id\": \"%x\", \"body\": %q}\n", sha256.Sum256([]byte(body)), body)
	}
	input.WriteString(`{"id": "order-1:paid:v1", "body": "body 0"}`)
	sub := []string{"sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure", "--wait", "100ms"}
	if _, stderr, code := onceline(t.Context(), sub...); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if _, stderr, code := withInput(t.Context(), strings.NewReader(input.String()), "pub", "--url", url, "--topic", "orders", "--json"); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	stdout, stderr, code := onceline(t.Context(), append(sub, "--count", "6", "--wait", "10s")...)
	if code != 0 || strings.Count(stdout, "body") != 6 || strings.Count(stderr, "the SHA-256 of the body") != 3 || !strings.Contains(stderr, "2 more messages") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
