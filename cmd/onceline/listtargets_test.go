package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := onceline(t.Context(), "targets")
	for _, want := range []string{"sqs-fifo ", "nats-3 ", "--local", "--compose"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
	if code != 0 || stderr != "" {
		t.Error(code, stderr)
	}
	stdout, _, _ = onceline(t.Context(), "targets", "--json")
	var all []listed
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all) < 40 {
		t.Error(err, len(all))
	}
	for _, l := range all {
		if l.Flag == "--compose" {
			continue
		}
		if _, stderr, code := onceline(t.Context(), "explain", l.Name); code != 0 {
			t.Errorf("explain %s: exit %d, %s", l.Name, code, stderr)
		}
		if _, stderr, code := onceline(t.Context(), "diff", l.Name, "memory"); code != 0 {
			t.Errorf("diff %s: exit %d, %s", l.Name, code, stderr)
		}
	}
}
