package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

func TestVerdicts(t *testing.T) {
	cases := []struct {
		v           report.Verdict
		class       report.Class
		pass, fails bool
	}{
		{report.Equal, report.Passed, true, false},
		{report.Deviates, report.Passed, true, false},
		{report.NotApplicable, report.Uncounted, false, false},
		{report.NotVerifiable, report.Uncounted, false, false},
		{report.Failed, report.Broken, false, true},
		{report.Stronger, report.Differs, false, true},
		{report.Weaker, report.Differs, false, true},
		{"made-up", report.Broken, false, true},
	}
	for _, c := range cases {
		if c.v.Class() != c.class || c.v.Passes() != c.pass || c.v.Fails() != c.fails {
			t.Errorf("%s: class %v, passes %v, fails %v", c.v, c.v.Class(), c.v.Passes(), c.v.Fails())
		}
	}
	all := report.Verdicts()
	symbols := map[string]bool{}
	for i, v := range all {
		if !v.Valid() || symbols[v.Symbol()] {
			t.Errorf("%s: not valid, or its symbol %q is taken", v, v.Symbol())
		}
		symbols[v.Symbol()] = true
		if i > 0 && all[i-1].Order() >= v.Order() {
			t.Errorf("%s is not worse than %s", v, all[i-1])
		}
	}
	if report.Verdict("made-up").Valid() {
		t.Error("an unknown verdict is valid")
	}
	if got := report.Worst(report.Equal, report.Weaker, report.Failed); got != report.Weaker {
		t.Errorf("worst is %q", got)
	}
	if got := report.Worst(); got != "" {
		t.Errorf("worst of none is %q", got)
	}
}

func TestSummariseExit(t *testing.T) {
	target := func(vs ...report.Verdict) report.Target {
		t := report.Target{Name: "t"}
		for _, v := range vs {
			t.Findings = append(t.Findings, report.Finding{Claim: "c." + string(v), Hop: 1, Verdict: v})
		}
		return t
	}
	gone := report.Target{Name: "gone", Error: "refused"}
	cases := []struct {
		name string
		r    report.Report
		exit int
	}{
		{"all equal", report.Report{Targets: []report.Target{target(report.Equal)}}, 0},
		{"listed deviation", report.Report{Targets: []report.Target{target(report.Equal, report.Deviates)}}, 0},
		{"uncounted", report.Report{Targets: []report.Target{target(report.NotApplicable, report.NotVerifiable)}}, 0},
		{"weaker", report.Report{Targets: []report.Target{target(report.Equal, report.Weaker)}}, 1},
		{"stronger", report.Report{Targets: []report.Target{target(report.Stronger)}}, 1},
		{"error", report.Report{Targets: []report.Target{target(report.Equal, report.Failed)}}, 3},
		{"unknown verdict", report.Report{Targets: []report.Target{target("made-up")}}, 3},
		{"unreached", report.Report{Targets: []report.Target{target(report.Equal), gone}}, 3},
		{"difference beats error", report.Report{Targets: []report.Target{target(report.Weaker, report.Failed), gone}}, 1},
		{"survivor", report.Report{Mutants: []report.Mutant{{Killed: true}, {}}}, 1},
		{"all killed", report.Report{Mutants: []report.Mutant{{Killed: true}}}, 0},
		{"interrupted", report.Report{Targets: []report.Target{target(report.Equal)}, Summary: report.Summary{Interrupted: true}}, 3},
		{"nothing asked", report.Report{}, 3},
	}
	for _, c := range cases {
		if got := c.r.Summarise(); got.Exit != c.exit || got != c.r.Summary {
			t.Errorf("%s: exit %d, want %d", c.name, got.Exit, c.exit)
		}
	}
}

func TestSummariseCounts(t *testing.T) {
	want := report.Summary{
		Claims: 6, Targets: 4, Equal: 6, Weaker: 2, Stronger: 1, Deviation: 1, NotApplicable: 1,
		NotVerifiable: 1, Error: 1, Unreached: 1, Mutants: 3, Killed: 2, Exit: 1,
	}
	if got := example().Summary; got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	n := 0
	for _, v := range report.Verdicts() {
		n += want.Count(v)
	}
	if n != 13 || want.Count("made-up") != 0 {
		t.Errorf("the verdicts count %d findings, want 13", n)
	}
}

func TestReadJSONRoundTrip(t *testing.T) {
	text := render(t, report.WriteJSON, example())
	r, err := report.ReadJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if render(t, report.WriteJSON, r) != text {
		t.Error("reading and writing changed the report")
	}
	if r.Seed != math.MaxUint64 || !reflect.DeepEqual(r.Summary, example().Summary) {
		t.Errorf("seed %d, summary %+v", r.Seed, r.Summary)
	}
	if got := r.Targets[2].Findings[0].Evidence.History[0].ID; got != hostile {
		t.Errorf("the hostile ID became %q: JSON keeps it as it was", got)
	}
}

func TestReadJSONRefuses(t *testing.T) {
	text := render(t, report.WriteJSON, example())
	cases := []struct{ name, text, want string }{
		{"no JSON", "<html>", "invalid character"},
		{"no schema", "{}", "unknown report schema"},
		{"later schema", strings.Replace(text, report.Schema, "onceline.report/2", 1), `"onceline.report/2"`},
		{"unknown field", strings.Replace(text, `"toolkit"`, `"colour": 1, "toolkit"`, 1), "colour"},
		{"unknown verdict", strings.Replace(text, `"verdict": "weaker"`, `"verdict": "fine"`, 1), `unknown verdict "fine"`},
		{"unknown kind", strings.Replace(text, `"kind": "cloud"`, `"kind": "memory"`, 1), `target "kafka-cloud": unknown kind "memory"`},
		{"unknown basis", strings.Replace(text, `"basis": "modelled"`, `"basis": "guessed"`, 1), `claim "publish.dedup.window": unknown basis`},
		{"unknown actor", strings.Replace(text, `"actor": "clock"`, `"actor": "gremlin"`, 1), "gremlin"},
		{"hop 9", strings.Replace(text, `"hop": 2`, `"hop": 9`, 1), "hop 9"},
		{"two reports", text + text, "after top-level value"},
		{"cut off", text[:strings.LastIndexByte(text[:len(text)/2], '\n')], "unexpected end"},
	}
	for _, c := range cases {
		_, err := report.ReadJSON(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := report.ReadJSON(strings.NewReader("{}")); !errors.Is(err, report.ErrSchema) {
		t.Errorf("want ErrSchema, got %v", err)
	}
}

func TestWriteJSONRefuses(t *testing.T) {
	r := example()
	r.Seconds = math.NaN()
	if err := report.WriteJSON(&bytes.Buffer{}, r); err == nil {
		t.Error("NaN was written")
	}
	r = example()
	r.Schema = "other/1"
	if err := report.WriteJSON(&bytes.Buffer{}, r); !errors.Is(err, report.ErrSchema) {
		t.Errorf("want ErrSchema, got %v", err)
	}
}

func TestWriteAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 { // the second time over the first
		if err := report.WriteAll(dir, example()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err != nil || info.Size() == 0 {
			t.Errorf("%s: empty, or %v", e.Name(), err)
		}
	}
	if got := strings.Join(names, " "); got != "index.html junit.xml report.json report.md" {
		t.Errorf("wrote %s", got)
	}
}

// A report that cannot be rendered leaves the files of the one before alone.
func TestWriteAllKeepsTheOldOnError(t *testing.T) {
	dir := t.TempDir()
	if err := report.WriteAll(dir, example()); err != nil {
		t.Fatal(err)
	}
	bad := example()
	bad.Seconds = math.Inf(1)
	if err := report.WriteAll(dir, bad); err == nil {
		t.Fatal("no error")
	}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil || !json.Valid(data) {
		t.Errorf("the old report is gone: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteAll(file, example()); err == nil {
		t.Error("a file in the directory's place went unnoticed")
	}
}
