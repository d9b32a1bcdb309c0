package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// Test runs the suite on target with a subtest for each claim. A claim that is
// not applicable or not verifiable is a skipped subtest with the reason; one for
// which the adapter declares no answer fails with the line to declare, and a
// target that declares none at all with the whole boundary as Go source.
func Test(t *testing.T, target Target, options ...func(*Options)) {
	t.Helper()
	var o Options
	for _, set := range options {
		set(&o)
	}
	r, err := Run(t.Context(), target, o)
	if err != nil {
		t.Fatal(err)
	}
	found := r.Targets[0]
	if found.Error != "" {
		t.Fatalf("target %s: %s", target.Name, found.Error)
	}
	t.Logf("seed %d", r.Seed)
	if r.Summary.Interrupted {
		t.Error("the run was interrupted: not every claim was asked")
	}
	if len(target.Boundary.Entries) == 0 {
		t.Errorf("the target declares no boundary; observed was:\n%s", Discover(target.Broker, found.Findings))
	}
	for _, f := range found.Findings {
		t.Run(f.Claim, func(t *testing.T) {
			switch {
			case f.Declared == "" && f.Observed != "":
				t.Errorf("undeclared; if this is right, declare:\n%s", declaration(f))
			case f.Verdict.Class() == report.Uncounted:
				t.Skipf("%s: %s", f.Verdict.Words(), f.Reason)
			case f.Verdict.Fails():
				t.Errorf("%s: declared %s, observed %s: %s\n%s", f.Verdict.Words(), f.Declared, f.Observed, f.Reason, trace(f))
			default:
				t.Logf("%s: %s: %s", f.Verdict.Words(), f.Observed, f.Reason)
			}
		})
	}
}

func declaration(f report.Finding) string {
	return fmt.Sprintf("\tboundary.Claim(%q): {Declared: %q}, // %s", f.Claim, f.Observed, strings.ReplaceAll(strings.TrimPrefix(f.Reason, undeclared), "\n", " "))
}

// Discover returns the observed boundary of a target as Go source, for an
// adapter that declares none.
func Discover(name string, fs []report.Finding) string {
	var s strings.Builder
	fmt.Fprintf(&s, "boundary.Boundary{Broker: %q, Entries: map[boundary.Claim]boundary.Entry{\n", name)
	for _, f := range fs {
		switch {
		case f.Observed != "":
			s.WriteString(declaration(f) + "\n")
		default:
			fmt.Fprintf(&s, "\t// %s: %s: %s\n", f.Claim, f.Verdict.Words(), strings.ReplaceAll(f.Reason, "\n", " "))
		}
	}
	s.WriteString("}}\n")
	return s.String()
}

// trace is a finding's history in lines.
func trace(f report.Finding) string {
	var s strings.Builder
	for _, e := range f.Evidence.History {
		fmt.Fprintf(&s, "  %8.3f %-9s %-9s %-6s %s\n", e.At, e.Actor, e.Kind, e.ID, e.Note)
	}
	for _, n := range f.Evidence.Notes {
		fmt.Fprintf(&s, "  note: %s\n", n)
	}
	return s.String()
}

// Undeclared returns the claims of the catalogue for which b has no entry, and
// the entries of b that are no claim or no answer of it: what a test of an
// adapter's boundary looks at.
func Undeclared(b boundary.Boundary) (missing []boundary.Claim, wrong []string) {
	for _, c := range catalogue {
		e, ok := b.Entries[c.ID]
		switch {
		case !ok:
			missing = append(missing, c.ID)
		case e.Declared == boundary.NotApplicable:
			if e.Note == "" {
				wrong = append(wrong, fmt.Sprintf("%s: not applicable, and no note says why", c.ID))
			}
		case c.rank(e.Declared) < 0:
			wrong = append(wrong, fmt.Sprintf("%s: declares %q, none of %q", c.ID, e.Declared, c.Answers))
		case e.Documented != "" && c.rank(e.Documented) < 0:
			wrong = append(wrong, fmt.Sprintf("%s: documented %q, none of %q", c.ID, e.Documented, c.Answers))
		}
	}
	for _, id := range b.Claims() {
		if _, ok := Lookup(id); !ok {
			wrong = append(wrong, fmt.Sprintf("%s: no such claim", id))
		}
	}
	return missing, wrong
}
