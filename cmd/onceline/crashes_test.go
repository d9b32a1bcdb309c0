package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/onceline/onceline/cmd/onceline/crashes"
	"github.com/onceline/onceline/conformance/report"
)

func TestCrashes(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := onceline(t.Context(), "crashes", "--store", "sqlite inbox", "--broker", "rabbitmq", "--point", "after c*", "--what", "kill", "--right-only", "-v")
	if code != report.ExitEqual || !strings.Contains(stdout, "sqlite inbox  rabbitmq  kill") || !strings.Contains(stdout, "2 of 2 cells as promised, 0 don't apply; 0 of 0 wrong stores seen; 400 messages") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if !strings.Contains(stderr, "sqlite inbox, rabbitmq, kill after claim: once (") || !strings.Contains(stderr, "2 of 2 cells, 0 misses") {
		t.Errorf("%s", stderr)
	}
}

func TestCrashesUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--store", "oracle"}, "there is none like that; there are: sqlite inbox"},
		{[]string{"--store", "["}, "syntax error"},
		{[]string{"--broker", "kafka"}, "there are: nats, rabbitmq"},
		{[]string{"--point", "later"}, "before claim"},
		{[]string{"--what", "rain"}, "kill, freeze"},
		{[]string{"--require", "oracle"}, "there is no such server; there are: postgres, mariadb, redis"},
		{[]string{"--parallel", "0"}, "above zero"},
		{[]string{"--wrong-only", "--right-only"}, "leave nothing"},
		{[]string{"--wrong-only", "--store", "sqlite inbox"}, "leave no cell"},
		{[]string{"extra"}, "extra"},
	} {
		stdout, stderr, code := onceline(t.Context(), append([]string{"crashes"}, c.args...)...)
		if code != report.ExitUsage || !strings.Contains(stderr, c.says) || stdout != "" {
			t.Errorf("%v: exit %d: %s%s", c.args, code, stdout, stderr)
		}
	}
	stdout, _, code := onceline(t.Context(), "crashes", "--list")
	if code != 0 || !strings.Contains(stdout, "postgres position") || !strings.Contains(stdout, "redis: unfenced DEL") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	// What can't be asked is no pass.
	if stdout, _, code = onceline(t.Context(), "crashes", "--store", "sqlite inbox", "--what", "restart"); code != report.ExitUnknown || !strings.Contains(stdout, "0 of 0 cells as promised, 14 don't apply") {
		t.Errorf("exit %d: %s", code, stdout)
	}
}

// TestCrashesConclude: what isn't as promised ends the command by 1, what couldn't be
// asked although it was required by 3.
func TestCrashesConclude(t *testing.T) {
	t.Parallel()
	cell := crashes.Cell{Store: "redis lease", Broker: crashes.NATS, Point: crashes.AfterClaim, Disturbance: crashes.Kill}
	good := crashes.Round{ID: "m", Effects: crashes.Once, Times: 1, OK: true}
	bad := crashes.Round{ID: "m", Effects: crashes.Twice, Times: 2, Wanted: "once"}
	rounds := func(rs ...crashes.Round) *crashes.Result { return &crashes.Result{Cell: cell, Rounds: rs} }
	wrong := func(r *crashes.Result, shows crashes.Seen) *crashes.WrongResult {
		return &crashes.WrongResult{Result: r, Shows: shows}
	}
	fine := rounds(good, good, good)
	other := rounds(good, good, good)
	other.Others = []string{"n 0 times"}
	failed := rounds(good)
	failed.Err = errors.New("the broker burns")
	for _, c := range []struct {
		r    crashes.Report
		code int
		says string
	}{
		{crashes.Report{Results: []*crashes.Result{fine}}, report.ExitEqual, "1 of 1 cells as promised"},
		{crashes.Report{Results: []*crashes.Result{fine, rounds(good, bad, good)}}, report.ExitDifference, "round 2: m took place 2 times; wanted: once"},
		{crashes.Report{Results: []*crashes.Result{rounds(good, good)}}, report.ExitDifference, "0 of 1 cells"},
		{crashes.Report{Results: []*crashes.Result{other}}, report.ExitDifference, "undisturbed: n 0 times"},
		{crashes.Report{Results: []*crashes.Result{failed}}, report.ExitDifference, "the broker burns"},
		{crashes.Report{Wrong: []*crashes.WrongResult{wrong(rounds(good, bad, good), crashes.Twice)}}, report.ExitEqual, "1 of 1 wrong stores seen"},
		{crashes.Report{Wrong: []*crashes.WrongResult{wrong(fine, crashes.Twice)}}, report.ExitDifference, "a wrong store of which nothing is seen"},
		{crashes.Report{Wrong: []*crashes.WrongResult{wrong(rounds(bad), crashes.Never)}}, report.ExitDifference, "0 of 1 wrong stores seen"},
		{crashes.Report{Results: []*crashes.Result{fine}, Absent: map[string]string{"redis": "there is none"}}, report.ExitEqual, "not asked, without a server: redis: there is none"},
		{crashes.Report{Results: []*crashes.Result{fine}, Absent: map[string]string{"mariadb": "there is none"}}, report.ExitUnknown, "exit 3"},
		{crashes.Report{}, report.ExitUnknown, "0 of 0 cells"},
	} {
		var out bytes.Buffer
		err := (&crashesFlags{require: []string{"mariadb"}}).conclude(&out, &c.r)
		var code exitCode
		if errors.As(err, &code); int(code) != c.code || (err == nil) != (c.code == 0) || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v, want %d and %q: %s", err, c.code, c.says, out.String())
		}
	}
}
