package main

import (
	"strings"
	"testing"

	"github.com/onceline/onceline/cmd/onceline/ratios"
	"github.com/onceline/onceline/conformance/report"
)

func TestRatios(t *testing.T) {
	stdout, stderr, code := onceline(t.Context(), "ratios", "--list")
	if lines := strings.Count(stdout, "\n"); code != 0 || stderr != "" || lines != len(ratios.Promises())+1 || !strings.Contains(stdout, "≥ 15 ×") {
		t.Errorf("exit %d, %d lines: %s%s", code, lines, stdout, stderr)
	}
	// SQLite needs nothing. Whether it is fast enough here and now is not this test's
	// business, but the words and the exit code have to fit each other.
	stdout, stderr, code = onceline(t.Context(), "ratios", "--only", "sqlite.*", "--pairs", "2")
	want := map[int]string{report.ExitEqual: "1 of 1 promises kept, 0 missed, 0 unknown", report.ExitDifference: "0 of 1 promises kept, 1 missed, 0 unknown"}[code]
	if want == "" || !strings.Contains(stdout, want) || (code == report.ExitDifference) != strings.Contains(stdout, "MISSED") || !strings.Contains(stderr, "sqlite.batch") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	for _, args := range [][]string{{"--only", "oracle.*"}, {"--only", "["}, {"--pairs", "0"}, {"--markers", "0"}, {"more"}} {
		if _, stderr, code := onceline(t.Context(), append([]string{"ratios"}, args...)...); code != report.ExitUsage || stderr == "" {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
	t.Setenv("PATH", t.TempDir())
	stdout, stderr, code = onceline(t.Context(), "ratios", "--only", "redis.*")
	if code != report.ExitUnknown || !strings.Contains(stdout, "not installed") || !strings.Contains(stdout, "0 of 2 promises kept, 0 missed, 2 unknown") {
		t.Errorf("without Redis: exit %d: %s%s", code, stdout, stderr)
	}
}
