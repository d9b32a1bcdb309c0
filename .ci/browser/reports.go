package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onceline/onceline/conformance/report"
)

// grown is a report of the size that the page is made for, from one of any size:
// what it found, repeated, with every verdict somewhere.
func grown(r *report.Report, targets, claims int) *report.Report {
	out := *r
	out.Targets, out.Claims = nil, nil
	var base []report.Target
	for _, t := range r.Targets {
		if len(t.Findings) > 0 {
			base = append(base, t)
		}
	}
	verdicts := report.Verdicts()
	n := 0
	for i := range targets {
		t := base[i%len(base)]
		if i >= len(base) {
			t.Name = fmt.Sprintf("%s-%d", t.Name, i/len(base)+1)
		}
		found := t.Findings
		t.Findings = nil
		for j := range claims {
			f := found[j%len(found)]
			if j >= len(found) {
				f.Claim = fmt.Sprintf("%s.%d", f.Claim, j/len(found)+1)
			}
			// Each history is another one: in a real run no two are the same.
			f.Evidence.History = slices.Clone(f.Evidence.History)
			for k := range f.Evidence.History {
				n++
				f.Evidence.History[k].At += float64(n*7919%9973) / 1e6
			}
			if v := (i*claims + j) % 29; v < len(verdicts) {
				f.Verdict = verdicts[v]
			}
			t.Findings = append(t.Findings, f)
		}
		out.Targets = append(out.Targets, t)
	}
	for _, f := range out.Targets[0].Findings {
		at := slices.IndexFunc(r.Claims, func(c report.Claim) bool { return strings.HasPrefix(f.Claim, c.Claim) })
		if at >= 0 {
			c := r.Claims[at]
			c.Claim = f.Claim
			out.Claims = append(out.Claims, c)
		}
	}
	out.Summarise()
	return &out
}

// drawn has one finding whose diagram is known, another that folds, and one that is
// longer than the page keeps.
func drawn() *report.Report {
	type e = report.Event
	known := []e{
		{At: 0, Actor: report.Producer, Kind: "publish", ID: "a"},
		{At: 1, Actor: report.Producer, Kind: "receipt", ID: "a", Note: "Unknown"}, // written down by the one who got it
		{At: 2, Actor: report.Fault, Kind: "fault", Note: "cut"},
		{At: 3, Actor: report.Consumer, Kind: "effect", ID: "b"},
		{At: 4, Actor: report.Broker, Kind: "restart"},
		{At: 5, Actor: report.Broker, Kind: "fault", ID: "a", Note: "disk full"},
		{At: 6, Actor: report.Clock, Kind: "wait", Note: "2m0s"},
		{At: 7, Actor: report.Consumer, Kind: "settle", ID: "a"},
		{At: 8, Actor: report.Store, Kind: "unheard-of"},
	}
	var folds, long []e
	for i := range 50 {
		id := fmt.Sprintf("m%d", i+1)
		folds = append(folds, e{At: float64(2 * i), Actor: report.Producer, Kind: "publish", ID: id, Note: "10 bytes"},
			e{At: float64(2*i + 1), Actor: report.Broker, Kind: "receipt", ID: id, Note: fmt.Sprintf("Stored at %d", i+1)})
	}
	folds[61].Note = "Duplicate at 7" // one among those that look alike
	folds = append(folds, e{At: 100, Actor: report.Consumer, Kind: "kill", Note: "by SIGKILL"})
	for i := range 2100 {
		long = append(long, e{At: float64(i), Actor: report.Broker, Kind: "tick", Note: fmt.Sprint(i)})
	}
	f := func(claim string, h []e) report.Finding {
		return report.Finding{Claim: claim, Hop: 1, Question: "What is drawn?", Declared: "as-known", Observed: "as-known", Basis: report.Measured,
			Verdict: report.Equal, Source: []string{"https://vendor.example/page", "X-F-01", "X-F-02"}, Evidence: report.Evidence{History: h}}
	}
	r := &report.Report{Toolkit: "v0", Command: "onceline verify --seed 1", Seed: 1,
		Claims: []report.Claim{{Claim: "draw.known", Hop: 1, Question: "What is drawn?", Answers: []string{"nothing", "as-known"}, Meaning: "A picture that is wrong is worse than none."}},
		Facts:  []report.Fact{{ID: "X-F-01", Text: "It says `so`.", Source: "vendor `a.go`", Confidence: "source", Links: []string{"https://vendor.example/code"}}},
		Targets: []report.Target{{Name: "t", Broker: "b", Kind: report.KindEmulator, Versions: map[string]string{"server": "1.2.3"}, Of: "The broker 1.2",
			Findings: []report.Finding{f("draw.folds", folds), f("draw.known", known), f("draw.long", long)}}}}
	r.Summarise()
	return r
}

// evil is what an attacker may put into any string of a report: it ends elements,
// attributes and blocks of data, and sets a global if it runs.
var evil = strings.Join([]string{
	`</script><script>window.pwned1=1</script>`,
	`"'--><img src=x onerror="window.pwned2=1">`,
	`</title></style></dialog></svg><svg onload="window.pwned3=1"><x></x>`,
	"javascript:window.pwned4=1",
	"`<b>`",
}, " ")

// hostile has it in every string that a run can bring.
func hostile() *report.Report {
	r := &report.Report{Toolkit: evil, Command: "onceline verify " + evil,
		Claims:  []report.Claim{{Claim: evil, Hop: 1, Question: evil, Answers: []string{evil, "fine"}, Meaning: evil}},
		Facts:   []report.Fact{{ID: evil, Text: evil, Numbers: evil, Source: evil, Confidence: evil, Links: []string{"javascript:window.pwned5=1", evil}}},
		Mutants: []report.Mutant{{Name: evil, Layer: evil, Claim: evil, Answer: evil, Reason: evil}},
		Targets: []report.Target{{Name: evil, Broker: evil, Kind: report.KindEmulator, Like: evil, Of: evil, Error: evil, Versions: map[string]string{evil: evil},
			Deviations: []report.Deviation{{Claim: evil, Answer: evil, Reason: evil}},
			Findings: []report.Finding{{Claim: evil, Hop: 1, Question: evil, Declared: evil, Documented: evil, Observed: evil, Note: evil, Reason: evil,
				Source: []string{evil, "javascript:window.pwned6=1"}, Basis: report.Measured, Verdict: report.Weaker,
				Evidence: report.Evidence{Notes: []string{evil}, History: []report.Event{
					{Actor: report.Producer, Kind: "publish", ID: evil, Note: evil},
					{Actor: report.Producer, Kind: evil, ID: evil, Note: evil},
					{Actor: report.Fault, Kind: "fault", ID: evil, Note: evil},
				}}}}}}}
	r.Summarise()
	return r
}
