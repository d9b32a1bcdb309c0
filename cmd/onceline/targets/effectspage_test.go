package targets_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

// TestEffectsPage: each cell of docs/effects.md is what all boundaries declare that have
// what is asked about, and each claim about effects has a cell.
func TestEffectsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/effects.md")
	if err != nil {
		t.Fatal(err)
	}
	answer := map[string]boundary.Answer{"once": boundary.Once, "**twice**": boundary.Twice, "**never**": boundary.Lost}
	word := regexp.MustCompile(`once|\*\*twice\*\*|\*\*never\*\*`)
	cells := map[boundary.Claim]boundary.Answer{}
	for line := range strings.Lines(string(page)) {
		row := strings.Split(line, "|")
		if len(row) != 8 || !strings.HasPrefix(row[1], " `") {
			continue
		}
		scenario := strings.Split(row[1], "`")[1]
		for i, kind := range []string{"", "inbox.", "position.", "lease.", "call."} {
			said := word.FindAllString(row[2+i], -1)
			if len(said) == 0 {
				continue
			}
			cells[boundary.Claim("effect."+kind+scenario)] = answer[said[0]]
			// What comes behind a semicolon is with the other side's help.
			if helped := map[string]string{"lease.": "lease.fenced.", "call.": "call.keyed."}[kind]; len(said) > 1 {
				cells[boundary.Claim("effect."+helped+scenario)] = answer[said[1]]
			}
		}
	}
	for _, c := range conformance.Claims() {
		if strings.HasPrefix(string(c.ID), "effect.") && cells[c.ID] == "" {
			t.Errorf("%s has no cell", c.ID)
		}
	}
	for claim, want := range cells {
		answered := false
		for name, b := range targets.Boundaries() {
			e := b.Entries[claim]
			if e.Declared == boundary.NotApplicable {
				continue
			}
			if answered = true; e.Declared != want {
				t.Errorf("%s: the page says %s, %s declares %q", claim, want, name, e.Declared)
			}
		}
		if !answered {
			t.Errorf("%s: nobody has an answer", claim)
		}
	}
}
