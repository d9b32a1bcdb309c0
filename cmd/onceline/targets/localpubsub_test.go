package targets_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

// TestLocalPubSub: Google's own emulator, and the model in its one configuration
// that is asked nowhere else, answer as is declared of the service, or differ as is
// listed.
func TestLocalPubSub(t *testing.T) {
	t.Parallel()
	askLocal(t, "pubsub", 3)
}

// TestPubSubEmulatorIsAbsent: without the emulator its targets are absent, and say
// what to install.
func TestPubSubEmulatorIsAbsent(t *testing.T) {
	t.Setenv("ONCELINE_PUBSUB_JAR", filepath.Join(t.TempDir(), "none.jar"))
	absent := 0
	for _, target := range targets.Local(nil) {
		if target.Broker != "pubsub" {
			continue
		}
		absent++
		_, err := target.Start(t.Context())
		if !errors.Is(err, conformance.ErrAbsent) || !strings.Contains(err.Error(), "ONCELINE_PUBSUB_JAR") {
			t.Errorf("%s: %v", target.Name, err)
		}
	}
	if absent != 3 {
		t.Errorf("%d targets on the emulator", absent)
	}
}

// TestLocalBoundariesAreComplete: each local target of NATS and Pub/Sub declares an
// answer with a source to all claims, and is like a target that there is.
func TestLocalBoundariesAreComplete(t *testing.T) {
	t.Parallel()
	all := append(targets.Embedded(), targets.Local(nil)...)
	known := map[string]bool{}
	for _, target := range all {
		if known[target.Name] {
			t.Errorf("two targets are called %s", target.Name)
		}
		known[target.Name] = true
	}
	for _, target := range targets.Local(nil) {
		if target.Broker != "nats" && target.Broker != "pubsub" {
			continue
		}
		missing, wrong := conformance.Undeclared(target.Boundary)
		if len(missing) > 0 || len(wrong) > 0 {
			t.Errorf("%s: no entry for %v; wrong: %v", target.Name, missing, wrong)
		}
		if target.Like != "" && !known[target.Like] {
			t.Errorf("%s is like %s, which isn't there", target.Name, target.Like)
		}
		for id, e := range target.Boundary.Entries {
			if len(e.Sources) == 0 {
				t.Errorf("%s: %s has no source", target.Name, id)
			}
		}
		for _, d := range target.Deviations {
			if target.Boundary.Entries[d.Claim].Declared == d.Answer || d.Reason == "" {
				t.Errorf("%s: %s deviates to what is declared, or without a reason", target.Name, d.Claim)
			}
		}
	}
}
