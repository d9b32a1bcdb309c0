package conformance

import (
	"go/parser"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

func TestDiscoverIsGo(t *testing.T) {
	source := Discover("mine", []report.Finding{
		{Claim: string(boundary.SettleAnswer), Observed: string(boundary.Sent), Reason: "acks are sent"},
		{Claim: string(boundary.SettleFinal), Verdict: report.Failed, Reason: "the probe broke"},
	})
	if _, err := parser.ParseExpr(strings.TrimSpace(source)); err != nil {
		t.Errorf("%v:\n%s", err, source)
	}
	if !strings.Contains(source, `"settle.answer"): {Declared: "sent"}, // acks are sent`) || !strings.Contains(source, "// settle.final: error: the probe broke") {
		t.Error(source)
	}
}

func TestUndeclared(t *testing.T) {
	b := boundary.Boundary{Entries: map[boundary.Claim]boundary.Entry{
		boundary.SettleAnswer:       {Declared: boundary.Sent, Documented: "gibberish"},
		boundary.SettleFinal:        {Declared: "gibberish"},
		"settle.nonsense":           {Declared: boundary.Sent},
		boundary.SettleStale:        {Declared: boundary.NotApplicable},
		boundary.SettleLostResponse: {Declared: boundary.NotApplicable, Note: "acks have no answer"},
	}}
	missing, wrong := Undeclared(b)
	if len(missing) != len(catalogue)-4 || len(wrong) != 4 {
		t.Errorf("missing %d, wrong %q", len(missing), wrong)
	}
}
