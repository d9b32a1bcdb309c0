package main

import (
	"fmt"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

// What was asked once more takes the place of what was asked first, and another run's
// targets, soaks, databases and facts come behind those of the first.
func TestMerge(t *testing.T) {
	equal := []report.Finding{{Claim: "settle.answer", Verdict: report.Equal}}
	weaker := []report.Finding{{Claim: "settle.answer", Verdict: report.Weaker}}
	first := &report.Report{Targets: []report.Target{{Name: "a", Findings: equal}},
		Mutants: []report.Mutant{{Name: "m", Killed: true}}, Facts: []report.Fact{{ID: "F-1"}, {ID: "F-3"}}}
	local := &report.Report{Targets: []report.Target{{Name: "b", Findings: weaker}, {Name: "c", Findings: equal}},
		Soaks:     []report.Soak{{Target: "c", Disturbance: "leader killed", Verdict: report.Weaker}, {Target: "c", Disturbance: "other", Verdict: report.Equal}},
		Databases: []report.Database{{Name: "postgres"}}, Facts: []report.Fact{{ID: "F-2"}, {ID: "F-1"}}}
	again := &report.Report{Targets: []report.Target{{Name: "b", Findings: equal}},
		Soaks: []report.Soak{{Target: "c", Disturbance: "leader killed", Verdict: report.Equal}}}
	r := merge(merge(nil, first), local)
	if got := fmt.Sprint(broken(r)); got != "[b c]" {
		t.Errorf("broken are %s", got)
	}
	r = merge(r, again)
	var names, facts []string
	for _, x := range r.Targets {
		names = append(names, x.Name)
	}
	for _, f := range r.Facts {
		facts = append(facts, f.ID)
	}
	if fmt.Sprint(names, facts, len(r.Soaks), len(r.Databases), len(r.Mutants)) != "[a b c] [F-1 F-2 F-3] 2 1 1" {
		t.Errorf("%v %v, %d soaks, %d databases, %d mutants", names, facts, len(r.Soaks), len(r.Databases), len(r.Mutants))
	}
	if len(broken(r)) != 0 || r.Summary.Equal != 3 || r.Summary.SoaksKept != 2 {
		t.Errorf("broken are %v; %+v", broken(r), r.Summary)
	}
}
