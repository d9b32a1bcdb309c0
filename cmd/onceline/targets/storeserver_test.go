package targets

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// TestLocalStores: effects behind stores on a real PostgreSQL, a real MariaDB, and a real
// Redis or Valkey, are applied as often as declared, on a target that shares the server and
// stops it.
func TestLocalStores(t *testing.T) {
	t.Parallel()
	required := strings.Split(os.Getenv("ONCELINE_REQUIRE"), ",")
	for _, c := range []struct {
		name   string
		server *storeServer
		stores func(*storeServer) []conformance.Store
		claims []string
		equal  int
	}{
		{"redis", &storeServer{start: localstack.StartRedis}, leaseStores, []string{"effect.lease.*"}, 6},
		{"postgres", &storeServer{start: localstack.StartPostgres}, postgresStores, []string{"effect.inbox.*", "effect.call.*", "effect.position.*"}, 11},
		{"mariadb", &storeServer{start: localstack.StartMariaDB, prepare: prepareMySQL}, mysqlStores, []string{"effect.inbox.*", "effect.call.*", "effect.position.*"}, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Getenv("ONCELINE_LOCAL") != "1" && !slices.Contains(required, c.name) {
				t.Skipf("runs a real server: needs ONCELINE_LOCAL=1 or ONCELINE_REQUIRE=%s", c.name)
			}
			target := Memory()
			target.Private, target.Stores = nil, c.stores(c.server)
			c.server.shared(&target)
			r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: c.claims})
			if err != nil {
				t.Fatal(err)
			}
			found, equal := r.Targets[0], 0
			if found.Error != "" {
				t.Fatal(found.Error)
			}
			for _, f := range found.Findings {
				switch {
				case f.Verdict == report.Equal && strings.Contains(f.Reason, c.name):
					equal++
				case f.Verdict != report.NotApplicable:
					t.Errorf("%s: %s: %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
				}
			}
			if equal != c.equal {
				t.Errorf("%d answers are as declared, want %d", equal, c.equal)
			}
			if c.server.db != nil || c.server.targets != 0 {
				t.Error("the server outlived its target")
			}
		})
	}
}
