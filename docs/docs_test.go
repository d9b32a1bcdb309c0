package docs

import (
	"slices"
	"strings"
	"testing"
)

func TestFacts(t *testing.T) {
	facts := Facts()
	rows := 0
	for line := range strings.Lines(factsPage) {
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") && factRow.MatchString(id) {
			rows++
			if facts[id].Text == "" || facts[id].Source == "" || facts[id].Confidence == "" {
				t.Errorf("%s wasn't read whole: %+v", id, facts[id])
			}
		}
	}
	if rows < 300 || rows != len(facts) {
		t.Errorf("%d rows, %d facts", rows, len(facts))
	}
	noFence := facts["NATS-F-16"]
	if !strings.HasPrefix(noFence.Text, "An ack is no fence.") || noFence.Confidence != "source, observed" {
		t.Errorf("%+v", noFence)
	}
	if !slices.Equal(noFence.Links, []string{"https://github.com/nats-io/nats-server"}) {
		t.Errorf("links %q", noFence.Links)
	}
}

func TestRow(t *testing.T) {
	for line, want := range map[string][]string{
		"| a | b |\n":          {"a", "b"},
		`| a \| b |  | c |`:    {"a | b", "", "c"},
		"||":                   nil,
		"no table | at all":    nil,
		"| `x` | not closed":   nil,
		"| one cell, no more|": {"one cell, no more"},
	} {
		if got := row(line); !slices.Equal(got, want) {
			t.Errorf("row(%q) = %q, want %q", line, got, want)
		}
	}
}
