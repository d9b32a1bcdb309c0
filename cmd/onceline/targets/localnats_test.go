package targets_test

import (
	"os"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// TestLocalNATS: the real server in each configuration gives the answers that are
// declared of that configuration, and of no other.
func TestLocalNATS(t *testing.T) {
	t.Parallel()
	askLocal(t, "nats", 4)
}

// askLocal asks all local targets of a broker, of which there are so many, all
// claims. Only what is declared, does not apply, or is a listed deviation will do,
// and each listed deviation must be met.
func askLocal(t *testing.T, broker string, want int) {
	t.Helper()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs real servers: needs ONCELINE_LOCAL=1")
	}
	asked := 0
	for _, target := range targets.Local(func(target, step string) { t.Logf("%s: %s", target, step) }) {
		if target.Broker != broker {
			continue
		}
		asked++
		t.Run(target.Name, func(t *testing.T) { asDeclared(t, target) })
	}
	if asked != want {
		t.Errorf("%d targets of %s, want %d", asked, broker, want)
	}
}

func asDeclared(t *testing.T, target conformance.Target) {
	t.Helper()
	r, err := conformance.Run(t.Context(), target, conformance.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Targets[0]
	if got.Error != "" || got.Absent != "" || len(got.Findings) != len(conformance.Claims()) {
		t.Fatalf("error %q, absent %q, %d findings", got.Error, got.Absent, len(got.Findings))
	}
	t.Logf("%s: %v, %.0f s, seed %d", got.Of, got.Versions, r.Seconds, r.Seed)
	met := map[string]bool{}
	for _, f := range got.Findings {
		t.Logf("%-32s %-14s %-14q %5.1f s  %s", f.Claim, f.Verdict, f.Observed, f.Seconds, f.Reason)
		switch f.Verdict {
		case report.Equal:
		case report.NotApplicable:
			if target.Boundary.Entries[boundary.Claim(f.Claim)].Declared != boundary.NotApplicable {
				t.Errorf("%s: not applicable, which isn't declared: %s", f.Claim, f.Reason)
			}
		case report.Deviates:
			met[f.Claim] = true
		case report.NotVerifiable:
			// The vendor's emulator of Pub/Sub can't be emptied where it keeps order (PS-F-100).
			unpurged := f.Claim == string(boundary.PublishDedupAfterPurge) && strings.HasSuffix(target.Name, "-ordered")
			if !unpurged {
				t.Errorf("%s: not verifiable: %s", f.Claim, f.Reason)
			}
		default:
			var seen []string
			for _, e := range f.Evidence.History {
				seen = append(seen, strings.Join([]string{string(e.Actor), string(e.Kind), e.ID, e.Note}, " "))
			}
			t.Errorf("%s: %s: observed %q, declared %q: %s\n%s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason, strings.Join(append(seen, f.Evidence.Notes...), "\n"))
		}
	}
	for _, d := range target.Deviations {
		if !met[string(d.Claim)] {
			t.Errorf("%s: the listed deviation to %q isn't met", d.Claim, d.Answer)
		}
	}
}
