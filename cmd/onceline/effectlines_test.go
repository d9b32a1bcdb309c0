package main

import (
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

// TestEffectLines: what all targets together showed of a store is in its line, and a
// store of which nothing could be asked is no good news.
func TestEffectLines(t *testing.T) {
	t.Parallel()
	found := func(claim, observed string) report.Finding { return report.Finding{Claim: claim, Observed: observed} }
	for _, c := range []struct {
		name     string
		findings []report.Finding
		want     string
	}{
		{"no store was asked", []report.Finding{found("effect.zombie", "twice"), found("settle.final", "final")}, ""},
		{"several", []report.Finding{
			found("effect.zombie", "twice"), found("effect.crash-before", "once"),
			found("effect.inbox.zombie", "once"), found("effect.inbox.replay", "once"),
			found("effect.call.crash-before", "lost"), found("effect.call.keyed.crash-before", "once"),
			found("effect.lease.zombie", ""), found("deliver.attempt", "exact"),
		}, `
How often an effect took place (docs/effects.md says what to use when):
  no store      once: crash-before; more than once: zombie
  inbox         once: replay, zombie
  lease         nothing could be asked here: --local starts the servers that such stores need
  call          never: crash-before
  call.keyed    once: crash-before
`},
	} {
		var s strings.Builder
		r := &report.Report{Targets: []report.Target{{Findings: c.findings}, {Findings: c.findings[:1]}}}
		if err := effectLines(&s, r); err != nil || s.String() != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, s.String(), c.want)
		}
	}
}
