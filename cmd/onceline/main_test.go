package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/cmd/onceline/crashes"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/internal/sidebyside"
	"github.com/onceline/onceline/localstack"
)

func TestMain(m *testing.M) {
	runIfCommand()
	localstack.RunIfChild()
	conformance.RunIfWorker(targets.Stores()...)
	crashes.RunIfConsumer()
	sidebyside.Tests(4)
	// A package that Pub/Sub's client imports starts this as it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// onceline runs the program and returns what it printed and its exit code.
func onceline(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err)
	return out.String(), err.String(), code
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string // in stderr
	}{
		{[]string{"nonsense"}, report.ExitUsage, "unknown command"},
		{[]string{"verify", "--nonsense"}, report.ExitUsage, "See 'onceline verify --help'"},
		{[]string{"verify", "extra"}, report.ExitUsage, "did you mean: onceline verify --broker extra"},
		{[]string{"verify", "--broker", "pulsar"}, report.ExitUsage, "there are: sqs-standard"},
		{[]string{"verify", "--claim", "nothing.*", "--broker", "memory"}, report.ExitUsage, "no claim matches"},
		{[]string{"verify", "--claim", "[", "--broker", "memory"}, report.ExitUsage, "syntax error"},
		{[]string{"verify", "--parallel", "0"}, report.ExitUsage, "above zero"},
		{[]string{"verify", "--target", "ftp://user:secret@x"}, report.ExitUsage, "known scheme"},
		{[]string{"verify", "--target", "nats://x", "--broker", "nats"}, report.ExitUsage, "one of the two"},
		{[]string{"verify", "--broker", "kafka-group-local"}, report.ExitUsage, "--broker kafka-group-local is asked with --local"},
		{[]string{"verify", "--broker", "nats-compose"}, report.ExitUsage, "--broker nats-compose is asked with --compose"},
		{[]string{"verify", "--servers", "1", "--broker", "memory"}, report.ExitUsage, "give both"},
		{[]string{"verify", "--embedded=false"}, report.ExitUsage, "give both"},
		{[]string{"verify", "--local", "--embedded=false", "--broker", "sqs-fifo"}, report.ExitUsage, "there is no such broker"},
		{[]string{"help", "nonsense"}, report.ExitUsage, `there is no command "nonsense"`},
		{[]string{"help", "relay", "nonsense"}, report.ExitUsage, `there is no command "relay nonsense"`},
		{[]string{"explain"}, report.ExitUsage, "accepts 1 arg"},
		{[]string{"explain", "pulsar"}, report.ExitUsage, "no such broker"},
	} {
		args := append([]string{}, c.args...)
		if args[0] == "verify" {
			args = append(args, "--out", t.TempDir())
		}
		stdout, stderr, code := onceline(t.Context(), args...)
		if code != c.code || !strings.Contains(stderr, c.says) || stdout != "" {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", c.args, code, stdout, stderr)
		}
		if strings.Contains(stderr, "secret") {
			t.Errorf("%v: the password is shown: %s", c.args, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	if stdout, _, code := onceline(t.Context(), "help", "urls"); code != 0 || !strings.Contains(stdout, "servicebus://") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	for _, args := range [][]string{{}, {"--help"}, {"verify", "--help"}, {"up", "--help"}, {"pub", "--help"}, {"sub", "--help"}, {"relay", "--help"}, {"relay", "held", "--help"}, {"bridge", "--help"}, {"size", "--help"}, {"explain", "--help"}, {"claims", "--help"}, {"version", "--help"}} {
		stdout, stderr, code := onceline(t.Context(), args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%v: exit %d: %s%s", args, code, stdout, stderr)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, _, code := onceline(t.Context(), "completion", shell); code != 0 || len(stdout) < 100 {
			t.Errorf("completion %s: exit %d", shell, code)
		}
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	stdout, _, code := onceline(t.Context(), "claims", "--json")
	var cs []struct {
		Claim    string
		Hop      int
		Question string
		Answers  []string
		Meaning  string
	}
	if err := json.Unmarshal([]byte(stdout), &cs); err != nil || code != 0 {
		t.Fatalf("exit %d: %v", code, err)
	}
	if len(cs) != len(conformance.Claims()) || cs[0].Claim == "" || cs[0].Question == "" || len(cs[0].Answers) < 2 {
		t.Errorf("%d claims, first %+v", len(cs), cs[0])
	}
	stdout, _, _ = onceline(t.Context(), "claims")
	for _, c := range cs {
		if !strings.Contains(stdout, c.Claim+"\n") || !strings.Contains(stdout, c.Question) {
			t.Errorf("%s is missing", c.Claim)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	stdout, _, code := onceline(t.Context(), "explain", "kafka")
	if code != 0 || !strings.Contains(stdout, "kafka-group: ") || !strings.Contains(stdout, "kafka-share: ") ||
		!strings.Contains(stdout, "settle.stale: refused") || !strings.Contains(stdout, "sources: KAF-F-") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	stdout, _, code = onceline(t.Context(), "explain", "nats", "--json")
	var m map[string]struct{ Broker string }
	if err := json.Unmarshal([]byte(stdout), &m); err != nil || code != 0 || m["nats"].Broker != "nats" {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if stdout, _, code := onceline(t.Context(), "version"); code != 0 || !strings.HasPrefix(stdout, "onceline ") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "report")
	stdout, stderr, code := onceline(t.Context(), "verify", "--broker", "memory", "--seed", "5", "--out", dir)
	if code != 0 || !strings.Contains(stdout, "publish.dedup.window") || !strings.Contains(stderr, "seed 5") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	for _, name := range []string{"index.html", "report.json", "report.md", "junit.xml"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := report.ReadJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Summary; r.Seed != 5 || s.Equal < 40 || s.Equal+s.NotApplicable+s.NotVerifiable != len(conformance.Claims()) || r.Summary.Killed < 5 ||
		r.Command != "onceline verify --broker memory --seed 5" {
		t.Errorf("seed %d, %q, %+v", r.Seed, r.Command, r.Summary)
	}
}

func TestVerifyJSON(t *testing.T) {
	t.Parallel()
	stdout, _, code := onceline(t.Context(), "verify", "--broker", "memory", "--claim", "publish.dedup.*", "--json", "--out", t.TempDir())
	r, err := report.ReadJSON(strings.NewReader(stdout))
	if err != nil || code != 0 {
		t.Fatalf("exit %d: %v", code, err)
	}
	if len(r.Targets[0].Findings) != r.Summary.Equal || len(r.Mutants) != 0 {
		t.Errorf("%+v", r.Summary)
	}
}

func TestVerifyUnreachable(t *testing.T) {
	t.Parallel()
	// Port 9 of this machine: nobody listens. The hosts are one target's.
	stdout, _, code := onceline(t.Context(), "verify", "--target", "nats://127.0.0.1:9,127.0.0.1:9", "--claim", "settle.answer", "--json", "--out", t.TempDir())
	r, err := report.ReadJSON(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if code != report.ExitUnknown || len(r.Targets) != 1 || r.Targets[0].Error == "" {
		t.Errorf("exit %d: %+v", code, r.Targets[0])
	}
}

// A folder that can't be written to is found before the run, not after it.
func TestVerifyOut(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(file, "report")
	stdout, stderr, code := onceline(t.Context(), "verify", "--broker", "memory", "--out", dir)
	if code != report.ExitUnknown || stdout != "" || !strings.Contains(stderr, "--out "+dir) || strings.Contains(stderr, "starting") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// The result is printed even if its files can't be written any more.
func TestVerifyShowsFirst(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	f := verifyFlags{out: file, json: true}
	if err := f.show(&out, &errs, &report.Report{Schema: report.Schema, Seed: 7}); err == nil || !strings.Contains(out.String(), `"seed": 7`) {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestVerifyUndecidedMutants(t *testing.T) {
	t.Parallel()
	equal := report.Target{Name: "memory", Findings: []report.Finding{{Claim: "settle.answer", Verdict: report.Equal}}}
	lives := []report.Mutant{{Name: "hides"}}
	for _, c := range []struct {
		name      string
		mutants   []report.Mutant
		undecided error
		want      int
	}{
		{"all decided", nil, nil, report.ExitEqual},
		{"one undecided", nil, errors.New("a probe failed"), report.ExitUnknown},
		{"one lives, one undecided", lives, errors.New("a probe failed"), report.ExitDifference},
	} {
		r := &report.Report{Targets: []report.Target{equal}, Mutants: c.mutants}
		if summarise(r, c.undecided); r.Summary.Exit != c.want {
			t.Errorf("%s: exit %d, want %d", c.name, r.Summary.Exit, c.want)
		}
	}
}

func TestVerifyInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	_, stderr, code := onceline(ctx, "verify", "--broker", "memory", "--out", dir)
	if code != report.ExitUnknown {
		t.Errorf("exit %d", code)
	}
	if strings.Count(stderr, "interrupted: cleaning up; interrupt again to stop at once\n") != 1 {
		t.Errorf("the interrupt is told once: %q", stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		t.Errorf("an interrupted run still writes what it has: %v", err)
	}
}

// TestFullOutput: what could not be printed is said, by each command that prints, and is
// no success.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err) // Linux has it
	}
	defer full.Close()
	history := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(history, []byte(`{"at":1,"kind":"delivery","id":"a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"claims"}, {"claims", "--json"}, {"explain", "nats"}, {"explain", "nats", "--json"}, {"check", history}, {"check", "--json", history}, {"diff", "nats", "kafka-group"},
		{"targets"}, {"size", "--rate", "1", "--window", "1h"}, {"audit", "--caught", "1", "--retries", "1"}, {"version"}, {"help"}, {"verify", "--help"}, {"completion", "bash"},
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, full, &stderr); code != report.ExitUnknown || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%v: exit %d: %s", args, code, stderr.String())
		}
		if n := strings.Count(stderr.String(), "no space left"); n != 1 {
			t.Errorf("%v: it is said %d times: %s", args, n, stderr.String())
		}
	}
}

// TestExitCodes: the help says what they mean for all commands, and each command that has
// some of its own says so in the same words.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	stdout, _, code := onceline(t.Context(), "help")
	for _, want := range []string{"Exit codes, of all commands:", "\n  0 ", "\n  1 ", "\n  2 ", "\n  3 "} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, %q is missing: %s", code, want, stdout)
		}
	}
	for _, name := range []string{"verify", "audit", "check", "diff", "discover", "mutants", "pub", "sub", "relay", "size", "up"} {
		stdout, _, _ := onceline(t.Context(), "help", name)
		if !strings.Contains(stdout, "Exit codes: 0 ") || !strings.Contains(stdout, "2 a wrong") {
			t.Errorf("%s: %s", name, stdout)
		}
	}
}

// TestNamesOfAllTargets: what can be asked can be looked up.
func TestNamesOfAllTargets(t *testing.T) {
	t.Parallel()
	for _, name := range append(targets.Names(targets.Compose()), targets.Local(nil)[0].Name) {
		if stdout, stderr, code := onceline(t.Context(), "explain", name); code != 0 || !strings.Contains(stdout, "Hop 2") {
			t.Errorf("explain %s: exit %d: %s", name, code, stderr)
		}
	}
	if _, stderr, code := onceline(t.Context(), "diff", targets.Compose()[0].Name, "nats"); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
	// The notes are for people: no markup of doc comments.
	for _, c := range targets.Known() {
		for id, e := range c.Boundary.Entries {
			if at := docLink.FindString(e.Note); at != "" {
				t.Errorf("%s, %s: %s", c.Name, id, at)
			}
		}
		for name, l := range c.Boundary.Limits {
			if at := docLink.FindString(l.Note); at != "" {
				t.Errorf("%s, %s: %s", c.Name, name, at)
			}
		}
	}
}

// docLink is a link of a doc comment.
var docLink = regexp.MustCompile(`\[[A-Za-z.]+\]`)
