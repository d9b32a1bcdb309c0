package targets

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// TestLocalLeaseStores: effects behind a lease on a real Redis or Valkey are applied as
// often as declared, on a target that shares the server and stops it.
func TestLocalLeaseStores(t *testing.T) {
	required := slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), "redis")
	if os.Getenv("ONCELINE_LOCAL") != "1" && !required {
		t.Skip("runs a real server: needs ONCELINE_LOCAL=1 or ONCELINE_REQUIRE=redis")
	}
	target := Memory()
	target.Stores, target.Private = nil, nil
	server := &redisServer{}
	server.shared(&target)
	r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: []string{"effect.lease.*"}})
	if err != nil {
		t.Fatal(err)
	}
	found := r.Targets[0]
	if found.Error != "" || len(found.Findings) != 6 {
		t.Fatalf("%d findings: %s", len(found.Findings), found.Error)
	}
	for _, f := range found.Findings {
		if f.Verdict != report.Equal {
			t.Errorf("%s: %s: %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
		}
	}
	if server.db != nil || server.targets != 0 {
		t.Error("the server outlived its target")
	}
}
