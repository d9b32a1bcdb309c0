package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

func TestMutantsOfABroker(t *testing.T) {
	t.Parallel()
	want := 0
	for _, b := range targets.Mutants() {
		if b.Broker == "pubsub" {
			want += len(b.Mutants)
		}
	}
	stdout, stderr, code := onceline(t.Context(), "mutants", "--broker", "pubsub", "--seed", "7")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != report.ExitEqual || len(lines) != want+1 || want < 3 {
		t.Fatalf("exit %d, %d lines for %d mutants: %s%s", code, len(lines), want, stdout, stderr)
	}
	for _, line := range lines[:want] {
		if !strings.HasPrefix(line, "✓ killed ") || !strings.Contains(line, " pubsub") || !strings.Contains(line, " instead of ") {
			t.Errorf("%q", line)
		}
	}
	if !strings.HasPrefix(lines[want], fmt.Sprintf("%d of %d mutants killed; seed 7, ", want, want)) || !strings.HasSuffix(lines[want], ", exit 0") {
		t.Errorf("%q", lines[want])
	}
}

func TestMutantsJSON(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := onceline(t.Context(), "mutants", "--broker", "servicebus-sessions", "--json")
	var s score
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != report.ExitEqual {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	if s.Tried != 1 || s.Killed != 1 || s.Seed == 0 || len(s.Mutants) != 1 {
		t.Fatalf("%+v", s)
	}
	if m := s.Mutants[0]; !m.Killed || m.On != "servicebus-sessions" || m.Declared == m.Observed || m.Observed != string(m.Expected) || m.Reason == "" || m.Does == "" {
		t.Errorf("%+v", m)
	}
}

func TestMutantsList(t *testing.T) {
	t.Parallel()
	stdout, _, code := onceline(t.Context(), "mutants", "--list")
	for _, m := range conformance.AllMutants() {
		if !strings.Contains(stdout, "\n"+m.Name+" (") && !strings.HasPrefix(stdout, m.Name+" (") || !strings.Contains(stdout, m.Does) {
			t.Errorf("%s isn't listed", m.Name)
		}
	}
	if code != report.ExitEqual || strings.Contains(stdout, "killed;") {
		t.Errorf("exit %d", code)
	}
	stdout, _, code = onceline(t.Context(), "mutants", "--list", "--json")
	var list []mutantLine
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != report.ExitEqual || len(list) != len(conformance.AllMutants()) {
		t.Errorf("exit %d, %v, %d", code, err, len(list))
	}
}

func TestMutantsUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--broker", "pulsar"}, {"--timeout", "0s"}, {"--parallel", "0"}, {"memory"}} {
		if _, stderr, code := onceline(t.Context(), append([]string{"mutants"}, args...)...); code != report.ExitUsage || stderr == "" {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}

func TestMutantsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stdout, _, code := onceline(ctx, "mutants", "--broker", "memory")
	if code != report.ExitUnknown || !strings.HasPrefix(stdout, "0 of ") || !strings.Contains(stdout, "mutants killed, "+strings.Fields(stdout)[2]+" not decided; ") {
		t.Errorf("exit %d: %q", code, stdout)
	}
}

// A survivor counts for more than one that nobody could decide.
func TestMutantsScore(t *testing.T) {
	t.Parallel()
	m := conformance.Mutant{Name: "hides", Layer: "settle", Claim: boundary.SettleFinal}
	killed := conformance.Trial{Mutant: m, Target: "memory", Declared: "final", Observed: "redelivered", Killed: true}
	lives := conformance.Trial{Mutant: m, Target: "memory", Declared: "final", Observed: "final", Reason: "nothing came"}
	unclear := conformance.Trial{Mutant: m, Target: "memory", Err: errors.New("the probe failed")}
	for _, c := range []struct {
		trials []conformance.Trial
		tried  int
		exit   int
		line   string // the last trial's
		score  string
	}{
		{[]conformance.Trial{killed}, 1, report.ExitEqual, "settle.final: redelivered instead of final", "1 of 1 mutants killed; "},
		{[]conformance.Trial{killed, lives}, 2, report.ExitDifference, "settle.final: final all the same: nothing came", "1 of 2 mutants killed, 1 survived; "},
		{[]conformance.Trial{killed, unclear}, 2, report.ExitUnknown, "settle.final: the probe failed", "1 of 2 mutants killed, 1 not decided; "},
		{[]conformance.Trial{unclear, lives}, 3, report.ExitDifference, "▼ survived", "0 of 3 mutants killed, 1 survived, 2 not decided; "},
		{nil, 0, report.ExitUnknown, "", "0 of 0 mutants killed; "},
	} {
		s := score{Tried: c.tried}
		for _, x := range c.trials {
			s.add(x)
		}
		s.conclude(time.Second)
		if s.Exit != c.exit || !strings.HasPrefix(s.String(), c.score) {
			t.Errorf("%+v: exit %d, %s", c.trials, s.Exit, s)
		}
		if n := len(s.Mutants); n > 0 && !strings.Contains(s.Mutants[n-1].String(), c.line) {
			t.Errorf("%q, want %q", s.Mutants[n-1], c.line)
		}
	}
}
