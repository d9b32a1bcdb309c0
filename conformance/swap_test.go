package conformance

import (
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

func TestSwap(t *testing.T) {
	from := Declared("from", boundary.Boundary{Of: "a 1", Entries: map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable:  {Declared: boundary.Kept},
		boundary.DeliverOrderKey:    {Declared: boundary.None},
		boundary.SettleAnswer:       {Declared: boundary.Confirmed},
		boundary.SettleLostResponse: {Declared: boundary.StaysUnknown},
		boundary.SettleFinal:        {Declared: boundary.Final},
	}})
	to := Observed(&report.Target{Name: "to", Of: "b 2", Findings: []report.Finding{
		{Claim: string(boundary.PublishAckDurable), Observed: "kept", Basis: report.Measured, Verdict: report.Equal},
		{Claim: string(boundary.DeliverOrderKey), Observed: "over-redelivery", Basis: report.Measured, Verdict: report.Equal},
		{Claim: string(boundary.SettleAnswer), Declared: "sent", Observed: "sent", Basis: report.Measured, Verdict: report.Equal, Note: "dedup"},
		{Claim: string(boundary.SettleLostResponse), Verdict: report.NotApplicable},
		{Claim: string(boundary.SettleFinal), Verdict: report.NotVerifiable},
	}})
	got := Swap(from, to)
	want := []struct {
		claim     boundary.Claim
		direction Direction
		from, to  boundary.Answer
	}{
		{boundary.SettleAnswer, Weaker, boundary.Confirmed, boundary.Sent},
		{boundary.SettleLostResponse, Other, boundary.StaysUnknown, boundary.NotApplicable},
		{boundary.SettleFinal, Untold, boundary.Final, ""},
		{boundary.DeliverOrderKey, Stronger, boundary.None, boundary.OverNack},
	}
	if len(got) != len(want) {
		t.Fatalf("%d changes, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		if g := got[i]; g.Claim != w.claim || g.Direction != w.direction || g.From.Answer != w.from || g.To.Answer != w.to || g.Meaning == "" {
			t.Errorf("change %d: %+v, want %+v", i, g, w)
		}
	}
	if got[0].To.Note != "dedup" || got[0].To.Basis != "measured" || got[0].From.Basis != "declared" {
		t.Errorf("%+v", got[0])
	}
	if len(Swap(from, from)) != 0 {
		t.Error("a target differs from itself")
	}
}

func TestRequirement(t *testing.T) {
	if _, err := NewRequirement("no.such", boundary.Kept); err == nil || !strings.Contains(err.Error(), "no such claim") {
		t.Error(err)
	}
	if _, err := NewRequirement(boundary.SettleAnswer, boundary.Kept); err == nil || !strings.Contains(err.Error(), "weakest first") {
		t.Error(err)
	}
	r, err := NewRequirement(boundary.SettleAnswer, boundary.Sent)
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[boundary.Answer]bool{
		boundary.None: false, boundary.Sent: true, boundary.Confirmed: true, boundary.NotApplicable: false,
	} {
		g := Guarantees{Name: "g", Answers: map[boundary.Claim]Guarantee{boundary.SettleAnswer: {Answer: a}}}
		if why, met := r.Met(g); met != want || met == (why != "") {
			t.Errorf("%s: %v %q", a, met, why)
		}
	}
	if _, met := r.Met(Guarantees{}); met {
		t.Error("no answer meets a requirement")
	}
}
