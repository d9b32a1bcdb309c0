package targets_test

import (
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// TestLocalSQS: each server of the SQS API answers as the adapter declares of AWS, or
// differs as is listed; and the list holds nothing that isn't so any more.
func TestLocalSQS(t *testing.T) {
	t.Parallel()
	for _, target := range localTargets(t, "sqs") {
		t.Run(target.Name, func(t *testing.T) {
			r, err := conformance.Run(t.Context(), target, conformance.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := r.Targets[0]
			if got.Error != "" || got.Absent != "" {
				t.Fatalf("%s%s", got.Error, got.Absent)
			}
			t.Logf("%v, %.1f s, seed %d", got.Versions, r.Seconds, r.Seed)
			if len(got.Findings) != len(conformance.Claims()) {
				t.Errorf("%d findings for %d claims", len(got.Findings), len(conformance.Claims()))
			}
			differs := 0
			for _, f := range got.Findings {
				switch f.Verdict {
				case report.Equal:
				case report.Deviates:
					differs++
				case report.NotVerifiable:
					// Five minutes are too long to wait for.
					if !strings.HasPrefix(f.Claim, string(boundary.PublishDedupWindow)) || !strings.HasSuffix(target.Name, "-fifo") {
						t.Errorf("%s: %s", f.Claim, f.Reason)
					}
				default:
					t.Errorf("%s: %s: observed %q, declared %q: %s\n%s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason, strings.Join(f.Evidence.Notes, "\n"))
				}
			}
			if differs != len(target.Deviations) {
				t.Errorf("%d deviations are listed and %d were seen", len(target.Deviations), differs)
			}
		})
	}
}
