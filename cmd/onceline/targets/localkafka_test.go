package targets_test

import (
	"os"
	"strings"
	"testing"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// TestLocalKafka: Apache Kafka itself answers as the adapter declares.
func TestLocalKafka(t *testing.T) {
	t.Parallel()
	local := localTargets(t, "kafka")
	for _, target := range local {
		t.Run(target.Name, func(t *testing.T) { equalLocal(t, target) })
	}
}

// localTargets returns the targets on real servers of a broker; the test is one of
// those that run with ONCELINE_LOCAL=1 only.
func localTargets(t *testing.T, broker string) []conformance.Target {
	t.Helper()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs real servers: needs ONCELINE_LOCAL=1")
	}
	all := targets.Local(func(target, step string) { t.Logf("%s: %s", target, step) })
	chosen, err := targets.Select(all, []string{broker})
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

// equalLocal asks a target all claims, and takes nothing but what is declared.
func equalLocal(t *testing.T, target conformance.Target) {
	t.Helper()
	o := conformance.Options{Claims: strings.Fields(os.Getenv("ONCELINE_CLAIMS"))}
	r, err := conformance.Run(t.Context(), target, o)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Targets[0]
	if got.Error != "" || got.Absent != "" {
		t.Fatalf("%s%s", got.Error, got.Absent)
	}
	t.Logf("%s: %v, %.1f s, seed %d", got.Of, got.Versions, r.Seconds, r.Seed)
	if len(o.Claims) == 0 && len(got.Findings) != len(conformance.Claims()) {
		t.Errorf("%d findings for %d claims", len(got.Findings), len(conformance.Claims()))
	}
	for _, f := range got.Findings {
		t.Logf("%-32s %-14s %-14q %5.1f s  %s", f.Claim, f.Verdict, f.Observed, f.Seconds, f.Reason)
		if f.Verdict != report.Equal && f.Verdict != report.NotApplicable {
			t.Errorf("%s: %s: observed %q, declared %q: %s\n%s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason, strings.Join(f.Evidence.Notes, "\n"))
		}
	}
}
