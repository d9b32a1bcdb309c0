package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suite is the module's tests as a program.
type suite struct {
	dir string // the copy of the module that they run in
	env []string
}

// build compiles the tests of the module, in the version that this project uses,
// in a copy of its source.
func build(ctx context.Context, dir string) (*suite, error) {
	out, err := command(ctx, ".", os.Environ(), "go", "mod", "download", "-json", module)
	if err != nil {
		return nil, err
	}
	var source struct{ Dir string }
	if err := json.Unmarshal(out, &source); err != nil {
		return nil, err
	}
	if err := errors.Join(os.CopyFS(dir, os.DirFS(source.Dir)), patch(filepath.Join(dir, "internal", "utils", "http.go"))); err != nil {
		return nil, fmt.Errorf("copy %s: %w", source.Dir, err)
	}
	s := &suite{dir: dir}
	for _, v := range os.Environ() {
		// A server's own rabbitmqctl is for neither broker here: see the table.
		if name, _, _ := strings.Cut(v, "="); name != "RABBITMQ_RABBITMQCTL_PATH" {
			s.env = append(s.env, v)
		}
	}
	_, err = command(ctx, dir, append(s.env, "GOWORK=off", "GOFLAGS=-mod=mod"), "go", "test", "-c", "-tags", "integration", "-o", program, ".")
	return s, err
}

// program is the file of the compiled tests.
const program = "amqp091.test"

// patch leads the tests' management calls, whose address and user are fixed, to
// what managementURL says.
func patch(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for from, to := range map[string]string{
		`"net/http"`:                           `"net/http"; "os"`,
		`"http://localhost:15672/`:             `os.Getenv("` + managementURL + `")+"/`,
		`"http://localhost:"+port+"/`:          `os.Getenv("` + managementURL + `")+"/`,
		`req.SetBasicAuth(username, password)`: ``, // net/http takes them from the URL
	} {
		if n := bytes.Count(text, []byte(from)); n != 1 {
			return fmt.Errorf("%s has %s %d times, expected once", file, from, n)
		}
		text = bytes.Replace(text, []byte(from), []byte(to), 1)
	}
	return os.WriteFile(file, text, 0o644)
}

// managementURL is the variable that has the management interface's URL.
const managementURL = "ONCELINE_MANAGEMENT_URL"

// list returns the names of the tests and examples that match a pattern.
func (s *suite) list(ctx context.Context, pattern string) ([]string, error) {
	out, err := command(ctx, s.dir, s.env, filepath.Join(s.dir, program), "-test.list", pattern)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Test") || strings.HasPrefix(line, "Example") {
			names = append(names, strings.TrimSpace(line))
		}
	}
	return names, nil
}

// result is how a test ended, and what it said.
type result struct {
	outcome outcome
	output  string
}

// test runs tests and returns how each of them ended, by its name, and how all of
// it did, by the name "". A line tells of each test that takes its time or doesn't
// pass.
func (s *suite) test(ctx context.Context, b *broker, tests []string) (map[string]result, error) {
	quoted := make([]string, len(tests))
	for i, t := range tests {
		quoted[i] = regexp.QuoteMeta(t)
	}
	// test2json reads what the tests say: were it their parent, they would outlive it.
	run := exec.CommandContext(ctx, filepath.Join(s.dir, program),
		"-test.v=test2json", "-test.timeout="+b.patience.String(), "-test.run=^("+strings.Join(quoted, "|")+")$")
	run.Dir = s.dir
	run.Env = append(slices.Clip(s.env), "AMQP_URL="+b.url, managementURL+"="+b.management)
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t")
	convert.Stderr = os.Stderr
	events, err := convert.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, words, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	convert.Stdin, run.Stdout, run.Stderr = said, words, words
	err = errors.Join(convert.Start(), run.Start())
	_, _ = said.Close(), words.Close()
	if err != nil {
		return nil, err
	}
	got := follow(events)
	ended := run.Wait()
	var exit *exec.ExitError
	if err := errors.Join(convert.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	all := result{pass, got[""].output}
	if errors.As(ended, &exit) {
		all.outcome = fail
	} else if ended != nil {
		return nil, ended
	}
	got[""] = all
	return got, nil
}

// follow reads the events that test2json makes of the tests' output.
func follow(events io.Reader) map[string]result {
	got, said := map[string]result{}, map[string]string{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		name, _, sub := strings.Cut(e.Test, "/")
		switch e.Action {
		case "output":
			said[name] += e.Output
		case "pass", "fail", "skip":
			if name == "" || sub {
				continue
			}
			got[name] = result{outcome(e.Action), said[name]}
			if e.Action != "pass" || e.Elapsed >= 1 {
				fmt.Printf("%s %s (%.1f s)\n", e.Action, name, e.Elapsed)
			}
		}
	}
	for name, words := range said {
		if _, ended := got[name]; !ended { // all of them together, and one that a panic has cut short
			got[name] = result{output: words}
		}
	}
	return got
}

// command runs a command and returns what it says.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", cmd, err, out, stderr.Bytes())
	}
	return out, err
}
