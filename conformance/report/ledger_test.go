package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

// parted is a report with each way in which answers part.
func parted() *report.Report {
	finding := func(claim, declared, documented, observed, note string) report.Finding {
		v := report.Equal
		if declared != observed {
			v = report.Deviates
		}
		return report.Finding{Claim: claim, Hop: 1, Question: claim + "?", Declared: declared, Documented: documented, Observed: observed,
			Note: note, Verdict: v, Basis: report.Modelled, Reason: "saw " + observed}
	}
	return &report.Report{Schema: report.Schema, Targets: []report.Target{
		{Name: "model", Broker: "b", Kind: report.KindEmulator, Of: "b 4", Versions: map[string]string{"b": "model"},
			Deviations: []report.Deviation{{Claim: "c.wrong", Answer: "weak", Reason: "the model is simple"}},
			Findings: []report.Finding{
				finding("a.same", "kept", "kept", "kept", ""),
				finding("b.release", "kept", "kept", "kept", ""),
				finding("c.wrong", "strong", "strong", "weak", ""),
				finding("d.silent", "x", "", "", ""),
				finding("e.words", "x", "y", "x", "the adapter adds it"),
			}},
		{Name: "server", Broker: "b", Kind: report.KindLocal, Real: true, Like: "model", Of: "b 3", Versions: map[string]string{"b": "3.1"},
			Findings: []report.Finding{
				finding("a.same", "kept", "kept", "kept", ""),
				finding("b.release", "lost", "kept", "lost", "3.x has no log"),
				finding("c.wrong", "strong", "strong", "strong", ""),
				finding("d.silent", "x", "", "x", ""),
				finding("e.words", "x", "y", "x", "the adapter adds it"),
				finding("f.alone", "x", "", "x", ""),
			}},
		{Name: "other", Broker: "b", Kind: report.KindLocal, Like: "model", Of: "b 4", Versions: map[string]string{"other": "1"},
			Deviations: []report.Deviation{{Claim: "a.same", Answer: "lost", Reason: "it keeps nothing"}},
			Findings:   []report.Finding{finding("a.same", "kept", "kept", "lost", "")}},
		{Name: "gone", Broker: "b", Kind: report.KindLocal, Real: true, Like: "model", Absent: "install it"},
	}}
}

func TestLedger(t *testing.T) {
	l := report.NewLedger(parted())
	if len(l.Pairs) != 2 || l.Pairs[0].Compared != 4 || l.Pairs[0].Equal != 2 || l.Pairs[0].Only != 1 || l.Pairs[1].Equal != 0 {
		t.Errorf("pairs: %+v", l.Pairs)
	}
	want := []struct {
		kind                      report.DifferenceKind
		claim, left, right, holds string
		why                       string
	}{
		{report.EmulatorAndBroker, "b.release", "kept", "lost", "both, each for its release: b 3; b 4", "3.x has no log"},
		{report.EmulatorAndBroker, "c.wrong", "weak", "strong", "the broker's, for b 3.1", "the model is simple"},
		{report.EmulatorAndOpinion, "a.same", "kept", "lost", "ours, as the vendor documents", "it keeps nothing"},
		{report.WordsAndBroker, "b.release", "kept", "lost", "the measurement, for b 3.1", "3.x has no log"},
		{report.WordsAndBroker, "e.words", "y", "x", "the measurement, for b 3.1", "the adapter adds it"},
	}
	if len(l.Differences) != len(want) {
		t.Fatalf("%d differences, want %d: %+v", len(l.Differences), len(want), l.Differences)
	}
	for i, w := range want {
		d := l.Differences[i]
		if d.Kind != w.kind || d.Claim != w.claim || d.Left.Answer != w.left || len(d.Right) != 1 || d.Right[0].Answer != w.right || d.Holds != w.holds || d.Why != w.why {
			t.Errorf("difference %d: %+v, want %+v", i, d, w)
		}
	}
}

// Targets that differ in the same way share a row; the vendor's server beside itself
// is no emulator.
func TestLedgerGroups(t *testing.T) {
	r := parted()
	twin := r.Targets[1]
	twin.Name = "server-3"
	r.Targets = append(r.Targets, twin)
	r.Targets[0].Real = true
	l := report.NewLedger(r)
	for _, d := range l.Differences {
		if d.Claim == "b.release" && d.Left.Who == "model" {
			if d.Kind != report.TwoConfigurations || len(d.Right) != 2 || d.Right[1].Who != "server-3" || d.Holds != "both: b 4; b 3" {
				t.Errorf("%+v", d)
			}
			return
		}
	}
	t.Errorf("no difference of b.release: %+v", l.Differences)
}

// What a run saw may read otherwise the next time; an answer may not.
func TestSameLedger(t *testing.T) {
	text := func(change func(*report.Report)) []byte {
		r := parted()
		change(r)
		var b bytes.Buffer
		if err := report.WriteLedger(&b, r); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	asIs := text(func(*report.Report) {})
	if line, same := report.SameLedger(asIs, text(func(r *report.Report) { r.Targets[1].Findings[1].Reason = "saw it later" })); !same {
		t.Errorf("another observation makes another ledger: %s", line)
	}
	line, same := report.SameLedger(asIs, text(func(r *report.Report) { r.Targets[1].Findings[1].Observed = "smeared" }))
	if same || !strings.Contains(line, "b.release") {
		t.Errorf("another answer makes the same ledger: %q", line)
	}
	if line, same = report.SameLedger(asIs, append(asIs, "- `g.more`\n"...)); same || !strings.Contains(line, "g.more") {
		t.Errorf("a longer ledger is the same: %q", line)
	}
}

func TestLedgerOnThePage(t *testing.T) {
	page := render(t, report.WriteHTML, parted())
	for _, want := range []string{`id="ledger"`, `href="#server--b.release"`, "3.x has no log", "not here"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	alone := parted()
	alone.Targets = alone.Targets[:1]
	if strings.Contains(render(t, report.WriteHTML, alone), `id="ledger"`) {
		t.Error("a report without anything to compare has a ledger")
	}
}
