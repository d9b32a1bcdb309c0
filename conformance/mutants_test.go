package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
)

// TestMutantsAreComplete: each says what it does and how it is found out, by an answer
// that its claim can have, under a name that no other has.
func TestMutantsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range AllMutants() {
		if seen[m.Name] {
			t.Errorf("two are called %s", m.Name)
		}
		seen[m.Name] = true
		if c, ok := Lookup(m.Claim); !ok || c.rank(m.Answer) < 0 {
			t.Errorf("%s: %s has no answer %q", m.Name, m.Claim, m.Answer)
		}
		if !strings.HasPrefix(m.Does, "It ") && !strings.HasPrefix(m.Does, "Its ") || !strings.HasSuffix(m.Does, ".") {
			t.Errorf("%s: %q", m.Name, m.Does)
		}
		if !slices.Contains([]string{publishing, receiving, settling, transacting}, m.Layer) {
			t.Errorf("%s: layer %q", m.Name, m.Layer)
		}
		if got, err := mutantOf(m.Name); err != nil || got.Name != m.Name || got.On != m.On {
			t.Errorf("%s isn't found by its name: %v", m.Name, err)
		}
	}
	if len(Mutants()) < 40 {
		t.Errorf("%d mutants break any adapter", len(Mutants()))
	}
	if _, err := mutantOf("nothing"); err == nil {
		t.Error("a mutant that there isn't was found")
	}
	if none, err := mutantOf(""); none != nil || err != nil {
		t.Errorf("no name: %v, %v", none, err)
	}
}

// TestAMutantOfWhatFailsItselfIsUndecided: where the adapter itself can't be asked, a
// mutant's failure is none of the suite's.
func TestAMutantOfWhatFailsItselfIsUndecided(t *testing.T) {
	gone := Target{Name: "gone", Start: func(context.Context) (*Instance, error) { return nil, errors.New("connection refused") }}
	for _, target := range []Target{nowhere(), gone} {
		told := 0
		trials, err := RunMutants(t.Context(), target, Mutants()[:3], Options{}, func(Trial) { told++ })
		if err != nil || len(trials) != 3 || told != 3 {
			t.Fatalf("%s: %d trials, %d told, %v", target.Name, len(trials), told, err)
		}
		for _, x := range trials {
			if x.Err == nil || x.Killed || !strings.Contains(x.Err.Error(), "the adapter itself") {
				t.Errorf("%s: %+v", target.Name, x)
			}
		}
	}
}

// TestRunMutantsInterrupted: what was not tried is not among the trials.
func TestRunMutantsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if trials, err := RunMutants(ctx, nowhere(), Mutants(), Options{}, nil); err != nil || len(trials) != 0 {
		t.Errorf("%d trials, %v", len(trials), err)
	}
	if trials, err := RunMutants(t.Context(), nowhere(), nil, Options{}, nil); err != nil || len(trials) != 0 {
		t.Errorf("of none: %d trials, %v", len(trials), err)
	}
	bad := Mutant{Name: "bad", Claim: boundary.Claim("nothing")}
	if _, err := RunMutants(t.Context(), nowhere(), []Mutant{bad}, Options{}, nil); err == nil {
		t.Error("a claim that there isn't: no error")
	}
}
