package targets_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/onceline/onceline/cmd/onceline/targets"
)

// TestDatabases: each is there, says what it is, and keeps over a kill what it had
// committed.
func TestDatabases(t *testing.T) {
	t.Parallel()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs real servers: needs ONCELINE_LOCAL=1")
	}
	var mu sync.Mutex
	told := map[string]bool{}
	found := targets.Databases(t.Context(), func(target, step string) {
		mu.Lock()
		defer mu.Unlock()
		told[target] = told[target] || strings.HasSuffix(step, "ready")
	})
	number := regexp.MustCompile(`\d+\.\d+`)
	for i, name := range []string{"postgres", "mariadb", "redis"} {
		d := found[i]
		t.Logf("%+v", d)
		if d.Name != name || d.Err != nil || d.Absent != "" || !d.Kept || !number.MatchString(d.Version) || !told[name] {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestDatabasesThatAreMissing: a machine without them, and one whose user gives up, is
// told so.
func TestDatabasesThatAreMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, d := range targets.Databases(ctx, nil) {
		if d.Kept || d.Version != "" || (d.Absent == "") == (d.Err == nil) {
			t.Errorf("%+v", d)
		}
		if d.Name == "redis" && !strings.Contains(d.Absent, "redis-server") {
			t.Errorf("%+v", d)
		}
	}
}
