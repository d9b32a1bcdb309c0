package targets_test

import (
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

// TestMutants: the suite kills each adapter that is broken on purpose, by the claim that
// it violates, and with the answer that this is.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, b := range targets.Mutants() {
		if b.Name != "memory" {
			continue // "onceline mutants" tries those of each broker
		}
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			trials, err := conformance.RunMutants(t.Context(), b.Target, b.Mutants, conformance.Options{Seed: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(trials) != len(b.Mutants) {
				t.Errorf("%d of %d were tried", len(trials), len(b.Mutants))
			}
			for _, m := range trials {
				switch {
				case m.Err != nil:
					t.Errorf("%s: not decided: %v", m.Name, m.Err)
				case !m.Killed:
					t.Errorf("%s lives: %s observed %q: %s", m.Name, m.Claim, m.Observed, m.Reason)
				case m.Observed != string(m.Answer):
					t.Errorf("%s: %s observed %q, want %q: %s", m.Name, m.Claim, m.Observed, m.Answer, m.Reason)
				}
			}
		})
	}
}

// TestEachBrokerHasMutants: a mutant is of a target that is there, and none of the
// brokers is left out.
func TestEachBrokerHasMutants(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	known := map[string]bool{"": true}
	for _, b := range targets.Mutants() {
		broken[b.Broker], known[b.Name] = true, true
		for _, m := range b.Mutants {
			if m.On != b.Name && (m.On != "" || b.Name != "memory") {
				t.Errorf("%s is of %q and tried on %s", m.Name, m.On, b.Name)
			}
		}
	}
	for _, target := range targets.Embedded() {
		if !broken[target.Broker] {
			t.Errorf("no mutant is of %s", target.Broker)
		}
	}
	for _, m := range conformance.AllMutants() {
		if !known[m.On] {
			t.Errorf("%s is of %q, which is no embedded target", m.Name, m.On)
		}
	}
}

// unkillable are the claims that nothing broken shows to fail, and why. What stands here
// rests on its probe being read alone.
var unkillable = map[boundary.Claim]string{
	boundary.PublishAckReplicated: "it takes a node's death, and no embedded target has several nodes; clusters are asked with --local",
	boundary.PublishScheduled:     "documented alone: the contract has no scheduling, so nothing is driven",
	boundary.PublishRegion:        "documented alone: no target has two regions",
	boundary.DeliverPush:          "documented alone: the contract pulls, so nothing is driven",
}

// TestEachClaimCanFail: each claim is answered otherwise by a mutant, by the reference
// implementation with a promise broken, or by a wrong store or pipeline.
func TestEachClaimCanFail(t *testing.T) {
	t.Parallel()
	killed := map[boundary.Claim]bool{}
	for _, m := range conformance.AllMutants() {
		killed[m.Claim] = true
	}
	for _, p := range brokenPromises {
		killed[p.claim] = true
	}
	for _, s := range wrongByStore {
		for claim := range s.want {
			killed[claim] = true
		}
	}
	for _, p := range wrongByPipeline {
		killed[p.claim] = true
	}
	for _, c := range conformance.Claims() {
		switch reason, listed := unkillable[c.ID]; {
		case !killed[c.ID] && !listed:
			t.Errorf("nothing broken is seen by %s", c.ID)
		case killed[c.ID] && listed:
			t.Errorf("%s is listed as a claim that nothing kills, and something does", c.ID)
		case listed && reason == "":
			t.Errorf("%s: no reason", c.ID)
		}
	}
	for claim := range unkillable {
		if _, ok := conformance.Lookup(claim); !ok {
			t.Errorf("%s is no claim", claim)
		}
	}
}
