package targets_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// TestClusters: what three nodes lose, and what comes back, while they are killed,
// cut off and restarted. ONCELINE_SOAK chooses targets by globs, ONCELINE_DISTURB
// one disturbance by its name.
func TestClusters(t *testing.T) {
	t.Parallel()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs real servers: needs ONCELINE_LOCAL=1")
	}
	all := targets.Clusters(func(target, step string) { t.Logf("%s: %s", target, step) })
	chosen, err := conformance.SelectClusters(all, strings.Fields(os.Getenv("ONCELINE_SOAK")))
	if err != nil {
		t.Fatal(err)
	}
	soaks := conformance.Soaks(t.Context(), chosen, conformance.SoakOptions{
		Disturbance: os.Getenv("ONCELINE_DISTURB"),
		Progress:    func(target, disturbance, step string) { t.Logf("%s, %s: %s", target, disturbance, step) },
	})
	for _, s := range soaks {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, %s: %s: %s\n%s", s.Target, s.Disturbance, s.Verdict, s.Reason, b)
		if s.Verdict != report.Equal {
			t.Errorf("%s, %s: %s: %s", s.Target, s.Disturbance, s.Verdict, s.Reason)
		}
	}
}
