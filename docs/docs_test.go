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

// What no vendor documents, and a server that runs in the project's tests can answer,
// has been asked.
func TestFactsAreMeasured(t *testing.T) {
	servers := []string{"NATS", "KAF", "RMQ", "RMS", "PG", "MY", "RED"}
	excused := map[string]string{"KAF-F-55": "is about what franz-go's model is for"}
	asked := 0
	for id, f := range Facts() {
		prefix, _, _ := strings.Cut(id, "-")
		if !slices.Contains(servers, prefix) || strings.Contains(f.Confidence, "documented") {
			continue
		}
		_, excuse := excused[id]
		if measured := strings.Contains(f.Confidence, "observed"); measured == excuse {
			t.Errorf("%s rests on %q alone, or is excused and needn't be", id, f.Confidence)
		}
		asked++
	}
	if asked < 100 {
		t.Errorf("%d facts that aren't documented", asked)
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
